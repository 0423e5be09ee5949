"""Converts settings to the values that other packages need: a topic's settings to the settings of its logs, and a
broker's settings to the settings of its log directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.base.plugins import DEFAULT_RETENTION_POLICY
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.config.safety import EVERY_DIRECTORY
from jesenska.config.table import release_number
from jesenska.log.compaction.log_cleaner import CleanerSettings
from jesenska.log.copies.replica_moves import MoveSettings
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.log_config import LogConfig
from jesenska.records.check import CheckRules, MovingRules
from jesenska.records.header import Codec
from jesenska.replication.follower.link import LinkSettings

#: The lowest and the highest level of lz4's high compression, and Kafka's default level.
_LZ4_HIGH_MIN, _LZ4_HIGH_MAX, _LZ4_DEFAULT_LEVEL = 3, 16, 9


def log_config_of(topic: TopicConfig) -> LogConfig:
    """Returns the log settings of a topic's partitions."""
    policy = topic.strings("cleanup.policy")
    return LogConfig(
        segment_bytes=topic.integer("segment.bytes"),
        segment_ms=min(topic.integer("segment.ms"), topic.integer("max.compaction.lag.ms"))
        if "compact" in policy
        else topic.integer("segment.ms"),
        segment_jitter_ms=topic.integer("segment.jitter.ms"),
        segment_index_bytes=topic.integer("segment.index.bytes"),
        index_interval_bytes=topic.integer("index.interval.bytes"),
        retention_ms=topic.integer("retention.ms"),
        retention_bytes=topic.integer("retention.bytes"),
        retention_policy=topic.string("jesenska.retention.policy") or DEFAULT_RETENTION_POLICY,
        delete="delete" in policy,
        compact="compact" in policy,
        flush_messages=topic.integer("flush.messages"),
        flush_ms=topic.integer("flush.ms"),
        file_delete_delay_ms=topic.integer("file.delete.delay.ms"),
        max_message_bytes=topic.integer("max.message.bytes"),
        preallocate=topic.boolean("preallocate"),
        log_append_time=topic.value("message.timestamp.type") == "LogAppendTime",
        message_magic=magic_of(topic.string("message.format.version") or ""),
        down_converts=topic.boolean("message.downconversion.enable"),
        min_cleanable_dirty_ratio=topic.number("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=topic.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=topic.integer("max.compaction.lag.ms"),
        delete_retention_ms=topic.integer("delete.retention.ms"),
    )


def magic_of(release: str) -> int:
    """Returns the number of a release's message format: 0 before 0.10.0, 1 before 0.11.0, else 2."""
    number = release_number(release)
    assert number is not None, "the table has checked it"
    return 2 if number >= (0, 11) else 1 if number >= (0, 10) else 0


def check_rules_of(topic: TopicConfig, config: LogConfig) -> MovingRules:
    """Returns the limits and formats for checking a topic's produced batches."""
    codec, level = _codec_of(topic)
    rules = CheckRules(
        max_message_bytes=config.max_message_bytes,
        key_required=config.compact,
        log_append_time=config.log_append_time,
        decompressed_max_bytes=DECOMPRESSED_BATCH_MAX_BYTES,
        codec=codec,
        level=level,
    )
    return MovingRules(rules, topic.timestamp_before_max_ms, topic.timestamp_after_max_ms)


def _codec_of(topic: TopicConfig) -> tuple[int, int | None]:
    """Returns the codec and level with which the topic's batches are stored. Codec -1 means that batches keep the
    producer's codec."""
    name = topic.string("compression.type") or "producer"
    if name == "producer":
        return -1, None
    if name == "uncompressed":
        return int(Codec.NONE), None
    if name == "snappy":
        return int(Codec.SNAPPY), None
    level = topic.integer(f"compression.{name}.level")
    if name == "lz4":
        # Kafka's default level means the fast compressor. All other levels mean high compression.
        return int(Codec.LZ4), None if level == _LZ4_DEFAULT_LEVEL else max(_LZ4_HIGH_MIN, min(level, _LZ4_HIGH_MAX))
    return int(Codec[name.upper()]), level


def directory_settings_of(config: BrokerConfig) -> DirectorySettings:
    return DirectorySettings(
        recovery_threads_per_data_dir=config.integer("num.recovery.threads.per.data.dir"),
        flush_offset_checkpoint_interval_ms=config.integer("log.flush.offset.checkpoint.interval.ms"),
        flush_start_offset_checkpoint_interval_ms=config.integer("log.flush.start.offset.checkpoint.interval.ms"),
        high_watermark_checkpoint_interval_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
        retention_check_interval_ms=config.integer("log.retention.check.interval.ms"),
        producer_id_expiration_ms=config.integer("producer.id.expiration.ms"),
        producer_id_expiration_check_interval_ms=config.integer("producer.id.expiration.check.interval.ms"),
    )


def cleaner_settings_of(config: BrokerConfig) -> CleanerSettings:
    """Returns the settings of compaction."""
    return CleanerSettings(
        enable=config.boolean("log.cleaner.enable"),
        threads=config.integer("log.cleaner.threads"),
        backoff_ms=config.integer("log.cleaner.backoff.ms"),
        dedupe_buffer_size=config.integer("log.cleaner.dedupe.buffer.size"),
        io_buffer_size=config.integer("log.cleaner.io.buffer.size"),
        io_buffer_load_factor=config.number("log.cleaner.io.buffer.load.factor"),
        io_max_bytes_per_second=config.number("log.cleaner.io.max.bytes.per.second"),
    )


def move_settings_of(config: BrokerConfig) -> MoveSettings:
    """Returns the settings of moves of replicas between log directories."""
    threads = config.value("num.replica.alter.log.dirs.threads")
    return MoveSettings(
        threads if isinstance(threads, int) else None, config.integer("replica.alter.log.dirs.io.max.bytes.per.second")
    )


def cordoned_paths_of(config: BrokerConfig, directories: Sequence[Path]) -> set[Path]:
    """Returns the log directories that get no new replicas (cordoned.log.dirs; `*` means all)."""
    named = config.strings("cordoned.log.dirs")
    if EVERY_DIRECTORY in named:
        return {path.absolute() for path in directories}
    return {Path(name).absolute() for name in named}


def link_settings_of(broker_id: int, config: BrokerConfig) -> LinkSettings:
    """Returns the settings with which this broker fetches from leaders as a follower."""
    return LinkSettings(
        broker_id,
        wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
        min_bytes=config.integer("replica.fetch.min.bytes"),
        partition_max_bytes=config.integer("replica.fetch.max.bytes"),
        response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        backoff_ms=config.integer("replica.fetch.backoff.ms"),
        timeout_ms=config.integer("replica.socket.timeout.ms"),
    )
