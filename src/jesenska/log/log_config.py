"""The settings of a topic that a partition's log needs: plain values in bytes and milliseconds, with Kafka's defaults.
A log can get new settings at any time; they apply from the next append, roll or retention check."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.base.plugins import DEFAULT_RETENTION_POLICY

_INT32_MAX = 2**31 - 1
#: Kafka's value of "no limit" for counts and times.
UNLIMITED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    #: Largest size: an append that would exceed it rolls the segment first.
    segment_bytes: int = 1024 * 1024 * 1024
    #: Roll when the timestamps of a segment span more than this.
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    #: Largest random amount that is subtracted from `segment_ms`, so that not all partitions roll at once.
    segment_jitter_ms: int = 0
    #: Size of a full index file (`segment.index.bytes`).
    segment_index_bytes: int = 10 * 1024 * 1024
    #: Smallest number of bytes between two index entries.
    index_interval_bytes: int = 4096
    #: Segments with an older largest timestamp are deleted; -1: never.
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    #: Oldest segments are deleted while the rest is at least this large; -1: never.
    retention_bytes: int = -1
    #: `cleanup.policy` has `delete`.
    delete: bool = True
    #: `cleanup.policy` has `compact`.
    compact: bool = False
    #: fsync after this many records.
    flush_messages: int = UNLIMITED
    #: fsync of unsynced records when this time has passed since the last fsync by time.
    flush_ms: int = UNLIMITED
    #: Segments stay on disk under `.deleted` for this long.
    file_delete_delay_ms: int = 60_000
    #: Largest accepted batch (`max.message.bytes`).
    max_message_bytes: int = 1024 * 1024 + 12
    #: Reserve the blocks of a new segment file at once.
    preallocate: bool = False
    #: `message.timestamp.type` is `LogAppendTime`.
    log_append_time: bool = False
    #: Format in which consumers get the topic's records (`message.format.version`): 2 as the log has them, 1 or 0 as
    #: message sets.
    message_magic: int = 2
    #: Consumers that only know older formats get converted records (`message.downconversion.enable`).
    down_converts: bool = True
    #: Name of the policy that decides which old segments are deleted (`retention_policies`).
    retention_policy: str = DEFAULT_RETENTION_POLICY
    #: Compaction: share of uncleaned bytes, youngest and oldest age of a record before it is compacted, life of a
    #: tombstone.
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    delete_retention_ms: int = 24 * 60 * 60 * 1000

    def __post_init__(self) -> None:
        assert 14 <= self.segment_bytes <= _INT32_MAX
        assert self.segment_ms > 0
        assert self.segment_jitter_ms >= 0
        assert self.segment_index_bytes >= 12
        assert self.index_interval_bytes >= 0
