"""A flush syncs the segment's file; the files beside it and the directory are synced if they have changed since their
last sync."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

_BASE = f"{0:020d}"
_FILES = [f"{_BASE}.index", f"{_BASE}.log", f"{_BASE}.timeindex"]
_EPOCHS = "leader-epoch-checkpoint"


class RecordedSyncs(FileLayer):
    """Records syncs by name; "." is the log's directory."""

    __slots__ = ("_directory", "_names", "synced")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[int, str] = {}
        self.synced: list[str] = []

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._names[descriptor] = path.name
        return descriptor

    def fsync(self, descriptor: int) -> None:
        self.synced.append(self._names[descriptor])

    def fsync_directory(self, path: Path) -> None:
        if path == self._directory:
            self.synced.append(".")

    def take(self) -> list[str]:
        taken, self.synced = sorted(self.synced), []
        return taken


class Flushed:
    """A log whose first flush has synced everything."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        self.files = RecordedSyncs(directory)
        self.harness = LogHarness(directory, config or LogConfig(), self.files)
        self.log = self.harness.log
        self.log.assign_leader_epoch(0, 0)
        assert {".", _EPOCHS, *_FILES} <= set(self.flush())

    def flush(self) -> list[str]:
        """Appends a batch, flushes, and returns the synced names."""
        self.harness.append(make_batch())
        self.files.take()
        self.log.flush()
        assert self.log.is_synced
        return self.files.take()


def test_a_flush_of_records_alone_syncs_one_file(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0")
    assert [log.flush() for _ in range(3)] == [[f"{_BASE}.log"]] * 3


def test_an_index_entry_is_synced_with_its_file_and_once(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0", LogConfig(index_interval_bytes=300))
    synced = [log.flush() for _ in range(8)]
    assert [".", *_FILES] in synced
    assert [f"{_BASE}.log"] in synced
    for before, after in pairwise(synced):
        assert before == [f"{_BASE}.log"] or after == [f"{_BASE}.log"], "an entry comes with every fourth batch at most"


def test_an_index_entry_that_the_background_has_written_is_synced(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0", LogConfig(index_interval_bytes=1))
    log.harness.append(make_batch())
    for write in log.log.unwritten():
        write.run()
        write.done()
    assert not log.log.has_unwritten
    log.files.take()
    log.log.flush()
    assert set(_FILES) <= set(log.files.take())


def test_a_new_leader_epoch_is_synced(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0")
    log.flush()
    log.log.assign_leader_epoch(1, log.log.log_end_offset)
    assert {_EPOCHS, "."} <= set(log.flush())
    assert log.flush() == [f"{_BASE}.log"]


def test_both_segments_of_a_roll_are_synced_with_their_names(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0")
    log.flush()
    log.files.take()
    end = log.log.roll(NOW_MS).base_offset
    assert {f"{end:020d}.snapshot", *_FILES, "."} <= set(log.files.take())
    assert {f"{end:020d}.log", f"{end:020d}.index", f"{end:020d}.timeindex", "."} <= set(log.flush())
    assert log.flush() == [f"{end:020d}.log"]


def test_everything_is_synced_after_a_truncation(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0")
    log.flush()
    log.harness.truncate_to(1)
    log.files.take()
    log.log.flush()
    assert {".", *_FILES} <= set(log.files.take())


def test_everything_is_synced_when_the_log_is_closed(tmp_path: Path) -> None:
    log = Flushed(tmp_path / "t-0")
    log.flush()
    log.harness.append(make_batch())
    log.files.take()
    close_log(log.log)
    assert {".", f"{3:020d}.snapshot", *_FILES} <= set(log.files.take())


def test_what_could_not_be_synced_is_synced_by_the_next_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Flushed(tmp_path / "t-0")
    log.log.unsynced.names_changed()
    opens = RecordedSyncs.open

    def refuse(self: RecordedSyncs, path: Path, flags: int) -> int:
        if path.suffix == ".index":
            raise PermissionError(13, os.strerror(13))
        return opens(self, path, flags)

    log.harness.append(make_batch())
    with monkeypatch.context() as patch:
        patch.setattr(RecordedSyncs, "open", refuse)
        log.log.flush()
    assert log.log.recovery_point == 1
    log.files.take()
    log.log.flush()
    assert log.log.recovery_point == 2
    assert {".", *_FILES} <= set(log.files.take())
