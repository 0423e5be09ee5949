"""A log's `leader-epoch-checkpoint`, the table of its leader epochs on the disk:

    0            version
    2            number of lines that follow
    0 0          epoch, first offset of that epoch
    3 1180

A new leader epoch changes the table. The file is replaced as a whole within seconds, by the background thread or with
the next flush, whichever comes first, and synced with that flush. The first table of a new log is written only after
the first record: an empty log does not need the file, since the next leader would assign the same epochs again. After
a crash recovery takes the entries that the file lacks from the batches above the recovery point. A file that cannot be
read is rebuilt from the whole log in the same way. Several threads write the file, so each write carries a version: an
older table never replaces a newer one, and nothing is written after the log has left its directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from jesenska.base.errors import KafkaStorageError
from jesenska.log.disk.checkpoints import read_entries, write_entries
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import LeaderEpochs

FILE_NAME = "leader-epoch-checkpoint"


class EpochsFile:
    __slots__ = (
        "_directory",
        "_files",
        "_is_gone",
        "_lock",
        "_on_disk",
        "_table",
        "_version",
        "_was_empty",
        "is_unsynced",
    )

    def __init__(self, table: LeaderEpochs, directory: Path, files: FileLayer) -> None:
        self._table = table
        self._directory = directory
        self._files = files
        self._lock = Lock()
        self._version = 0
        self._on_disk = 0
        self._is_gone = False
        self._was_empty = not table.entries()
        #: True if the table has changed since the last flush took it.
        self.is_unsynced = False

    def is_unwritten(self, log_end_offset: int) -> bool:
        """True if the table has changed since it was written and is worth writing: the log, which ends at
        `log_end_offset`, is not empty, the table was not empty at the start, or the file has been written before."""
        return self._version != self._on_disk and (log_end_offset > 0 or not self._was_empty or self._on_disk > 0)

    def changed(self) -> None:
        """Records that the table has changed."""
        self._version += 1
        self.is_unsynced = True

    def unwritten(self, log_end_offset: int) -> EpochsWrite | None:
        """Returns the write that brings the file up to date, for another thread. None if the file is up to date or
        need not be written."""
        return EpochsWrite(self, self._version, self._table.entries()) if self.is_unwritten(log_end_offset) else None

    def put(self, version: int, entries: list[tuple[int, int]]) -> None:
        """Writes a table, unless the file already holds a newer one; OSError if the write fails. The next flush syncs
        the file."""
        with self._lock:
            if version > self._on_disk and not self._is_gone:
                write_leader_epochs(self._directory, entries, self._files, sync=False)
                self._on_disk = version

    def leave(self) -> None:
        """Stops all writes, because the directory is about to get another name."""
        with self._lock:
            self._is_gone = True


class EpochsWrite:
    """A table to be written to its file: call `run` in any thread, then `done` on the owner's thread."""

    __slots__ = ("_entries", "_file", "_version")

    def __init__(self, file: EpochsFile, version: int, entries: list[tuple[int, int]]) -> None:
        self._file = file
        self._version = version
        self._entries = entries

    def run(self) -> None:
        """Writes the table; OSError if the write fails."""
        self._file.put(self._version, self._entries)

    def done(self) -> None:
        """Does nothing: `run` has already recorded the version on the disk."""


def read_leader_epochs(directory: Path, files: FileLayer) -> LeaderEpochs | None:
    """Returns the table on disk; None if there is no file or it is damaged, so that the caller rebuilds it from the
    log. A file without a line end at its end was cut by a crash: the last offset may lack digits."""
    path = directory / FILE_NAME
    try:
        text = files.read_file(path).decode("utf-8", "replace")
        return LeaderEpochs(read_entries(text, path, _parse)) if text.endswith("\n") else None
    except (FileNotFoundError, KafkaStorageError):
        return None


def write_leader_epochs(directory: Path, entries: Iterable[tuple[int, int]], files: FileLayer, *, sync: bool) -> None:
    files.replace_file(
        directory / FILE_NAME, write_entries(f"{epoch} {offset}" for epoch, offset in entries), sync=sync
    )


def _parse(fields: list[str]) -> tuple[int, int]:
    epoch, offset = fields
    return int(epoch), int(offset)
