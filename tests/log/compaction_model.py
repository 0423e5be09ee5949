"""Random logs that are compacted again and again, and a model of what stays: a few lines over lists of records.

    python -m tests.log.compaction_model --seeds 10000 [--first 1]    one line for each seed that fails; exit code 1

A log gets batches of one or more records: keys that come again, tombstones, every codec, idempotent producers,
records of the past and of both timestamp types. It rolls, is compacted, is closed or killed and opened, time passes,
and all of that again. After each compaction, and after each start, the log must hold the records that the model keeps,
in the batches that it keeps, at their offsets.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.log.background import InlineBackground
from jesenska.log.files import FileLayer
from jesenska.log.leader_appends import append_at_once
from jesenska.log.log_cleaner import CleanerSettings, CleanerSurroundings
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec

PARTITION = TopicPartition("compacted", 0)
START_MS = 1_700_000_000_000


class ModelRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


@dataclass
class ModelBatch:
    records: list[ModelRecord]
    last_offset: int
    producer_id: int
    horizon_ms: int | None = None

    def told(self) -> tuple[object, ...]:
        return (self.last_offset, self.producer_id, self.horizon_ms, tuple(self.records))


@dataclass
class Model:
    """What a log with compaction is to hold."""

    config: LogConfig
    batches: list[ModelBatch] = field(default_factory=list)
    first_dirty: int = 0

    def compact(self, end: int, now_ms: int) -> None:
        """Everything below `end` is compacted, without a limit of keys."""
        newest = {record.key: record.offset for batch in self.batches for record in batch.records if self.first_dirty <= record.offset < end}
        last_of_producer = {batch.producer_id: batch.last_offset for batch in self.batches}
        kept: list[ModelBatch] = []
        for batch in self.batches:
            if batch.last_offset >= end:
                kept.append(batch)
                continue
            over = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            batch.records = [record for record in batch.records if record.offset >= newest.get(record.key, -1) and not (record.value is None and over)]
            if batch.horizon_ms is None and any(record.value is None for record in batch.records):
                batch.horizon_ms = now_ms + self.config.delete_retention_ms
            if batch.records or (batch.producer_id >= 0 and last_of_producer[batch.producer_id] == batch.last_offset):
                kept.append(batch)
        self.batches = kept
        self.first_dirty = max(self.first_dirty, end)


class CompactedLog:
    """A log directory with one partition, whose cleaner works at once."""

    def __init__(self, directory: Path, config: LogConfig, settings: CleanerSettings | None = None, files: FileLayer | None = None) -> None:
        self.directory = directory
        self.config = config
        self.settings = settings if settings is not None else CleanerSettings()
        self.files = files if files is not None else FileLayer()
        self.now_ms = START_MS
        self.waiting: list[Callable[[], None]] = []
        self.pauses_seconds: list[float] = []
        self.open()

    def open(self) -> None:
        """A start of the broker."""
        self.waiting.clear()
        surroundings = CleanerSurroundings(InlineBackground(), self._later, lambda: self.now_ms, lambda: self.now_ms, lambda: bytes(16))
        self.directories = LogDirectories([self.directory], files=self.files, cleaner_surroundings=surroundings, cleaner_settings=self.settings)
        self.directories.lock()
        self.directories.load(lambda topic_partition, topic_id: self.config, self.now_ms)
        self.log: PartitionLog = self.directories.get(PARTITION) or self.directories.create(PARTITION, None, self.config, self.now_ms)
        self.log.move_high_watermark(self.log.log_end_offset)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.pauses_seconds.append(seconds)
        self.waiting.append(call)

    def append(self, batch: bytes | bytearray) -> int:
        """Its base offset."""
        buffer = memoryview(bytearray(batch))
        result = append_at_once(self.log, buffer, [header for _, header in iter_headers(buffer)], 0, self.now_ms)
        self.log.move_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def compact(self) -> None:
        """As many compactions as are due."""
        assert self.directories.cleaner is not None
        self.log.flush()
        self.now_ms += self.settings.backoff_ms
        self.directories.cleaner.look()
        while self.waiting:
            self.waiting.pop(0)()

    def close(self, *, clean: bool = True) -> None:
        self.directories.close(clean=clean)

    def told(self) -> list[tuple[object, ...]]:
        """The log's batches, as `ModelBatch.told` has them."""
        result: list[tuple[object, ...]] = []
        for segment in self.log.segments:
            data = segment.file.path.read_bytes()[: segment.size_bytes]
            for position, header in iter_headers(data):
                records = decode_batches(data[position : position + header.size_bytes])
                horizon = header.base_timestamp if header.has_delete_horizon else None
                told = tuple(ModelRecord(record.offset, record.timestamp_ms, record.key or b"", record.value) for record in records)
                result.append((header.last_offset, header.producer_id, horizon, told))
        return result


def run(seed: int, directory: Path) -> None:
    """One random log; AssertionError where it is not what the model has."""
    rng = random.Random(seed)
    config = LogConfig(
        segment_bytes=rng.choice([600, 2_000, 20_000]),
        index_interval_bytes=rng.choice([0, 100, 4096]),
        delete=False,
        compact=True,
        log_append_time=rng.random() < 0.2,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=rng.choice([0, 60_000, 3_600_000]),
        file_delete_delay_ms=0,
    )
    log = CompactedLog(directory, config)
    model = Model(config)
    keys = [b"key-%d" % index for index in range(rng.choice([1, 3, 20]))]
    sequences: dict[int, int] = {}
    for _ in range(rng.randint(1, 6)):
        for _ in range(rng.randint(0, 30)):
            records = [
                (log.now_ms - rng.choice([0, 0, 5_000_000]), rng.choice(keys), None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 5, 60])), ())
                for _ in range(rng.choice([1, 1, 2, 5]))
            ]
            producer_id = rng.choice([-1, 1, 2])
            sequence = sequences.get(producer_id, 0) if producer_id >= 0 else -1
            codec = rng.choice(list(Codec))
            base = log.append(encode_batch(records, codec, producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence))
            if producer_id >= 0:
                sequences[producer_id] = sequence + len(records)
            times = [log.now_ms if config.log_append_time else record[0] for record in records]
            made = [ModelRecord(base + index, times[index], key, value) for index, (_, key, value, _) in enumerate(records)]
            model.batches.append(ModelBatch(made, base + len(records) - 1, producer_id))
            log.now_ms += rng.choice([0, 10])
        if rng.random() < 0.7:
            log.log.roll(log.now_ms)
        end = log.log.active_segment.base_offset
        has_dirty = any(segment.size_bytes for segment in log.log.segments[:-1] if segment.base_offset >= model.first_dirty)
        log.compact()
        if has_dirty:
            model.compact(end, log.now_ms)
        assert log.told() == [batch.told() for batch in model.batches], f"after a compaction up to {end}"
        if rng.random() < 0.5:
            log.close(clean=rng.random() < 0.5)
            log.open()
            assert log.told() == [batch.told() for batch in model.batches], "after a start"
        log.now_ms += rng.choice([0, 100_000, 10_000_000])
    log.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory() as directory:
            try:
                run(seed, Path(directory))
            except AssertionError as error:
                failed += 1
                print(f"seed {seed}: {str(error).splitlines()[0]}")
    print(f"{options.seeds - failed} of {options.seeds} seeds pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
