"""Taking back the end of a log, or all of it: what a follower does where it has something else than its leader.

    owner's thread                               writer thread of the directory
    ------------------------------------------   --------------------------------------------------------
    refuse appends, wait for what is queued
                                                 look up where the batch begins that holds the offset
    hide: segments, log end offset, high
    watermark and leader epochs are the new ones
                                                 remove files, newest first; cut the last one and its indexes;
                                                 read the producers' state from what is left
    adopt the producers, accept appends

Readers never see what is half done: the last segment that stays is replaced by a shortened copy, and only then are the files touched. Nothing that the owner
reads is changed by the writer thread.

After a crash: files go from the newest to the oldest and are cut last, so the log is at any moment a beginning of what it was, without a hole. The follower
asks its leader again where the two part.

A change of the files that fails (a full disk, a broken one) leaves the log with its new end and closed to appends. The next truncation carries it out first;
so does a start, which recovers the log.

Left out: `.deleted` names that wait for `file.delete.delay.ms`. A follower has no consumers that a deletion could surprise, and readers hold their files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.files import FileLayer
from jesenska.log.index_file import IndexWrite
from jesenska.log.log_config import LogConfig
from jesenska.log.producer_state import ProducerState
from jesenska.log.recovery import replay_producers, snapshot_offsets
from jesenska.log.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, LogSegment, file_name
from jesenska.log.segment_file import OpenFile

#: What became of a truncation: None if it is done.
Truncated = Callable[[KafkaError | None], None]


class Cleaner(Protocol):
    """Whoever compacts logs, on the owner's thread."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Segments of this partition are about to be taken away: a compaction of it that is under way comes to nothing. Its result is not put in
        their place once this has returned."""
        ...


class NoCleaner:
    """Nobody compacts."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Nothing is under way."""


NO_CLEANER = NoCleaner()


class Truncation(NamedTuple):
    """What is asked for."""

    #: The first offset that goes.
    offset: int
    #: Everything goes, and the log begins anew at the offset.
    restarts: bool
    now_ms: int
    done: Truncated


class LogIsGoneError(OSError):
    """The partition was deleted meanwhile."""


def shorten_copy(copy: LogSegment, offset: int) -> int:
    """Shortens the copy of a segment to what lies before the batch that holds an offset; where the log ends then. In the writer thread."""
    copy.keep_entries()
    place = copy.find(offset)
    if place is None:
        copy.shorten(copy.size_bytes, offset)
        return offset
    end = min(offset, place.base_offset)
    copy.shorten(place.position, end)
    return end


class FileChanges:
    """What a truncation does to the files of a log: carried out by the writer thread, as often as it takes."""

    def __init__(
        self,
        files: FileLayer,
        directory: Path,
        gone: tuple[LogSegment, ...],
        segments: tuple[LogSegment, ...],
        original: LogSegment | None,
        log_start_offset: int,
        end_offset: int,
        config: LogConfig,
        producers: ProducerState,
        now_ms: int,
    ) -> None:
        """`gone` are the segments that go as a whole, `segments` those that stay: the last of them is the copy of `original`, or new if that is None.
        `producers` is an empty state."""
        self._files = files
        self._directory = directory
        self._gone = gone
        self._segments = segments
        self._original = original
        self._log_start_offset = log_start_offset
        self._end_offset = end_offset
        self._config = config
        self._now_ms = now_ms
        self._lock = Lock()
        self._is_gone = False
        self.producers = producers
        #: The file of the last segment: the one that is to be cut, while it is needed, or the one that is new, once it is made.
        self._opened: OpenFile | None = None
        self._index_writes: list[IndexWrite] = [] if original is None else segments[-1].unwritten(trim=True)

    def begin(self) -> None:
        """On the owner's thread, before `run`. OSError if a file cannot be opened."""
        if self._original is not None:
            self._opened = self._segments[-1].file.handle()
            self._opened.acquire()

    def run(self) -> None:
        """In the writer thread; OSError if the disk does not take it. What is done already is done again without harm."""
        for segment in reversed(self._gone):
            for path in segment.paths():
                self._remove(path)
        last = self._segments[-1]
        if self._original is None:
            for offset in snapshot_offsets(self._directory, self._files):
                self._remove(self._directory / file_name(offset, SNAPSHOT_SUFFIX))
            with self._lock:
                self._check_there()
                self._opened = last.make_files(self._config)
            return
        self._original.disown_indexes()
        assert self._opened is not None, "it has begun"
        self._files.truncate(self._opened.fileno(), last.size_bytes)
        for write in self._index_writes:
            with self._lock:
                self._check_there()
                write.run(create=True)
        self._check_there()
        replay_producers(
            self.producers,
            self._directory,
            self._files,
            list(self._segments),
            self._log_start_offset,
            self._end_offset,
            self._now_ms,
            copies=True,
        )

    def done(self) -> None:
        """On the owner's thread, when it has run."""
        if self._original is not None:
            self.end()
        elif self._opened is not None:
            self._segments[-1].file.adopt(self._opened)
        for write in self._index_writes:
            write.done()

    def end(self) -> None:
        """On the owner's thread, when it has run in vain."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.release()

    def leave(self) -> None:
        """The directory gets another name, or belongs to nobody: no file is made or removed by its name from here on."""
        with self._lock:
            self._is_gone = True

    def _remove(self, path: Path) -> None:
        # To remove a large file takes a while, and `leave` must not wait for that.
        doomed = path.with_name(path.name + DELETED_SUFFIX)
        with self._lock:
            self._check_there()
            try:
                self._files.rename(path, doomed)
            except FileNotFoundError:
                pass
        self._files.unlink(doomed)

    def _check_there(self) -> None:
        if self._is_gone:
            raise LogIsGoneError("the partition is deleted")
