"""Removes the end of a log, or all records: a follower does that when its log differs from its leader's.
`replication.follower.fetcher` (`cut_offset`) decides from which offset on.

    owner's thread                               writer thread of the directory
    ------------------------------------------   --------------------------------------------------------
    refuse appends, wait for queued ones
                                                 look up the start of the batch that holds the offset
    hide: segments, log end offset, high
    watermark and leader epochs are the new ones
                                                 remove files, newest first; cut the last one and its indexes;
                                                 read the producers' state from the remaining files
    adopt the producers, accept appends

Readers never see an intermediate state: the last remaining segment is replaced by a shortened copy, and the files are
changed only afterwards. The writer thread changes nothing that the owner reads.

After a crash: files are removed from the newest to the oldest, and the last one is cut at the end, so at any moment
the log is a prefix of the original, without a hole. The follower asks its leader again for the offset at which the
logs differ.

If the files cannot be changed (the disk is full or broken), the log has its new end but accepts no appends. The change
is tried again before the next truncation, and each time that an append is refused; a start recovers the log.

A file that is shared with a branch of the topic is not cut: a copy of the remaining part replaces it (shared_files).

Not implemented: `.deleted` names that wait for `file.delete.delay.ms`. A follower has no consumers that a deletion
could disturb, and readers hold their files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from jesenska.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.background import Background
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.shared_files import copy_open, is_shared, temporary
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.recovery import replay_producers
from jesenska.log.segments.index_file import IndexWrite
from jesenska.log.segments.producer_snapshots import snapshot_offsets
from jesenska.log.segments.producer_state import ProducerState
from jesenska.log.segments.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, LogSegment, file_name
from jesenska.log.segments.segment_file import OpenFile

#: Called with the outcome of a truncation: None if it is done.
Truncated = Callable[[KafkaError | None], None]


class Cleaner(Protocol):
    """Compacts logs, on the owner's thread."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Stops a running compaction of this partition, since segments are about to be removed. Once this has
        returned, the compaction's result cannot replace segments any more."""
        ...


class NoCleaner:
    """A cleaner that never compacts."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Does nothing: no compaction is running."""


NO_CLEANER = NoCleaner()


class Truncation(NamedTuple):
    """A request for a truncation."""

    #: The first offset to remove; None: remove nothing, but try again the file changes of an earlier truncation.
    offset: int | None
    #: True if everything is removed, and the log is restarted at the offset.
    restarts: bool
    now_ms: int
    done: Truncated


class Truncatable(Protocol):
    """The part of a log that a truncation needs."""

    topic_partition: TopicPartition
    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int

    def why_not_truncated(self) -> KafkaError | None:
        """Returns the reason why the log cannot be truncated now (it is closed, or must be recovered); None if it
        can."""
        ...

    def after_queue(self, reached: Callable[[], None]) -> None:
        """Calls `reached` when everything that is queued has ended; at once if nothing is queued."""
        ...

    def segment_index(self, offset: int) -> int:
        """Returns the index of the segment to which an offset belongs."""
        ...

    def unmade_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        """Returns a new segment, without files."""
        ...

    def adopt_copy(self, copy: LogSegment, original: LogSegment) -> None:
        """Makes a shortened copy the log's active segment; OSError if its file cannot be opened."""
        ...

    def hide(
        self, kept: tuple[LogSegment, ...], original: LogSegment | None, last: LogSegment, end_offset: int, now_ms: int
    ) -> FileChanges:
        """Hides the removed records from readers. `last` replaces `original`, or is the log's new first segment.
        Returns the changes of the files."""
        ...

    def forget_epochs_from(self, offset: int) -> None: ...

    def files_are_changed(self, changes: FileChanges) -> None:
        """Takes over the results after the changes from `hide` were made."""
        ...

    def look_for_hindrance(self) -> None:
        """Checks again whether the log may accept appends."""
        ...

    def read_error(self, error: OSError) -> KafkaError: ...

    def storage_error(self, error: OSError) -> KafkaError: ...


class LogIsGoneError(OSError):
    """The partition was deleted during the truncation."""


def shorten_copy(copy: LogSegment, offset: int) -> int:
    """Shortens the copy of a segment to the records before the batch that holds an offset. Returns the new end of the
    log. Runs in the writer thread."""
    copy.keep_entries()
    place = copy.find(offset)
    if place is None:
        copy.shorten(copy.size_bytes, offset)
        return offset
    end = min(offset, place.base_offset)
    copy.shorten(place.position, end)
    return end


class FileChanges:
    """The changes that a truncation makes to the files of a log: the writer thread makes them, and repeats them after
    a failure."""

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
        """`gone` are the segments that are removed as a whole, `segments` the remaining ones: the last of them is a
        shortened copy of `original`, or a new segment if `original` is None. `producers` is an empty state."""
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
        #: The file of the last segment. Until the cut this is the file that is to be cut; afterwards it is the new
        #: file.
        self._opened: OpenFile | None = None
        #: The file that replaced the last segment's file, if that is shared with a branch.
        self._own: OpenFile | None = None
        self._index_writes: list[IndexWrite] = [] if original is None else segments[-1].unwritten(trim=True)

    def begin(self) -> None:
        """Opens the file that is to be cut, on the owner's thread, before `run`. OSError if it cannot be opened."""
        if self._original is not None:
            self._opened = self._segments[-1].file.handle()
            self._opened.acquire()

    def run(self) -> None:
        """Changes the files, in the writer thread; OSError if that fails. Repeating it is harmless."""
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
        self._cut(last, self._opened)
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

    def _cut(self, last: LogSegment, opened: OpenFile) -> None:
        """Cuts the file to the end of its segment."""
        path = last.file.path
        if self._own is not None or not is_shared(self._files, path):
            self._files.truncate((self._own or opened).fileno(), last.size_bytes)
            return
        copied = copy_open(self._files, path, temporary(path), last.size_bytes)
        try:
            with self._lock:
                self._check_there()
                self._files.rename(temporary(path), path)
        except OSError:
            self._files.close(copied)
            raise
        self._own = OpenFile(copied, self._files)

    def done(self) -> None:
        """Ends the changes after a successful `run`, on the owner's thread."""
        if self._original is not None:
            self.end()
            if self._own is not None:
                self._segments[-1].file.close()
                self._segments[-1].file.adopt(self._own)
        elif self._opened is not None:
            self._segments[-1].file.adopt(self._opened)
        for write in self._index_writes:
            write.done()

    def end(self) -> None:
        """Ends the changes after a failed `run`, on the owner's thread."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.release()

    def leave(self) -> None:
        """Stops the changes: the directory gets another name, or is given up. After that no file is made or removed
        under the old name."""
        with self._lock:
            self._is_gone = True

    def _remove(self, path: Path) -> None:
        # Removing a large file takes long, and `leave` must not wait for that.
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


def _tried_again(failure: KafkaError | None) -> None:
    """Ignores the outcome: no caller waits for it, and the next append tries again."""


class Truncations:
    """Runs the truncations of one log, one after the other, and holds the other reasons for which appends are refused
    meanwhile."""

    def __init__(self, log: Truncatable, writer: Background, cleaner: Cleaner) -> None:
        self._log = log
        #: The writer of the log's directory; only a truncation that has not begun may get another one.
        self.writer = writer
        self._cleaner = cleaner
        #: The running truncation, and those that wait.
        self._asked: list[Truncation] = []
        #: The file changes of the running truncation, or of one that has failed.
        self._changes: FileChanges | None = None
        self._holds = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._asked)

    @property
    def has_open_changes(self) -> bool:
        """True if the files do not match the log: the next start must recover it, unless a truncation changes them
        first."""
        return self._changes is not None

    @property
    def hinders(self) -> bool:
        """True if the log accepts no appends."""
        return self._holds > 0 or bool(self._asked) or self._changes is not None

    def refuse(self) -> None:
        """Raises the error for an append during a truncation; returns if appends are allowed. File changes that failed
        are tried again, so that later appends may succeed."""
        if self._asked or self._holds:
            raise NotLeaderOrFollowerError(
                f"The end of {self._log.topic_partition} is being taken back to where its leader's log parts from "
                f"it; try again."
            )
        if self._changes is not None:
            self.ask(Truncation(None, False, 0, _tried_again))
            raise KafkaStorageError(f"The files of {self._log.topic_partition} could not be truncated; mend the disk.")

    def hold(self) -> None:
        """Stops the appends until `release`: something else has to be done first."""
        self._holds += 1
        self._log.look_for_hindrance()

    def release(self) -> None:
        """Ends one `hold`."""
        assert self._holds > 0, "released more often than held"
        self._holds -= 1
        self._log.look_for_hindrance()

    def leave(self) -> None:
        """Stops changes of the files: the directory gets another name."""
        if self._changes is not None:
            self._changes.leave()

    def ask(self, asked: Truncation) -> None:
        """Adds a truncation, after those that are running or waiting."""
        self._asked.append(asked)
        self._log.look_for_hindrance()
        if len(self._asked) == 1:
            self._log.after_queue(self._begin)

    def _begin(self) -> None:
        """Begins the first truncation: everything that was queued before it has ended."""
        log, asked = self._log, self._asked[0]
        offset = asked.offset
        failure = log.why_not_truncated()
        if failure is not None:
            self._end(failure)
        elif self._changes is not None:
            # An earlier truncation could not change the files.
            self._change_files(self._changes, self._begin)
        elif offset is None:
            self._end(None)
        elif asked.restarts or (
            offset < log.log_end_offset and (offset <= log.segments[0].base_offset or offset < log.log_start_offset)
        ):
            self._cleaner.abort(log.topic_partition)
            self._hide((), None, log.unmade_segment(offset, asked.now_ms), offset)
        elif offset >= log.log_end_offset:
            # An epoch that begins at the end may be of a leader that never wrote anything.
            log.forget_epochs_from(log.log_end_offset)
            self._end(None)
        else:
            if offset < log.segments[-1].base_offset:
                self._cleaner.abort(log.topic_partition)
            index = log.segment_index(offset)
            copy = log.segments[index].copy()
            self.writer.submit(partial(shorten_copy, copy, offset), partial(self._shortened, index, copy))

    def _shortened(self, index: int, copy: LogSegment, outcome: int | BaseException) -> None:
        """Continues the truncation when the new last segment and its end are known."""
        log = self._log
        original = log.segments[index]
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            failure = log.why_not_truncated()
            if failure is not None:
                raise failure
            log.adopt_copy(copy, original)
        except (OSError, KafkaError) as error:
            copy.close()
            self._end(log.read_error(error) if isinstance(error, OSError) else error)
            return
        assert isinstance(outcome, int)
        self._hide(log.segments[:index], original, copy, outcome)

    def _hide(
        self, kept: tuple[LogSegment, ...], original: LogSegment | None, last: LogSegment, end_offset: int
    ) -> None:
        changes = self._log.hide(kept, original, last, end_offset, self._asked[0].now_ms)
        self._change_files(changes, partial(self._end, None))

    def _change_files(self, changes: FileChanges, then: Callable[[], None]) -> None:
        """Starts the changes of the files; `then` is called after they succeed."""
        self._changes = changes
        try:
            changes.begin()
        except OSError as error:
            self._end(self._log.storage_error(error))
            return
        self.writer.submit(changes.run, partial(self._changed, changes, then))

    def _changed(self, changes: FileChanges, then: Callable[[], None], outcome: BaseException | None) -> None:
        failure = self._log.why_not_truncated()
        if outcome is None and failure is None:
            self._changes = None
            changes.done()
            self._log.files_are_changed(changes)
            then()
            return
        changes.end()
        if failure is not None:
            self._end(failure)
        elif isinstance(outcome, OSError):
            self._end(self._log.storage_error(outcome))
        elif isinstance(outcome, KafkaError):
            self._end(outcome)
        else:
            assert outcome is not None
            raise outcome

    def _end(self, failure: KafkaError | None) -> None:
        asked = self._asked.pop(0)
        self._log.look_for_hindrance()
        following = bool(self._asked)
        asked.done(failure)
        if following:
            self._log.after_queue(self._begin)
