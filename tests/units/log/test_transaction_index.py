"""Consumers of committed records get the list of aborted transactions, whatever happens to the log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.log_start import delete_records
from jesenska.log.segments.index_file import CorruptIndexError
from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.log.segments.transaction_index import TransactionIndex
from jesenska.records.decode import ControlMarker, ControlType, marker_record
from jesenska.records.encode import encode_batch
from tests.units.log.committed_reads import consume
from tests.units.log.log_harness import NOW_MS, LogHarness

ENTRY = "00000000000000000000"


def data(producer_id: int, sequence: int, value: bytes = b"v", *, is_transactional: bool = True) -> bytearray:
    return encode_batch(
        [(NOW_MS, b"k", value, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def marker(producer_id: int, kind: ControlType, coordinator_epoch: int = 0) -> bytearray:
    record = marker_record(ControlMarker(kind, coordinator_epoch), NOW_MS)
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True)


class Model:
    """The appended records: for each data record its offset and, once it is known, whether its transaction was
    aborted."""

    def __init__(self, harness: LogHarness, seed: int) -> None:
        self.harness = harness
        self.random = random.Random(seed)
        self.sequences = dict.fromkeys(range(4), 0)
        #: (offset, producer or -1 outside of transactions)
        self.records: list[tuple[int, int]] = []
        #: (offset, producer, aborted)
        self.markers: list[tuple[int, int, bool]] = []

    def append(self) -> None:
        producer_id = self.random.randrange(5)
        if producer_id == 4:
            result = self.harness.append(encode_batch([(NOW_MS, b"k", b"plain", ())]))
            self.records.append((result.base_offset, -1))
        elif self.random.random() < 0.3:
            aborts = self.random.random() < 0.5
            result = self.harness.append(marker(producer_id, ControlType.ABORT if aborts else ControlType.COMMIT))
            self.markers.append((result.base_offset, producer_id, aborts))
        else:
            result = self.harness.append(
                data(producer_id, self.sequences[producer_id], b"x" * self.random.randrange(200))
            )
            self.sequences[producer_id] += 1
            self.records.append((result.base_offset, producer_id))

    def truncate(self, offset: int) -> None:
        self.harness.truncate_to(offset)
        self.records = [record for record in self.records if record[0] < offset]
        self.markers = [marker for marker in self.markers if marker[0] < offset]
        for producer_id in self.sequences:
            # A new epoch would do as well; the log knows the last sequence of each.
            entry = self.harness.log.producers.get(producer_id)
            self.sequences[producer_id] = 0 if entry is None else entry.last_sequence + 1

    def end_of(self, offset: int, producer_id: int) -> tuple[int, bool] | None:
        """The marker that decides a record."""
        return next(
            ((at, aborts) for at, producer, aborts in self.markers if producer == producer_id and at > offset), None
        )

    def stable_end(self) -> int:
        open_records = [
            offset
            for offset, producer_id in self.records
            if producer_id >= 0 and self.end_of(offset, producer_id) is None
        ]
        return min(open_records, default=self.harness.log.log_end_offset)

    def committed(self, from_offset: int) -> list[int]:
        stable = self.stable_end()
        shown = []
        for offset, producer_id in self.records:
            decided = None if producer_id < 0 else self.end_of(offset, producer_id)
            if from_offset <= offset < stable and (decided is None or not decided[1]):
                shown.append(offset)
        return shown

    def check(self) -> None:
        log = self.harness.log
        assert log.last_stable_offset == max(self.stable_end(), log.log_start_offset)
        for _ in range(3):
            offset = self.random.randrange(log.log_start_offset, log.log_end_offset + 1)
            assert consume(self.harness.log, offset, self.random.choice((1, 300, 1 << 20))) == self.committed(offset)


@pytest.mark.parametrize("seed", range(25))
def test_consumers_of_committed_records_see_those_and_no_others(tmp_path: Path, seed: int) -> None:
    harness = LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=2000, index_interval_bytes=150))
    model = Model(harness, seed)
    for _ in range(12):
        for _ in range(model.random.randrange(1, 20)):
            model.append()
        event = model.random.randrange(6)
        if event == 0:
            harness.reopen()
        elif event == 1:
            harness.crash()
        elif event == 2:
            harness.crash(recovery_point=0)
        elif event == 3:
            model.truncate(model.random.randrange(harness.log.log_end_offset + 1))
        elif event == 4:
            harness.log.flush()
        model.check()
    harness.reopen()
    model.check()


def index_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix == ".txnindex")


def test_only_segments_with_aborted_transactions_have_an_index_file(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(data(1, 0), marker(1, ControlType.COMMIT), data(1, 1))
    harness.reopen()
    assert index_files(harness.directory) == []
    harness.append(marker(1, ControlType.ABORT))
    harness.reopen()
    assert index_files(harness.directory) == [f"{ENTRY}.txnindex"]
    content = (harness.directory / f"{ENTRY}.txnindex").read_bytes()
    assert content.hex() == "0000" + f"{1:016x}{2:016x}{3:016x}{4:016x}"


def test_a_marker_without_a_transaction_leaves_no_entry(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(marker(1, ControlType.ABORT), data(2, 0, is_transactional=False), marker(2, ControlType.ABORT))
    assert harness.log.active_segment.transaction_index is None


def test_an_entry_tells_where_the_oldest_open_transaction_begins(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(data(1, 0), data(2, 0), marker(1, ControlType.ABORT), marker(2, ControlType.ABORT))
    index = harness.log.active_segment.transaction_index
    assert index is not None
    assert index.entries() == [AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 3, 4)]


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00" * 33,
        b"\x00\x01" + bytes(32),
        bytes(2) + b"\xff" * 32,
        bytes(2) + (1).to_bytes(8, "big") + (9).to_bytes(8, "big") + bytes(16),
    ],
    ids=["torn", "version", "negative", "first after last"],
)
def test_an_index_that_makes_no_sense_is_built_anew(tmp_path: Path, damage: bytes) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(data(1, 0), data(2, 0), marker(1, ControlType.ABORT), data(3, 0))
    harness.reopen()
    path = harness.directory / f"{ENTRY}.txnindex"
    good = path.read_bytes()
    path.write_bytes(damage)
    index = TransactionIndex(path, 0, FileLayer())
    with pytest.raises(CorruptIndexError):
        index.load()
    harness.reopen()
    assert "txnindex was rebuilt" in harness.notes[0]
    harness.reopen()
    assert path.read_bytes() == good


def test_an_append_that_fails_leaves_no_entry(tmp_path: Path) -> None:
    class FullDisk(FileLayer):
        is_full = False

        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            if self.is_full:
                raise OSError(28, "full")
            return super().pwrite(descriptor, data, position)

    files = FullDisk()
    harness = LogHarness(tmp_path / "t-0", files=files)
    harness.append(data(1, 0))
    files.is_full = True
    with pytest.raises(Exception, match="cannot be written"):
        harness.append(marker(1, ControlType.ABORT))
    files.is_full = False
    assert harness.log.active_segment.transaction_index is None
    assert harness.log.last_stable_offset == 0
    harness.append(marker(1, ControlType.COMMIT))
    assert harness.log.last_stable_offset == 2
    assert consume(harness.log, 0, 1 << 20) == [0]


def test_the_last_stable_offset_is_not_before_the_log_start_offset(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(data(1, 0), data(2, 0), data(2, 1))
    assert harness.log.last_stable_offset == 0
    delete_records(harness.log, 2)
    assert harness.log.last_stable_offset == 2
