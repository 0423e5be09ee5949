"""The files of a replica that is being moved from one log directory to another. While the move runs there is a copy of
the log's files, byte by byte, in

    <target directory>/orders-0.<32 hex digits>-future/

The copy is filled while the log is in use (`replica_move` and `move_steps` decide the order). All functions here run
in another thread than the log's owner. Segments, indexes and snapshots are copied unchanged: nothing is decoded and no
index is built. If a start finds a directory with such a name, its files become a part of the copy: their bytes are
compared with the log's bytes, and overwritten if they differ.

The end of a move, while the log takes no appends:

    1  the rest of the active segment is copied, and everything is synced: the copy equals the log. A file in it,
       `jesenska-moved-from`, names the log's directory
    2  the log's directory gets the file `jesenska-moved-to`, synced, which names the directory of 3
    3  the copy's directory is renamed to the partition's name, and that is synced
    4  on the owner's thread: the log's old directory is renamed to a name in `-delete`, and the log continues in the
       new directory
    5  after the names of 4 are synced, the file of 1 is removed, and later the old directory

After a crash:

    before 3    the log is in its old directory, and the next start begins the move again: bytes that are copied
                already are compared, not written
    before 4    two directories have the partition's name, and the same content. The directory with `jesenska-moved-to`
                is removed, and the directory that it names is used, even if a crash of the machine has undone a part
                of 4
    after 4     the log is in the new directory

So at each moment one known directory is the log, and it has everything that was acknowledged. If 3 fails, the file of
2 is removed before the log takes appends again. A directory with the file of 1 that is left in the target is removed.
`partition_loading` reads the two files. While a directory that is named in one of these files cannot be read, the
partition stays offline."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk import partition_metadata
from jesenska.log.disk.epochs_file import write_leader_epochs
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.partition_metadata import write_topic_id
from jesenska.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    file_name,
)

FUTURE_DIRECTORY_SUFFIX: Final = "-future"
#: A file in a partition's directory. It names the directory to which the partition has moved. It counts only if that
#: directory has the partition's name.
MOVED_TO_FILE: Final = "jesenska-moved-to"
#: A file in a partition's directory, which names the directory it was copied from. The copy is valid only if that
#: directory no longer has the partition, or has a `jesenska-moved-to` that names the copy.
MOVED_FROM_FILE: Final = "jesenska-moved-from"
_BUFFER_BYTES = 1024 * 1024
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_DIGITS = 20


class SegmentIsGoneError(Exception):
    """Raised if the segment that was being copied is no longer in the log."""


class MoveIsOverError(Exception):
    """Raised if the owner of the move has ended the move."""


class SourceFailedError(Exception):
    """Raised if a file in the log's own directory could not be read or written. With `is_in_doubt`, it is also unknown
    if the directory still has the file `jesenska-moved-to`, or its old name, after a crash."""

    def __init__(self, error: OSError, *, is_in_doubt: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_in_doubt = is_in_doubt


class TargetFailedError(Exception):
    """Raised if the copy could not be written. With `is_in_doubt`, a sync of the copy failed, so it is unknown what is
    on its disk."""

    def __init__(self, error: OSError, *, is_in_doubt: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_in_doubt = is_in_doubt


class LogEnd(NamedTuple):
    """The facts about the log that are needed to complete its copy."""

    #: The active segment: its base offset, the descriptor of its file, the number of bytes that are already copied,
    #: and its size.
    base_offset: int
    source: int
    copied_bytes: int
    size_bytes: int
    #: Bytes that are preallocated for the new file; 0 for no preallocation.
    allocated_bytes: int
    epochs: Sequence[tuple[int, int]]
    topic_id: UUID | None


def future_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Returns Kafka's name for the directory of a copy that is being made. `unique` makes the name differ from the
    names of earlier moves."""
    return f"{topic_partition}.{unique.hex}{FUTURE_DIRECTORY_SUFFIX}"


def moved_to(directory: Path, files: FileLayer) -> Path | None:
    """Returns the directory to which a partition has moved, from the file `jesenska-moved-to` in its directory.
    Returns None if the file is missing or incomplete."""
    return _named_in(directory / MOVED_TO_FILE, files)


def moved_from(directory: Path, files: FileLayer) -> Path | None:
    """Returns the directory from which a partition's directory was copied, from the file `jesenska-moved-from` in it.
    Returns None if the file is missing or incomplete."""
    return _named_in(directory / MOVED_FROM_FILE, files)


def _named_in(path: Path, files: FileLayer) -> Path | None:
    try:
        text = files.read_file(path).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    return Path(text[:-1]) if text.endswith("\n") and text.strip("\0\n") else None


class FutureFiles:
    """The files of one move. Only one thread at a time may use this object."""

    def __init__(self, current: Path, future: Path, path: Path, files: FileLayer) -> None:
        """`current` is the log's directory, `future` the directory of the copy while it is made, `path` the final name
        of the copy."""
        self.future = future
        self._current = current
        self._path = path
        self._files = files
        #: The owner sets this to true to end a running copy soon.
        self.is_over = False
        # The buffers are empty except while a copy runs, since thousands of moves may wait.
        self._buffer = self._compared = memoryview(b"")
        #: The segment that is being copied: its base offset, the descriptor of its copy, and the size that the copy
        #: had before.
        self._target: tuple[int, int, int] | None = None

    def begin(self, topic_id: UUID | None) -> list[int]:
        """Prepares the directory of the copy, so that it survives a crash, and removes all files in it that are not
        segments. Returns the base offsets of the segments that the directory already has."""
        files = self._files
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        try:
            if topic_id is not None:
                write_topic_id(self.future, topic_id, files)
            names = files.names(self.future)
            found = [int(name.removesuffix(LOG_SUFFIX)) for name in names if _is_segment(name)]
            for name in names:
                if not _is_segment(name) and name != partition_metadata.FILE_NAME:
                    files.unlink(self.future / name)
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=False) from error
        self._sync_directory(self.future)
        self._sync_directory(self.future.parent)
        return found

    def remove(self, base_offsets: Collection[int]) -> None:
        """Removes the segments with these base offsets from the copy, because the log no longer has them."""
        if self._target is not None and self._target[0] in base_offsets:
            self._close_target()
        try:
            for base_offset in base_offsets:
                for suffix in _SUFFIXES:
                    self._files.unlink(self.future / file_name(base_offset, suffix))
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=False) from error

    def copy_piece(self, base_offset: int, source: int, position: int, size_bytes: int) -> None:
        """Copies `size_bytes` bytes at `position` from the segment's file `source`. Bytes that the copy already has
        are compared and written only if they differ."""
        target, held_bytes = self._open_target(base_offset)
        end = position + size_bytes
        while position < end:
            if self.is_over:
                raise MoveIsOverError
            piece = self._read(source, self._buffer, position, end)
            if not (position < held_bytes and self._is_there(target, piece, position, held_bytes)):
                try:
                    self._files.write_all(target, piece, position)
                except OSError as error:
                    raise TargetFailedError(error, is_in_doubt=False) from error
            position += len(piece)

    def _read(self, source: int, buffer: memoryview, position: int, end: int) -> memoryview:
        try:
            count = self._files.pread_into(source, buffer[: min(len(buffer), end - position)], position)
        except OSError as error:
            raise SourceFailedError(error) from error
        if count == 0:
            raise SegmentIsGoneError  # a truncation has cut the file
        return buffer[:count]

    def _is_there(self, target: int, piece: memoryview, position: int, held_bytes: int) -> bool:
        if position + len(piece) > held_bytes:
            return False
        if not self._compared:
            self._compared = memoryview(bytearray(_BUFFER_BYTES))
        compared = self._compared[: len(piece)]
        try:
            return self._files.pread_into(target, compared, position) == len(piece) and bytes(compared) == bytes(piece)
        except OSError:
            return False

    def seal(self, copy: LogSegment, original: LogSegment) -> None:
        """Completes the copy of a sealed segment whose bytes are all copied: copies its indexes and snapshots, and
        syncs everything. `copy` is an in-memory copy of the segment `original` (`LogSegment.copy`)."""
        base_offset = copy.base_offset
        beside: list[tuple[str, bytes]] = []
        with original.offset_index.lock, original.time_index.lock:
            if original.is_gone:
                raise SegmentIsGoneError
            indexes = [
                (INDEX_SUFFIX, copy.offset_index),
                (TIME_INDEX_SUFFIX, copy.time_index),
                (TXN_INDEX_SUFFIX, copy.transaction_index),
            ]
            try:
                for suffix, index in indexes:
                    if index is None:
                        continue
                    content = index.content()
                    with suppress(FileNotFoundError):  # a file that is missing stays missing in the copy
                        beside.append((suffix, self._files.read_file(index.path) if content is None else content))
                modified_ms = self._files.modified_ms(copy.file.path)
            except OSError as error:
                raise SourceFailedError(error) from error
        self._put(base_offset, [*beside, *self._snapshot(base_offset)])
        target, _ = self._open_target(base_offset)
        self._cut_and_sync(target, copy.size_bytes)
        self._close_target()
        with suppress(OSError):
            # Retention uses the modification time if records have no timestamps.
            self._files.set_modified_ms(self.future / file_name(base_offset, LOG_SUFFIX), modified_ms)

    def _snapshot(self, base_offset: int) -> list[tuple[str, bytes]]:
        """Returns the producer snapshot at the segment's base offset; an empty list if there is no such file."""
        try:
            return [(SNAPSHOT_SUFFIX, self._files.read_file(self._current / file_name(base_offset, SNAPSHOT_SUFFIX)))]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SourceFailedError(error) from error

    def _put(self, base_offset: int, beside: Sequence[tuple[str, bytes]]) -> None:
        """Writes and syncs the indexes and snapshots of a segment. Such files of an earlier segment with the same name
        are removed."""
        files, kept = self._files, {suffix for suffix, _ in beside}
        for suffix, content in beside:
            descriptor = -1
            try:
                descriptor = files.open(
                    self.future / file_name(base_offset, suffix), os.O_RDWR | os.O_CREAT | os.O_TRUNC
                )
                if content:
                    files.write_all(descriptor, content, 0)
            except OSError as error:
                if descriptor >= 0:
                    files.close(descriptor)
                raise TargetFailedError(error, is_in_doubt=False) from error
            try:
                self._sync(descriptor)
            finally:
                files.close(descriptor)
        try:
            for suffix in (TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
                if suffix not in kept:
                    files.unlink(self.future / file_name(base_offset, suffix))
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=False) from error

    def sync(self, base_offset: int) -> None:
        """Syncs the copied part of the active segment, so that little is left to sync while appends wait."""
        target, _ = self._open_target(base_offset)
        self._sync(target)

    def finish(self, end: LogEnd) -> int:
        """Does steps 1 to 3 of a move's end (see the top of this module). Returns the descriptor of the copied active
        segment."""
        self.copy_piece(end.base_offset, end.source, end.copied_bytes, end.size_bytes - end.copied_bytes)
        target, _ = self._open_target(end.base_offset)
        self._put(end.base_offset, [(INDEX_SUFFIX, b""), (TIME_INDEX_SUFFIX, b""), *self._snapshot(end.base_offset)])
        if end.allocated_bytes > end.size_bytes:
            try:
                self._files.truncate(target, end.size_bytes)
                self._files.allocate(target, end.allocated_bytes)
            except OSError as error:
                raise TargetFailedError(error, is_in_doubt=False) from error
            self._sync(target)
        else:
            self._cut_and_sync(target, end.size_bytes)
        try:
            write_leader_epochs(self.future, end.epochs, self._files, sync=True)
            if end.topic_id is not None:
                write_topic_id(self.future, end.topic_id, self._files, sync=True)
            self._files.replace_file(self.future / MOVED_FROM_FILE, os.fsencode(f"{self._current.absolute()}\n"))
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=True) from error
        self._sync_directory(self.future)
        try:
            self._files.replace_file(self._current / MOVED_TO_FILE, os.fsencode(f"{self._path.absolute()}\n"))
        except OSError as error:
            self.stay()
            raise SourceFailedError(error) from error
        try:
            self._files.rename(self.future, self._path)
        except OSError as error:
            self.stay()
            raise TargetFailedError(error, is_in_doubt=False) from error
        try:
            self._sync_directory(self._path.parent)
        except TargetFailedError:
            self.stay()
            with suppress(OSError):
                self._files.rename(self._path, self.future)
            raise
        self._target = None
        return target

    def stay(self) -> None:
        """Keeps the log in its old directory: removes the file `jesenska-moved-to`, because no file may name another
        directory once the log takes appends again."""
        try:
            self._files.unlink(self._current / MOVED_TO_FILE)
            self._files.fsync_directory(self._current)
        except FileNotFoundError:
            return  # the partition was deleted
        except OSError as error:
            raise SourceFailedError(error, is_in_doubt=True) from error

    def settle(self) -> None:
        """Does step 5 of a move's end, after the log has switched to the new directory. The new name of the old
        directory is synced before anything in it is removed: under its old name, and without `jesenska-moved-to`, it
        would be taken for the log."""
        try:
            self._files.fsync_directory(self._current.parent)
        except OSError as error:
            raise SourceFailedError(error, is_in_doubt=True) from error
        with suppress(OSError):
            self._files.unlink(self._path / MOVED_FROM_FILE)

    def close(self) -> None:
        """Closes the file of the copy and frees the buffers."""
        self._close_target()
        self._buffer = self._compared = memoryview(b"")

    def _open_target(self, base_offset: int) -> tuple[int, int]:
        if self._target is not None:
            opened, descriptor, held_bytes = self._target
            if opened == base_offset:
                return descriptor, held_bytes
            self._close_target()
        try:
            descriptor = self._files.open(self.future / file_name(base_offset, LOG_SUFFIX), os.O_RDWR | os.O_CREAT)
            held_bytes = self._files.size(descriptor)
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=False) from error
        self._target = (base_offset, descriptor, held_bytes)
        return descriptor, held_bytes

    def _close_target(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            self._files.close(target[1])

    def _cut_and_sync(self, descriptor: int, size_bytes: int) -> None:
        try:
            if self._files.size(descriptor) > size_bytes:
                self._files.truncate(descriptor, size_bytes)
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=False) from error
        self._sync(descriptor)

    def _sync(self, descriptor: int) -> None:
        try:
            self._files.fsync(descriptor)
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=True) from error

    def _sync_directory(self, path: Path) -> None:
        try:
            self._files.fsync_directory(path)
        except OSError as error:
            raise TargetFailedError(error, is_in_doubt=not isinstance(error, FileNotFoundError)) from error


def _is_segment(name: str) -> bool:
    stem = name.removesuffix(LOG_SUFFIX)
    return stem != name and len(stem) == _DIGITS and stem.isascii() and stem.isdigit()
