"""The producer snapshots of a log: the files `<offset>.snapshot` beside the segments. Each file has the state of the
producers at its offset (`producer_state` describes the format, and how a start reads the file). A snapshot is written
for each new segment, and at the log end offset at a clean shutdown. A snapshot is not synced when it is written: a
later flush syncs it, and a start ignores an incomplete snapshot."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.producer_state import ProducerState, encode_snapshot
from jesenska.log.segments.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name


def snapshot_offsets(directory: Path, files: FileLayer) -> list[int]:
    """Returns the offsets of the producer snapshots in a directory, in ascending order."""
    names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in files.names(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(int(name) for name in names if name.isdigit())


class ProducerSnapshots:
    """Writes, renames and removes the producer snapshots of one log."""

    __slots__ = ("_files", "directory")

    def __init__(self, directory: Path, files: FileLayer) -> None:
        #: The log's directory. It changes when the directory is renamed.
        self.directory = directory
        self._files = files

    def path(self, offset: int) -> Path:
        """Returns the path of the snapshot at an offset. The file need not exist."""
        return self.directory / file_name(offset, SNAPSHOT_SUFFIX)

    def write(self, offset: int, producers: ProducerState) -> None:
        """Writes the producers' state as the snapshot at `offset`. Raises OSError if the write fails."""
        self._files.replace_file(self.path(offset), encode_snapshot(producers.entries()), sync=False)

    def remove(self, offset: int) -> None:
        """Removes the snapshot at `offset`. An error is ignored, because a start removes snapshots above the log's
        end."""
        with suppress(OSError):
            self._files.unlink(self.path(offset))

    def mark_deleted(self, offset: int) -> list[Path]:
        """Renames the snapshot at `offset`, so that it is removed later. Returns its new path, or an empty list if
        there is no snapshot."""
        path = self.path(offset)
        target = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._files.rename(path, target)
        except FileNotFoundError:
            return []
        return [target]

    def keep_only(self, offsets: Collection[int]) -> None:
        """Removes all snapshots except the snapshots at `offsets`, because all others belong to removed segments."""
        for offset in snapshot_offsets(self.directory, self._files):
            if offset not in offsets:
                self.remove(offset)
