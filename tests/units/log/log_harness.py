"""Batches, and logs in a temporary directory, for the tests of the log room."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.background import DirectoryWriter, inline_writer
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.leader_appends import AppendResult, append_at_once
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import lookup_by_time, read_log
from jesenska.log.partition.recovery import LogLoader
from jesenska.log.segments.checked_batches import DamagedRecordsError
from jesenska.log.segments.segment_file import OpenFiles
from jesenska.log.segments.time_lookup import TimestampOffset
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.record import Record

NOW_MS = 1_600_000_000_000


def make_batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value_bytes: int = 10,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    return encode_batch(
        [(timestamp + index, b"key", bytes(value_bytes), ()) for index in range(count)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


@dataclass
class LogHarness:
    """One partition's log that can be closed, killed and opened again."""

    directory: Path
    config: LogConfig = field(default_factory=LogConfig)
    files: FileLayer = field(default_factory=FileLayer)
    writer: DirectoryWriter = field(default_factory=inline_writer)
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.open_files = OpenFiles(self.files, 64)
        self.notes: list[str] = []
        self.log = self.open(clean=True)

    def open(self, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> PartitionLog:
        loader = LogLoader(
            self.directory,
            self.config,
            self.files,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=self.now_ms,
        )
        loaded = loader.load()
        self.notes = loaded.notes
        self.log = PartitionLog(
            TopicPartition("t", 0), loaded, self.config, self.files, self.open_files, self.writer, now_ms=self.now_ms
        )
        self.log.move_high_watermark(self.log.log_end_offset)
        return self.log

    def reopen(self) -> PartitionLog:
        """Stops the log in order and opens it again."""
        start = self.log.log_start_offset
        close_log(self.log)
        return self.open(clean=True, log_start_offset=start)

    def crash(self, recovery_point: int | None = None) -> PartitionLog:
        """The process dies (written data stays in the files) and a new one starts."""
        point = self.log.recovery_point if recovery_point is None else recovery_point
        close_log(self.log, clean=False)
        return self.open(clean=False, recovery_point=point)

    def append(
        self, *batches: bytearray, leader_epoch: int = 0, now_ms: int | None = None, commits: bool = True
    ) -> AppendResult:
        buffer = memoryview(bytearray(b"".join(batches)))
        headers = [header for _, header in iter_headers(buffer)]
        result = append_at_once(self.log, buffer, headers, leader_epoch, self.now_ms if now_ms is None else now_ms)
        if commits:
            self.log.move_high_watermark(self.log.log_end_offset)
        return result

    def append_as_follower(self, batches: bytes) -> AppendResult:
        """Appends batches in the leader's form, with no other work pending."""
        buffer = memoryview(bytearray(batches))
        outcomes: list[AppendResult | KafkaError] = []
        result = append_as_follower(
            self.log, buffer, [header for _, header in iter_headers(buffer)], self.now_ms, outcomes.append
        )
        return _result(result or outcomes[0])

    def truncate_to(self, offset: int) -> None:
        """Truncates the log with no other work pending."""
        outcomes: list[KafkaError | None] = []
        self.log.truncate_to(offset, self.now_ms, outcomes.append)
        assert outcomes == [None]

    def restart_at(self, offset: int) -> None:
        """Restarts the log at an offset with no other work pending."""
        outcomes: list[KafkaError | None] = []
        self.log.restart_at(offset, self.now_ms, outcomes.append)
        assert outcomes == [None]

    def read(
        self, offset: int, max_bytes: int = 1 << 20, max_offset: int | None = None, minimum_one_batch: bool = True
    ) -> bytes:
        result = read_log(self.log, offset, max_bytes, max_offset, minimum_one_batch)
        if result.region is None:
            return b""
        try:
            return self.files.pread(result.region.file.fileno(), result.region.size_bytes, result.region.position)
        finally:
            result.region.release()

    def first_at_or_after(self, timestamp_ms: int) -> TimestampOffset | None:
        lookup = lookup_by_time(self.log)
        try:
            return lookup.first_at_or_after(timestamp_ms)
        finally:
            lookup.close()
            lookup.done()

    def first_of_largest(self) -> TimestampOffset | None:
        lookup = lookup_by_time(self.log)
        try:
            return lookup.first_of_largest()
        finally:
            lookup.close()
            lookup.done()

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def records(self, offset: int | None = None) -> list[Record]:
        """Every record from an offset on, read as a consumer would."""
        at = self.log.log_start_offset if offset is None else offset
        found: list[Record] = []
        while at < self.log.log_end_offset:
            batch = list(decode_batches(self.read(at), start_offset=at))
            assert batch, f"nothing at {at}"
            found.extend(batch)
            at = found[-1].offset + 1
        return found

    def readable(self) -> tuple[list[int], list[int]]:
        """The offsets that are served, and those that are refused since the disk has damaged them."""
        at = self.log.log_start_offset
        served: list[int] = []
        refused: list[int] = []
        while at < self.log.log_end_offset:
            try:
                records = list(decode_batches(self.read(at), start_offset=at))
                served += [record.offset for record in records]
                following = served[-1] + 1
            except DamagedRecordsError as error:
                following = error.next_offset
                refused += range(at, following)
            assert following > at
            at = following
        return served, refused

    def contents(self) -> bytes:
        return b"".join(segment.file.path.read_bytes()[: segment.size_bytes] for segment in self.log.segments)

    def __enter__(self) -> LogHarness:
        return self

    def __exit__(self, *_: object) -> None:
        close_log(self.log, clean=False)


def _result(outcome: AppendResult | KafkaError) -> AppendResult:
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
