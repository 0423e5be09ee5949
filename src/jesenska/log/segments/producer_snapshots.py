"""The snapshots of a log's producers on its disk: `<offset>.snapshot` beside the segments, each the producers' state
as of that offset (`producer_state` has the format and says when they are read). One is written for each segment that
is begun, and for the log's end at an orderly stop. None is synced when it is written: a flush takes it along, and a
start does without one that is torn.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.producer_state import ProducerState, encode_snapshot
from jesenska.log.segments.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name


def snapshot_offsets(directory: Path, files: FileLayer) -> list[int]:
    """Offsets of the producer snapshots of a directory, ascending."""
    names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in files.names(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(int(name) for name in names if name.isdigit())


class ProducerSnapshots:
    """Those of one log."""

    __slots__ = ("_files", "directory")

    def __init__(self, directory: Path, files: FileLayer) -> None:
        #: The log's; deletion gives it another name.
        self.directory = directory
        self._files = files

    def path(self, offset: int) -> Path:
        """Where the snapshot as of an offset is, or would be."""
        return self.directory / file_name(offset, SNAPSHOT_SUFFIX)

    def write(self, offset: int, producers: ProducerState) -> None:
        """Writes the state as the snapshot as of `offset`; OSError if the disk does not take it."""
        self._files.replace_file(self.path(offset), encode_snapshot(producers.entries()), sync=False)

    def remove(self, offset: int) -> None:
        """Removes one; where that fails it stays, and a start that finds it past the log's end removes it."""
        with suppress(OSError):
            self._files.unlink(self.path(offset))

    def mark_deleted(self, offset: int) -> list[Path]:
        """Renames one that is to be removed later; its new path, nothing if there is none."""
        path = self.path(offset)
        target = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._files.rename(path, target)
        except FileNotFoundError:
            return []
        return [target]

    def keep_only(self, offsets: Collection[int]) -> None:
        """Removes all others: they belong to segments that are gone."""
        for offset in snapshot_offsets(self.directory, self._files):
            if offset not in offsets:
                self.remove(offset)
