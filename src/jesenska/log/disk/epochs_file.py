"""The file `leader-epoch-checkpoint` of a log: the table of its leader epochs on the disk.

    0            version
    2            number of lines that follow
    0 0          epoch, first offset of that epoch
    3 1180

A new leader epoch changes the table. The file is replaced as a whole within seconds, by the background thread or by
the next flush, and is synced by that flush. A new log gets the file only after its first record.

After a crash, recovery takes missing entries from the batches above the recovery point. A file that cannot be read is
rebuilt from the whole log in the same way. Several threads write the file, so each write has a version: an older table
never replaces a newer table. Nothing is written after the log has left its directory."""

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
        #: True if the table has changed since the last flush.
        self.is_unsynced = False

    def is_unwritten(self, log_end_offset: int) -> bool:
        """Returns true if the table must be written to its file because it has changed since the last write. A log
        without records does not get a new file: if the table was empty when the log was opened, it is written only if
        the log end offset is above 0 or the file exists already."""
        return self._version != self._on_disk and (log_end_offset > 0 or not self._was_empty or self._on_disk > 0)

    def changed(self) -> None:
        """Records that the table of leader epochs has changed, so that it must be written and synced."""
        self._version += 1
        self.is_unsynced = True

    def unwritten(self, log_end_offset: int) -> EpochsWrite | None:
        """Returns an object that writes the present table in another thread. Returns None if the file has the present
        table, or need not be written."""
        return EpochsWrite(self, self._version, self._table.entries()) if self.is_unwritten(log_end_offset) else None

    def put(self, version: int, entries: list[tuple[int, int]]) -> None:
        """Writes a table to the file. Does nothing if the file already has a newer table. The next flush syncs the
        file. Raises OSError if the write fails."""
        with self._lock:
            if version > self._on_disk and not self._is_gone:
                write_leader_epochs(self._directory, entries, self._files, sync=False)
                self._on_disk = version

    def leave(self) -> None:
        """Stops all further writes, because the directory is about to be renamed."""
        with self._lock:
            self._is_gone = True


class EpochsWrite:
    """A pending write of the epoch table to its file. Call `run` in any thread, then `done` on the owner's thread."""

    __slots__ = ("_entries", "_file", "_version")

    def __init__(self, file: EpochsFile, version: int, entries: list[tuple[int, int]]) -> None:
        self._file = file
        self._version = version
        self._entries = entries

    def run(self) -> None:
        """Writes the table to its file. Raises OSError if the write fails."""
        self._file.put(self._version, self._entries)

    def done(self) -> None:
        """Does nothing: `run` has already recorded which version is on the disk."""


def read_leader_epochs(directory: Path, files: FileLayer) -> LeaderEpochs | None:
    """Returns the table on the disk. Returns None if the file is missing or damaged, so that the caller rebuilds the
    table from the log. A file that does not end with a line break was cut by a crash, and its last offset may lack
    digits."""
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
