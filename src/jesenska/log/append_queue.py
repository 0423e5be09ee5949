"""Appends of one log that were given their offsets but wait for the directory's writer thread: they are written in order, published in order, and one that
fails takes all behind it along, since their offsets would leave a hole.

    owner's thread      submit ---------------------------> published (or all failed)
    writer thread               pwrite, unless one failed before
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from jesenska.base.errors import KafkaError
from jesenska.log.background import DirectoryWriter
from jesenska.log.files import FileLayer
from jesenska.log.producer_state import Undo
from jesenska.log.segment import LogSegment
from jesenska.log.tail import PublishedBatch


class PendingAppend:
    """An append between its phases."""

    __slots__ = ("batches", "changes", "data", "end_offset", "finish", "segment", "write_position")

    def __init__(
        self,
        segment: LogSegment,
        write_position: int,
        data: bytes,
        batches: Sequence[PublishedBatch],
        changes: list[Undo],
        finish: Callable[[KafkaError | None], None],
    ) -> None:
        self.segment = segment
        self.write_position = write_position
        self.data = data
        self.batches = batches
        self.end_offset = batches[-1].last_offset + 1
        #: Takes the producers back to before.
        self.changes = changes
        #: Those who wait for it; more than one if the batch was sent again meanwhile.
        self.finish = [finish]


class _Generation:
    """Shared by the writes that were queued until one of them fails; the others then do not write."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: OSError | None = None


class AppendQueue:
    def __init__(
        self,
        writer: DirectoryWriter,
        files: FileLayer,
        published: Callable[[PendingAppend], None],
        failed: Callable[[list[PendingAppend], OSError], None],
    ) -> None:
        self.waiting: deque[PendingAppend] = deque()
        self._writer = writer
        self._files = files
        self._published = published
        self._failed = failed
        self._generation = _Generation()

    def submit(self, pending: PendingAppend) -> None:
        opened = pending.segment.file.handle()
        opened.acquire()
        generation, files = self._generation, self._files
        self.waiting.append(pending)

        def write() -> None:
            if generation.failure is not None:
                raise generation.failure
            try:
                files.write_all(opened.fileno(), pending.data, pending.write_position)
            except OSError as error:
                generation.failure = error
                raise

        def written(outcome: BaseException | None) -> None:
            opened.release()
            if generation is not self._generation:
                return
            if isinstance(outcome, OSError):
                failed = list(self.waiting)
                self.waiting.clear()
                self._generation = _Generation()
                self._failed(failed, outcome)
            elif outcome is not None:
                raise outcome
            else:
                first = self.waiting.popleft()
                assert first is pending, "queued writes are published in order"
                self._published(pending)

        self._writer.writer.submit(write, written)

    def holding(self, offset: int) -> PendingAppend | None:
        """The append that waits with an offset in it."""
        return next((pending for pending in self.waiting if pending.batches[0].base_offset <= offset < pending.end_offset), None)
