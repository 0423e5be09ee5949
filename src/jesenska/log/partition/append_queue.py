"""Queues the appends of a log that have their offsets but must wait for the directory's writer thread. Appends are
written in order and published (made visible to readers) in order. If an append fails, all later appends in the queue
also fail, since there would be a gap in the offsets.

A roll is queued between appends: its files are made before anything is written to them, and the making of files may
also wait for the disk. A barrier is queued after everything that waits. An operation that must follow all earlier
appends (a truncation) begins at the barrier, even if these appends failed. A hold is a barrier after which everything
waits until it is released. It is used while the log's files are replaced, by a move to another directory.

    owner's thread      submit ---------------------------> published (or all failed)
    writer thread               pwrite or make files, unless an earlier item failed"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jesenska.base.errors import KafkaError
from jesenska.log.disk.background import DirectoryWriter
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.segments.producer_state import AbortedTransaction, Undo
from jesenska.log.segments.segment import LogSegment
from jesenska.log.segments.segment_file import OpenFile
from jesenska.log.segments.tail import PublishedBatch


class PendingAppend:
    """One append in the queue, until it is published or has failed."""

    __slots__ = ("aborted", "batches", "changes", "data", "end_offset", "epochs", "finish", "segment", "write_position")

    def __init__(
        self,
        segment: LogSegment,
        write_position: int,
        data: bytes,
        batches: Sequence[PublishedBatch],
        changes: list[Undo],
        finish: Callable[[KafkaError | None], None],
        epochs: Sequence[tuple[int, int]],
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        self.segment = segment
        self.write_position = write_position
        self.data = data
        self.batches = batches
        self.end_offset = batches[-1].last_offset + 1
        #: Leader epochs with their start offsets. They are added to the log's table when the append is published.
        self.epochs = epochs
        #: Aborted transactions. They are added to the segment's transaction index when the append is published.
        self.aborted = aborted
        #: The changes of the producers' states, so that they can be undone if the append fails.
        self.changes = changes
        #: Callbacks for the result. There are several if the producer sent the batch again while it waited.
        self.finish = [finish]


class PendingRoll:
    """A roll in the queue, until the files of the new segment are made. Later appends already have positions in this
    segment."""

    __slots__ = ("_config", "_snapshot", "_snapshot_path", "created", "holders", "opened", "sealed")

    def __init__(
        self, sealed: LogSegment, created: LogSegment, config: LogConfig, snapshot_path: Path, snapshot: bytes
    ) -> None:
        self.sealed = sealed
        self.created = created
        self._config = config
        self._snapshot_path = snapshot_path
        self._snapshot = snapshot
        #: The new segment's file, after it was made.
        self.opened: OpenFile | None = None
        #: The number of queued appends that will need the file.
        self.holders = 0

    def moved(self, directory: Path) -> None:
        """Changes the directory in which the segment's files are to be made, after the log has moved."""
        self.created.moved(directory)
        self._snapshot_path = directory / self._snapshot_path.name

    def make(self, files: FileLayer) -> None:
        """Makes the segment's files, in the writer thread. If a file cannot be made, the files that were made are
        removed."""
        opened = self.created.make_files(self._config)
        try:
            files.replace_file(self._snapshot_path, self._snapshot, sync=False)
        except OSError:
            opened.release()
            for path in (*self.created.paths(), self._snapshot_path):
                with suppress(OSError):
                    files.unlink(path)
            raise
        self.opened = opened


class PendingBarrier:
    """A marked position in the queue. `reached` is called on the owner's thread when everything before the barrier has
    ended, even if it failed."""

    __slots__ = ("reached",)

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached


class PendingHold(PendingBarrier):
    """A barrier that stays in the queue, with everything after it, until `AppendQueue.release` is called."""

    __slots__ = ()


Pending = PendingAppend | PendingRoll | PendingBarrier


class _Generation:
    """A group of queued writes that share one failure: after one write of the group has failed, the later writes do
    nothing."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: OSError | None = None


class AppendQueue:
    """Runs queued items in order. Calls `published` for an append that was written, `rolled` for a segment that was
    made, and `failed` with all items that failed."""

    __slots__ = (
        "_failed",
        "_files",
        "_generation",
        "_hold",
        "_kept_back",
        "_published",
        "_rolled",
        "_rolling",
        "waiting",
        "writer",
    )

    def __init__(
        self,
        writer: DirectoryWriter,
        files: FileLayer,
        published: Callable[[PendingAppend], None],
        rolled: Callable[[PendingRoll], None],
        failed: Callable[[list[Pending], OSError], None],
    ) -> None:
        #: The items that wait. The deque exists only while something waits, because most partitions have nothing
        #: queued most of the time.
        self.waiting: deque[Pending] | tuple[()] = ()
        #: The writer of the log directory. It is replaced when the log moves to another directory.
        self.writer = writer
        self._files = files
        self._published = published
        self._rolled = rolled
        self._failed = failed
        self._generation = _Generation()
        #: The newest queued roll, until its segment is made.
        self._rolling: PendingRoll | None = None
        self._hold: PendingHold | None = None
        #: Work for the writer thread during `release`, collected until all items of the hold are in the queue.
        self._kept_back: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] | None = None

    def submit(self, pending: PendingAppend) -> None:
        """Queues the write of an append after all waiting items."""
        if self._is_deferred(pending):
            return
        files, roll = self._files, self._rolling
        if roll is not None and roll.created is pending.segment:
            roll.holders += 1
            waits_for, opened = roll, None
        else:
            waits_for, opened = None, pending.segment.file.handle()
            opened.acquire()

        def write() -> None:
            target = opened if waits_for is None else waits_for.opened
            assert target is not None, "a segment's file is made before it is written to"
            files.write_all(target.fileno(), pending.data, pending.write_position)

        def release() -> None:
            target = opened if waits_for is None else waits_for.opened
            if target is not None:
                target.release()

        self._do(pending, write, release, lambda: self._published(pending))

    def submit_roll(self, roll: PendingRoll) -> None:
        """Queues a roll (the making of a segment's files) after all waiting items."""
        if self._is_deferred(roll):
            return
        self._rolling = roll

        def made() -> None:
            if self._rolling is roll:
                self._rolling = None
            opened = roll.opened
            assert opened is not None
            for _ in range(roll.holders):
                opened.acquire()
            self._rolled(roll)

        self._do(roll, lambda: roll.make(self._files), lambda: None, made)

    def submit_barrier(self, barrier: PendingBarrier) -> None:
        """Queues a barrier after all waiting items."""
        if not self._is_deferred(barrier):
            self._do(barrier, _nothing, _nothing, barrier.reached)

    @property
    def is_held(self) -> bool:
        return self._hold is not None

    def hold(self, reached: Callable[[], None]) -> None:
        """Makes everything that is submitted after this call wait until `release`. `reached` is called on the owner's
        thread when everything submitted earlier has ended, and immediately if nothing waits. If an earlier item fails,
        the hold ends (see `is_held`)."""
        assert self._hold is None, "it is held once at a time"
        hold = PendingHold(reached)
        if self.waiting:
            self._do(hold, _nothing, _nothing, reached)
            self._hold = hold
        else:
            self._hold = hold
            self.waiting = deque((hold,))
            reached()

    def release(self) -> None:
        """Ends a hold that was reached: all items after it are passed to the writer."""
        # All items must be in the queue before the first can fail, since a failure fails all items after it.
        kept_back: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self._kept_back = kept_back
        for item in self._take_held():
            if isinstance(item, PendingAppend):
                self.submit(item)
            elif isinstance(item, PendingRoll):
                self.submit_roll(item)
            else:
                self.submit_barrier(item)
        self._kept_back = None
        for run, done in kept_back:
            self.writer.writer.submit(run, done)

    def fail_held(self, error: OSError) -> None:
        """Ends a hold that was reached: all items after it fail with `error`."""
        failed = self._take_held()
        if failed:
            self._failed(failed, error)

    def _take_held(self) -> list[Pending]:
        assert self._hold is not None, "it is held"
        assert self.waiting, "the hold waits"
        first, *held = self.waiting
        assert first is self._hold, "the hold is reached"
        self._hold, self.waiting = None, ()
        return held

    def _is_deferred(self, item: Pending) -> bool:
        """Adds an item to the queue, without passing it to the writer, if a hold is in the queue. Returns false if
        there is no hold."""
        if self._hold is None:
            return False
        assert isinstance(self.waiting, deque), "the hold waits"
        self.waiting.append(item)
        return True

    def _do(
        self, item: Pending, work: Callable[[], None], release: Callable[[], None], succeeded: Callable[[], None]
    ) -> None:
        generation = self._generation
        waiting = self.waiting
        if not waiting:
            waiting = self.waiting = deque()
        waiting.append(item)

        def run() -> None:
            if generation.failure is not None:
                raise generation.failure
            try:
                work()
            except OSError as error:
                generation.failure = error
                raise

        def done(outcome: BaseException | None) -> None:
            release()
            if generation is not self._generation:
                return
            if isinstance(outcome, OSError):
                failed = list(waiting)
                self.waiting = ()
                self._generation = _Generation()
                self._rolling = self._hold = None
                self._failed(failed, outcome)
            elif outcome is not None:
                raise outcome
            else:
                assert waiting[0] is item, "queued writes are published in order"
                if item is not self._hold:
                    waiting.popleft()
                    if not waiting:
                        self.waiting = ()
                succeeded()

        if self._kept_back is not None:
            self._kept_back.append((run, done))
        else:
            self.writer.writer.submit(run, done)

    def holding(self, offset: int) -> PendingAppend | None:
        """Returns the queued append that contains an offset; None if no queued append does."""
        for pending in self.waiting:
            if isinstance(pending, PendingAppend) and pending.batches[0].base_offset <= offset < pending.end_offset:
                return pending
        return None


def _nothing() -> None:
    """Does nothing. It is the work of a barrier, which writes nothing."""
