"""The settings of a topic that a partition's log uses: plain values in bytes and milliseconds, with Kafka's defaults.
A log can get new settings at any time; they apply from the next append, roll or retention check."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.base.plugins import DEFAULT_RETENTION_POLICY

_INT32_MAX = 2**31 - 1
#: Kafka's value for "no limit" in counts and times.
UNLIMITED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    #: The largest size of a segment. An append that would exceed it rolls the segment first.
    segment_bytes: int = 1024 * 1024 * 1024
    #: A segment is rolled when the timestamps of its records span more than this.
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    #: The largest random amount that is subtracted from `segment_ms`, so that not all partitions roll at once.
    segment_jitter_ms: int = 0
    #: The size of a full index file (`segment.index.bytes`).
    segment_index_bytes: int = 10 * 1024 * 1024
    #: The smallest number of bytes between two index entries.
    index_interval_bytes: int = 4096
    #: Segments whose largest timestamp is older than this are deleted; -1: never.
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    #: The oldest segments are deleted while the remaining segments have at least this many bytes; -1: never.
    retention_bytes: int = -1
    #: True if `cleanup.policy` contains `delete`.
    delete: bool = True
    #: True if `cleanup.policy` contains `compact`.
    compact: bool = False
    #: The log is synced (fsync) after this many records.
    flush_messages: int = UNLIMITED
    #: Unsynced records are synced when this time has passed since the last sync by time.
    flush_ms: int = UNLIMITED
    #: Files of deleted segments stay on the disk under a `.deleted` name for this long.
    file_delete_delay_ms: int = 60_000
    #: The largest accepted batch (`max.message.bytes`).
    max_message_bytes: int = 1024 * 1024 + 12
    #: True if the disk blocks of a new segment file are reserved when the file is created.
    preallocate: bool = False
    #: True if `message.timestamp.type` is `LogAppendTime`.
    log_append_time: bool = False
    #: The format in which consumers get the topic's records (`message.format.version`): 2 means batches, as the log
    #: has them; 1 and 0 mean message sets.
    message_magic: int = 2
    #: True if consumers that only know older formats get converted records (`message.downconversion.enable`).
    down_converts: bool = True
    #: The name of the policy that selects the old segments to delete (`retention_policies`).
    retention_policy: str = DEFAULT_RETENTION_POLICY
    #: Settings of compaction: the dirty share at which a log is compacted, the smallest and largest age at which a
    #: record is compacted, and the time for which a tombstone is kept.
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
