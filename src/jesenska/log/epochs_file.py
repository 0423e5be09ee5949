"""A log's `leader-epoch-checkpoint` on its way to the disk (leader_epochs says what is in it).

The first append in an epoch changes the table; the file follows within seconds, by the background thread, or with the next flush, whichever comes first. What
it lacks after a crash of the process stands in the batches above the recovery point, from which recovery takes it. Writers come from several threads, so each
carries a version: an older table never replaces a newer one, and nothing is written once the log's directory belongs to nobody.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from jesenska.log.files import FileLayer
from jesenska.log.leader_epochs import LeaderEpochs, write_leader_epochs


class EpochsFile:
    __slots__ = ("_directory", "_files", "_is_gone", "_lock", "_on_disk", "_table", "_version", "is_unsynced")

    def __init__(self, table: LeaderEpochs, directory: Path, files: FileLayer) -> None:
        self._table = table
        self._directory = directory
        self._files = files
        self._lock = Lock()
        self._version = 0
        self._on_disk = 0
        self._is_gone = False
        #: Changed since a flush last took it along.
        self.is_unsynced = False

    @property
    def is_unwritten(self) -> bool:
        """True if the table has changed since it was written."""
        return self._version != self._on_disk

    def changed(self) -> None:
        """The table is another one now."""
        self._version += 1
        self.is_unsynced = True

    def unwritten(self) -> EpochsWrite | None:
        """What has to be written for the file to hold the table as it is now; for another thread. None if it does."""
        return EpochsWrite(self, self._version, self._table.entries()) if self.is_unwritten else None

    def put(self, version: int, entries: list[tuple[int, int]]) -> None:
        """Writes a table, unless a newer one is there; OSError if the disk does not take it. It is synced by the next flush."""
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
