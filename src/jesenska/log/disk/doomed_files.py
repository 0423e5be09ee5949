"""Removes files and directories some time after they were renamed. Their new name marks them for removal. Readers may
still have them open, so they stay on the disk for `file.delete.delay.ms`. After a crash the next start finds them by
their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jesenska.log.disk.background import Background, log_failure
from jesenska.log.disk.files import FileLayer


class DoomedFiles:
    """The files of all log directories that are marked for removal. Times are in milliseconds of the clock that
    measures delays."""

    def __init__(self, files: FileLayer, background: Background) -> None:
        self._files = files
        self._background = background
        #: The time at which each path is to be removed, and the path.
        self._waiting: list[tuple[int, Path]] = []

    def add(self, due_ms: int, paths: Iterable[Path]) -> None:
        """Schedules the removal of the paths at the time `due_ms`; a directory is removed with the files in it."""
        self._waiting.extend((due_ms, path) for path in paths)

    def remove_due(self, elapsed_ms: int) -> None:
        """Removes, in the background, the paths whose time of removal has passed."""
        due = [path for due_ms, path in self._waiting if due_ms <= elapsed_ms]
        if not due:
            return
        self._waiting = [(due_ms, path) for due_ms, path in self._waiting if due_ms > elapsed_ms]
        self._background.submit(lambda: self._remove(due), log_failure)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if path.is_dir():
                for name in self._files.names(path):
                    self._files.unlink(path / name)
                self._files.rmdir(path)
            else:
                self._files.unlink(path)
