"""Removes the end of a log, or all its records. A follower does that when its log differs from its leader's log.
`replication.follower.fetcher` (`cut_offset`) decides from which offset on the log is removed.

    owner's thread                               writer thread of the directory
    ------------------------------------------   --------------------------------------------------------
    refuse appends, wait for queued appends
                                                 look up the start of the batch that holds the offset
    hide: segments, log end offset, high
    watermark and leader epochs change at once
                                                 remove files, newest first; cut the last segment and its indexes;
                                                 read the producers' state from the remaining files
    adopt the producers, accept appends

Readers never see an intermediate state: the last remaining segment is first replaced in memory by a shortened copy,
and the files are changed afterwards. The writer thread changes nothing that the owner reads.

Files are removed from the newest to the oldest. After that the file of the last remaining segment is cut. So after a
crash the log is a prefix of the original, without a gap. The follower asks its leader again for the offset at which
the logs differ.

If the files cannot be changed (the disk is full or broken), the log has its new end but accepts no appends. The change
is tried again before the next truncation, and each time that an append is refused. A start recovers the log.

A file that is shared with a branch of the topic is not cut: a copy of the remaining part replaces it (shared_files).

Unlike in Kafka, removed files do not get `.deleted` names and do not wait for `file.delete.delay.ms`: readers keep
their files open."""

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

#: A function that is called with None after a successful truncation, or with the error.
Truncated = Callable[[KafkaError | None], None]


class Cleaner(Protocol):
    """The part of the log cleaner that truncations use, on the owner's thread."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Cancels a running compaction of this partition, because segments are about to be removed. After this call
        the compaction's result cannot replace segments any more."""
        ...


class NoCleaner:
    """A cleaner that never compacts a log."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Does nothing, because there are no compactions to cancel."""


NO_CLEANER = NoCleaner()


class Truncation(NamedTuple):
    """A request to truncate a log."""

    #: The first offset to remove. None removes nothing, but tries the file changes of an earlier truncation again.
    offset: int | None
    #: True if all records are removed, and the log continues at `offset`.
    restarts: bool
    now_ms: int
    done: Truncated


class Truncatable(Protocol):
    """The interface of a log that a truncation uses."""

    topic_partition: TopicPartition
    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int

    def why_not_truncated(self) -> KafkaError | None:
        """Returns the reason why the log cannot be truncated now (it is closed, or must be recovered); None if it can
        be truncated."""
        ...

    def after_queue(self, reached: Callable[[], None]) -> None:
        """Calls `reached` when everything that is queued has ended, and immediately if nothing is queued."""
        ...

    def segment_index(self, offset: int) -> int:
        """Returns the index of the segment that contains an offset."""
        ...

    def unmade_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        """Returns a new segment whose files are not made yet."""
        ...

    def adopt_copy(self, copy: LogSegment, original: LogSegment) -> None:
        """Makes a shortened copy the log's active segment. Raises OSError if its file cannot be opened."""
        ...

    def hide(
        self, kept: tuple[LogSegment, ...], original: LogSegment | None, last: LogSegment, end_offset: int, now_ms: int
    ) -> FileChanges:
        """Hides the removed records from readers. `last` replaces the segment `original`; if `original` is None,
        `last` is the log's new first segment. Returns the file changes that must follow."""
        ...

    def forget_epochs_from(self, offset: int) -> None: ...

    def files_are_changed(self, changes: FileChanges) -> None:
        """Updates the log after the file changes from `hide` were made."""
        ...

    def look_for_hindrance(self) -> None:
        """Updates the flag that says if the log accepts appends."""
        ...

    def read_error(self, error: OSError) -> KafkaError: ...

    def storage_error(self, error: OSError) -> KafkaError: ...


class LogIsGoneError(OSError):
    """Raised if the partition was deleted during its truncation."""


def shorten_copy(copy: LogSegment, offset: int) -> int:
    """Removes the batch that contains `offset`, and all later batches, from the copy of a segment. Returns the new log
    end offset. It runs in the writer thread."""
    copy.keep_entries()
    place = copy.find(offset)
    if place is None:
        copy.shorten(copy.size_bytes, offset)
        return offset
    end = min(offset, place.base_offset)
    copy.shorten(place.position, end)
    return end


class FileChanges:
    """The changes of a log's files by a truncation. The writer thread makes them, and repeats them after a failure."""

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
        """`gone` are the segments that are removed completely, `segments` the remaining segments. The last remaining
        segment is a shortened copy of `original`, or a new segment if `original` is None. `producers` is an empty
        state, to be filled from the remaining files."""
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
        #: The last remaining segment's file: before `run` the file that is to be cut, afterwards the shorter file.
        self._opened: OpenFile | None = None
        #: The shorter copy that has replaced the last segment's file, because the old file is shared with a branch of
        #: the topic.
        self._own: OpenFile | None = None
        self._index_writes: list[IndexWrite] = [] if original is None else segments[-1].unwritten(trim=True)

    def begin(self) -> None:
        """Opens the file that is to be cut, on the owner's thread, before `run`. Raises OSError if it cannot be
        opened."""
        if self._original is not None:
            self._opened = self._segments[-1].file.handle()
            self._opened.acquire()

    def run(self) -> None:
        """Changes the files, in the writer thread. Raises OSError if that fails; the call can then be repeated."""
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
        """Cuts the last segment's file to the segment's size. A file that is shared with a branch is replaced by a
        shorter copy instead."""
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
        """Finishes the changes after a successful `run`, on the owner's thread."""
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
        """Releases the opened file after `run` has failed, on the owner's thread."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.release()

    def leave(self) -> None:
        """Stops the changes, because the directory is about to be renamed or closed. After this call no file is made
        or removed under the old name."""
        with self._lock:
            self._is_gone = True

    def _remove(self, path: Path) -> None:
        # The file is only renamed under the lock: removing a large file takes long, and `leave` must not wait for
        # that.
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
    """Ignores the result of file changes that were tried again. The next append checks the state, and tries again if
    necessary."""


class Truncations:
    """Runs the truncations of one log, one after the other. It also counts other reasons (`hold`) for which appends
    are refused."""

    def __init__(self, log: Truncatable, writer: Background, cleaner: Cleaner) -> None:
        self._log = log
        #: The writer of the log's directory. It may be replaced only while no truncation is running.
        self.writer = writer
        self._cleaner = cleaner
        #: The requests for truncations. The first request is being carried out, all others wait.
        self._asked: list[Truncation] = []
        #: The file changes of the running truncation, or of an earlier truncation that has failed.
        self._changes: FileChanges | None = None
        self._holds = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._asked)

    @property
    def has_open_changes(self) -> bool:
        """True if the files do not match the log because a truncation could not change them. The next start must then
        recover the log, except if the changes succeed before."""
        return self._changes is not None

    @property
    def hinders(self) -> bool:
        """True while the log must refuse appends."""
        return self._holds > 0 or bool(self._asked) or self._changes is not None

    def refuse(self) -> None:
        """Raises the error for an append during a truncation. Returns if appends are allowed. File changes that failed
        are tried again, so that later appends may succeed."""
        if self._asked or self._holds:
            raise NotLeaderOrFollowerError(
                f"The end of {self._log.topic_partition} is being removed, because its leader's log differs; try again."
            )
        if self._changes is not None:
            self.ask(Truncation(None, False, 0, _tried_again))
            raise KafkaStorageError(f"The files of {self._log.topic_partition} could not be truncated; mend the disk.")

    def hold(self) -> None:
        """Makes the log refuse appends until `release` is called."""
        self._holds += 1
        self._log.look_for_hindrance()

    def release(self) -> None:
        """Ends one `hold`. The log accepts appends again when every `hold` was ended."""
        assert self._holds > 0, "released more often than held"
        self._holds -= 1
        self._log.look_for_hindrance()

    def leave(self) -> None:
        """Stops changes of the files, because the directory is about to be renamed."""
        if self._changes is not None:
            self._changes.leave()

    def ask(self, asked: Truncation) -> None:
        """Adds a request for a truncation, after the requests that are being carried out or wait."""
        self._asked.append(asked)
        self._log.look_for_hindrance()
        if len(self._asked) == 1:
            self._log.after_queue(self._begin)

    def _begin(self) -> None:
        """Starts the first requested truncation. It is called when all appends that were queued earlier have ended."""
        log, asked = self._log, self._asked[0]
        offset = asked.offset
        failure = log.why_not_truncated()
        if failure is not None:
            self._end(failure)
        elif self._changes is not None:
            # An earlier truncation could not change the files, so that is tried again first.
            self._change_files(self._changes, self._begin)
        elif offset is None:
            self._end(None)
        elif asked.restarts or (
            offset < log.log_end_offset and (offset <= log.segments[0].base_offset or offset < log.log_start_offset)
        ):
            self._cleaner.abort(log.topic_partition)
            self._hide((), None, log.unmade_segment(offset, asked.now_ms), offset)
        elif offset >= log.log_end_offset:
            # A leader epoch that begins at the log's end may be of a leader that never wrote anything.
            log.forget_epochs_from(log.log_end_offset)
            self._end(None)
        else:
            if offset < log.segments[-1].base_offset:
                self._cleaner.abort(log.topic_partition)
            index = log.segment_index(offset)
            copy = log.segments[index].copy()
            self.writer.submit(partial(shorten_copy, copy, offset), partial(self._shortened, index, copy))

    def _shortened(self, index: int, copy: LogSegment, outcome: int | BaseException) -> None:
        """Continues the truncation when the new last segment and the new log end offset are known."""
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
        """Starts the file changes of a truncation. `then` is called after they have succeeded."""
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
