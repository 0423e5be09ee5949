"""A log's `leader-epoch-checkpoint`, the table of its leader epochs on the disk:

    0            version
    2            number of lines that follow
    0 0          epoch, first offset of that epoch
    3 1180

A new leader epoch changes the table; the file is replaced as a whole within seconds, by the background thread, or with
the next flush, whichever comes first, and synced with that flush. The first table of a new log waits for the first
record: an empty log has nothing to tell that its next leader would not assign again. What the file lacks after a crash
stands in the batches above the recovery point, from which recovery takes it. A file that cannot be read is rebuilt
from the whole log in the same way. Writers come from several threads, so each carries a version: an older table never
replaces a newer one, and nothing is written once the log's directory belongs to nobody.
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
        #: Changed since a flush last took it along.
        self.is_unsynced = False

    def is_unwritten(self, log_end_offset: int) -> bool:
        """True if the table has changed since it was written, and the log, which ends there, has something to tell by
        it."""
        return self._version != self._on_disk and (log_end_offset > 0 or not self._was_empty or self._on_disk > 0)

    def changed(self) -> None:
        """The table is another one now."""
        self._version += 1
        self.is_unsynced = True

    def unwritten(self, log_end_offset: int) -> EpochsWrite | None:
        """What has to be written for the file to hold the table as it is now; for another thread. None if it does, or
        need not."""
        return EpochsWrite(self, self._version, self._table.entries()) if self.is_unwritten(log_end_offset) else None

    def put(self, version: int, entries: list[tuple[int, int]]) -> None:
        """Writes a table, unless a newer one is there; OSError if the disk does not take it. It is synced by the next
        flush."""
        with self._lock:
            if version > self._on_disk and not self._is_gone:
                write_leader_epochs(self._directory, entries, self._files, sync=False)
                self._on_disk = version

    def leave(self) -> None:
        """The directory gets another name: nothing is written from here on."""
        with self._lock:
            self._is_gone = True


class EpochsWrite:
    """A table on its way to its file: `run` in any thread, then `done` on the owner's."""

    __slots__ = ("_entries", "_file", "_version")

    def __init__(self, file: EpochsFile, version: int, entries: list[tuple[int, int]]) -> None:
        self._file = file
        self._version = version
        self._entries = entries

    def run(self) -> None:
        """OSError if the disk does not take it."""
        self._file.put(self._version, self._entries)

    def done(self) -> None:
        """Nothing is left to do: the file knows what it holds."""


def read_leader_epochs(directory: Path, files: FileLayer) -> LeaderEpochs | None:
    """The table on disk; None if there is no file or it is damaged, so that the caller rebuilds it from the log. A
    file that does not end with a line's end was cut by a crash: the last offset may lack digits."""
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
