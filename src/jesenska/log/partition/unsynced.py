"""Tracks the parts of a log that are not on the disk yet. It collects the work for a flush (log_flush), and for the
background thread that writes index entries and leader epochs to their files.

A flush up to an offset includes

    segments        all with records between the recovery point and the offset; a sealed segment is cut to its size
    index entries   the entries of these segments that are only in memory
    leader epochs   the table of epochs, if its file is outdated, or was written but not synced
    a snapshot      the producer snapshot at the offset, if there is one
    names           the directory's name and the topic id in it, with the first flush of a new log

Most flushes sync only the file of the active segment. The small files (indexes, snapshots, leader epochs) and the
directory are skipped if they have not changed since their last sync.

If a flush could not complete its work, the next flush repeats it (`give_back`)."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.log.disk import partition_metadata
from jesenska.log.disk.epochs_file import FILE_NAME, EpochsFile
from jesenska.log.partition.log_flush import FileWrite, FlushWork, SegmentWork
from jesenska.log.segments.producer_snapshots import ProducerSnapshots
from jesenska.log.segments.segment import LogSegment


class Unsynced:
    """Tracks the unsynced parts of one log. `is_new` is true if the log's directory was just made, so that its name is
    not synced yet."""

    __slots__ = ("_epochs_file", "_is_new", "_snapshots", "_synced_beside")

    def __init__(self, epochs_file: EpochsFile, snapshots: ProducerSnapshots, *, is_new: bool) -> None:
        self._epochs_file = epochs_file
        self._snapshots = snapshots
        self._is_new = is_new
        #: The base offset of the active segment if all its small files are synced and unchanged since; else -1.
        self._synced_beside = -1
        epochs_file.is_unsynced = is_new

    @property
    def has_names(self) -> bool:
        """True if the leader epoch file, or the name of a new directory, is not synced."""
        return self._epochs_file.is_unsynced or self._is_new

    def names_changed(self) -> None:
        """Records that files were made, renamed, removed or cut. The next flush then syncs all files of its segments,
        and the directory."""
        self._synced_beside = -1

    def collect(
        self, segments: Sequence[LogSegment], ends: Sequence[int], recovery_point: int, offset: int
    ) -> FlushWork:
        """Returns the work that brings everything below `offset` to the disk. `ends` has the end offset of each
        segment; the last is the log end offset. Raises OSError if a segment's file cannot be opened."""
        works: list[SegmentWork] = []
        directory = self._snapshots.directory
        flushed: list[LogSegment] = []
        for segment, end in zip(segments, ends, strict=True):
            if segment.base_offset < offset and end >= recovery_point:
                try:
                    handle = segment.file.handle()
                except OSError:
                    for work in works:
                        work.opened.release()
                    raise
                handle.acquire()
                cut_to = segment.size_bytes if segment.is_sealed else None
                index = segment.offset_index
                works.append(
                    SegmentWork(handle, cut_to, segment.unwritten(), segment.base_offset, index, index.generation)
                )
                flushed.append(segment)
        epochs = self._epochs_file.unwritten(ends[-1])
        active = segments[-1]
        is_same_beside = self._synced_beside == active.base_offset and not (
            self._epochs_file.is_unsynced or epochs is not None or self._is_new
        )
        if is_same_beside and flushed == [active] and not works[0].writes:
            return FlushWork(works, None, [], [], offset)
        paths = [self._snapshots.path(offset), *(path for segment in flushed for path in segment.paths()[1:])]
        directories = [directory]
        self._synced_beside = active.base_offset if active in flushed else -1
        if self._epochs_file.is_unsynced or epochs is not None:
            paths.append(directory / FILE_NAME)
            self._epochs_file.is_unsynced = False
        if self._is_new:
            # The name of the log's directory must survive a crash of the machine as well as its content.
            paths.append(directory / partition_metadata.FILE_NAME)
            directories.append(directory.parent)
            self._is_new = False
        return FlushWork(works, epochs, paths, directories, offset)

    def give_back(self, work: FlushWork) -> None:
        """Records that a flush could not sync the names and files of `work`, so that the next flush syncs them."""
        self._epochs_file.is_unsynced = True
        self.names_changed()
        if len(work.directories) > 1:
            self._is_new = True

    def is_unwritten(self, active: LogSegment, log_end_offset: int) -> bool:
        """Returns true if index entries of the active segment, or leader epochs, are in memory but not in their
        files."""
        return active.has_unwritten or self._epochs_file.is_unwritten(log_end_offset)

    def unwritten(self, active: LogSegment, log_end_offset: int) -> list[FileWrite]:
        """Returns writes, to be run in another thread, of the active segment's index entries and the leader epochs
        that are not in their files yet."""
        writes: list[FileWrite] = [*active.unwritten()]
        if writes:
            self.names_changed()
        if (epochs := self._epochs_file.unwritten(log_end_offset)) is not None:
            writes.append(epochs)
        return writes
