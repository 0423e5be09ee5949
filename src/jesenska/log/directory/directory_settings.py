"""The broker's settings for its log directories. The settings of single topics are in `log_config`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """The broker's settings for its log directories. Names (without the prefixes `log.` and `num.`) and defaults are
    those of Kafka's settings."""

    recovery_threads_per_data_dir: int = 1
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
