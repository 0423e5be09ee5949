"""Random logs that are compacted again and again, and a model of the remaining records: a few lines over lists of
records.

    python -m tests.units.log.compaction_model --seeds 10000 [--first 1]  a line for each seed that fails; exit code 1

A log gets batches of one or more records: repeated keys, tombstones, every codec, idempotent producers, transactions
that are committed, aborted or left open, records of the past and of both timestamp types. It rolls, is compacted,
loses old segments to retention, is closed or killed and opened, time passes, and all of that again. After each
compaction, and after each start, the log must hold the records that the model keeps, in the batches that it keeps, at
their offsets; and consumers of committed records must see the right ones of them.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.log.compaction.log_cleaner import CleanerSettings, CleanerSurroundings
from jesenska.log.disk.background import DirectoryWriter, InlineBackground, inline_writer
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_old_segments
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlMarker, ControlType, decode_batch, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from tests.units.log.committed_reads import consume

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
    #: The number of its transaction; None outside of any.
    transaction: int | None = None
    #: It holds the marker that ends the transaction.
    is_marker: bool = False

    def told(self) -> tuple[object, ...]:
        return (self.last_offset, self.producer_id, self.horizon_ms, tuple(self.records))


@dataclass
class Model:
    """The expected content of a log with compaction."""

    config: LogConfig
    batches: list[ModelBatch] = field(default_factory=list)
    first_dirty: int = 0
    #: Transactions that were aborted.
    aborted: set[int] = field(default_factory=set)

    def forget_before(self, log_start: int) -> None:
        """Removes the records before the log start, as retention does with whole segments."""
        self.batches = [batch for batch in self.batches if batch.last_offset >= log_start]
        self.first_dirty = max(self.first_dirty, log_start)

    def is_aborted(self, batch: ModelBatch) -> bool:
        return batch.transaction in self.aborted and not batch.is_marker

    def compact(self, end: int, now_ms: int) -> None:
        """Compacts everything below `end`, without a limit of keys."""
        data = [batch for batch in self.batches if not batch.is_marker]
        newest = {
            record.key: record.offset
            for batch in data
            if not self.is_aborted(batch)
            for record in batch.records
            if self.first_dirty <= record.offset < end
        }
        last_of_producer = {batch.producer_id: batch.last_offset for batch in data}
        transactions_met = {batch.transaction for batch in data if batch.last_offset < end}
        kept: list[ModelBatch] = []
        for batch in self.batches:
            if batch.last_offset >= end:
                kept.append(batch)
                continue
            over = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            has_deadline = any(record.value is None for record in batch.records)
            if batch.is_marker:
                has_deadline = batch.transaction not in transactions_met
                batch.records = [] if has_deadline and over else batch.records
            elif self.is_aborted(batch):
                batch.records = []
            else:
                batch.records = [
                    record
                    for record in batch.records
                    if record.offset >= newest.get(record.key, -1) and not (record.value is None and over)
                ]
                has_deadline = any(record.value is None for record in batch.records)
            if not batch.records:
                batch.horizon_ms = None
            elif batch.horizon_ms is None and has_deadline:
                batch.horizon_ms = now_ms + self.config.delete_retention_ms
            is_last = batch.last_offset == end - 1 or (
                not batch.is_marker and last_of_producer.get(batch.producer_id) == batch.last_offset
            )
            if batch.records or (batch.producer_id >= 0 and is_last) or batch.last_offset == end - 1:
                kept.append(batch)
        self.batches = kept
        self.first_dirty = max(self.first_dirty, end)


class CompactedLog:
    """A log directory with one partition, whose cleaner works immediately."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        settings: CleanerSettings | None = None,
        files: FileLayer | None = None,
        writer: DirectoryWriter | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.settings = settings if settings is not None else CleanerSettings()
        self.files = files if files is not None else FileLayer()
        self.writer = writer if writer is not None else inline_writer()
        self.now_ms = START_MS
        self.waiting: list[Callable[[], None]] = []
        self.pauses_seconds: list[float] = []
        self.open()

    def open(self) -> None:
        """A start of the broker."""
        self.waiting.clear()
        surroundings = CleanerSurroundings(
            InlineBackground(), self._later, lambda: self.now_ms, lambda: self.now_ms, lambda: bytes(16)
        )
        self.directories = LogDirectories(
            [self.directory],
            files=self.files,
            writer_for=lambda _: self.writer,
            cleaner_surroundings=surroundings,
            cleaner_settings=self.settings,
        )
        self.directories.lock()
        self.directories.load(lambda topic_partition, topic_id: self.config, self.now_ms)
        self.log: PartitionLog = self.directories.get(PARTITION) or self.directories.create(
            PARTITION, None, self.config, self.now_ms
        )
        self.log.move_high_watermark(self.log.log_end_offset)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.pauses_seconds.append(seconds)
        self.waiting.append(call)

    def append(self, batch: bytes | bytearray) -> int:
        """Appends a batch. Returns its base offset."""
        buffer = memoryview(bytearray(batch))
        result = append_at_once(self.log, buffer, [header for _, header in iter_headers(buffer)], 0, self.now_ms)
        self.log.move_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def compact(self) -> None:
        """Runs all compactions that are due."""
        assert self.directories.cleaner is not None
        self.log.flush()
        self.now_ms += self.settings.backoff_ms
        self.directories.cleaner.look()
        while self.waiting:
            self.waiting.pop(0)()

    def delete_old(self) -> None:
        """Deletes the segments that retention removes."""
        for path in delete_old_segments(self.log, self.now_ms):
            self.files.unlink(path)

    def close(self, *, clean: bool = True) -> None:
        self.directories.close(clean=clean)

    def told(self) -> list[tuple[object, ...]]:
        """Returns the log's batches in the form of `ModelBatch.told`."""
        result: list[tuple[object, ...]] = []
        for segment in self.log.segments:
            data = segment.file.path.read_bytes()[: segment.size_bytes]
            for position, header in iter_headers(data):
                records = decode_batch(data, position)
                horizon = header.base_timestamp if header.has_delete_horizon else None
                told = tuple(
                    ModelRecord(record.offset, record.timestamp_ms, record.key or b"", record.value)
                    for record in records
                )
                result.append((header.last_offset, header.producer_id, horizon, told))
        return result


_TRANSACTIONAL = frozenset({11, 12})


def _end_a_transaction(
    rng: random.Random, log: CompactedLog, model: Model, transactions: dict[int, int], producers: Sequence[int]
) -> None:
    """Ends a transaction of one of these producers; there may be none, as for a client that has sent nothing."""
    producer_id = rng.choice(producers)
    kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
    number = transactions.pop(producer_id, None)
    if number is not None and kind is ControlType.ABORT:
        model.aborted.add(number)
    record = marker_record(ControlMarker(kind, 0), log.now_ms)
    offset = log.append(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True)
    )
    made = [ModelRecord(offset, log.now_ms, record[1], record[2])]
    model.batches.append(
        ModelBatch(made, offset, producer_id, transaction=-1 if number is None else number, is_marker=True)
    )


def run(seed: int, directory: Path) -> None:
    """Runs one random log; AssertionError if it differs from the model."""
    rng = random.Random(seed)
    config = LogConfig(
        segment_bytes=rng.choice([600, 2_000, 20_000]),
        index_interval_bytes=rng.choice([0, 100, 4096]),
        delete=rng.random() < 0.3,
        retention_ms=rng.choice([50_000, 5_000_000]),
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
    #: The number of the transaction of each producer that has one.
    transactions: dict[int, int] = {}
    begun = 0
    for _ in range(rng.randint(1, 6)):
        for _ in range(rng.randint(0, 30)):
            if rng.random() < 0.2 and sequences.keys() & _TRANSACTIONAL:
                _end_a_transaction(rng, log, model, transactions, sorted(sequences.keys() & _TRANSACTIONAL))
                continue
            records = [
                (
                    log.now_ms - rng.choice([0, 0, 5_000_000]),
                    rng.choice(keys),
                    None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 5, 60])),
                    (),
                )
                for _ in range(rng.choice([1, 1, 2, 5]))
            ]
            producer_id = rng.choice([-1, 1, 2, *_TRANSACTIONAL])
            sequence = sequences.get(producer_id, 0) if producer_id >= 0 else -1
            codec = rng.choice(list(Codec))
            number = None
            if producer_id in _TRANSACTIONAL:
                begun += producer_id not in transactions
                number = transactions.setdefault(producer_id, begun)
            base = log.append(
                encode_batch(
                    records,
                    codec,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=sequence,
                    is_transactional=number is not None,
                )
            )
            if producer_id >= 0:
                sequences[producer_id] = sequence + len(records)
            times = [log.now_ms if config.log_append_time else record[0] for record in records]
            made = [
                ModelRecord(base + index, times[index], key, value) for index, (_, key, value, _) in enumerate(records)
            ]
            model.batches.append(ModelBatch(made, base + len(records) - 1, producer_id, transaction=number))
            log.now_ms += rng.choice([0, 10])
        if rng.random() < 0.7:
            log.log.roll(log.now_ms)
        if config.delete:
            log.delete_old()
            model.forget_before(log.log.log_start_offset)
        # Up to the first segment that is being written, or that has undecided transactions.
        end = max(
            segment.base_offset for segment in log.log.segments if segment.base_offset <= log.log.last_stable_offset
        )
        has_dirty = any(
            segment.size_bytes for segment in log.log.segments if model.first_dirty <= segment.base_offset < end
        )
        log.compact()
        if has_dirty:
            model.compact(end, log.now_ms)
        assert log.told() == [batch.told() for batch in model.batches], f"after a compaction up to {end}"
        committed = [
            record.offset
            for batch in model.batches
            if not batch.is_marker and not model.is_aborted(batch)
            for record in batch.records
            if record.offset < log.log.last_stable_offset
        ]
        assert consume(log.log, log.log.log_start_offset, 1000) == committed, "what consumers of committed records see"
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
