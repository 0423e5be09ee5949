"""Open `.log` files. A segment's file is opened when it is first needed, and stays open while the cache has room.
Fetch responses that are being sent keep a reference to the open file. So they can finish even if the file is closed,
renamed or deleted.

    SegmentFile   the file by name; knows if it is open
    OpenFile      one descriptor with a count of its users (the cache, and each region that is being sent); the last
                  user closes it
    OpenFiles     the open files of sealed segments, least recently used first; the files of active segments are
                  always open and not in it

A crash closes all files; none of this state is on the disk."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from jesenska.base.limits import OPEN_SEGMENTS_MAX
from jesenska.log.disk.files import FileLayer


class OpenFile:
    """An open descriptor of a segment file, with a count of its users. It implements `base.regions.SharedFile`."""

    __slots__ = ("_descriptor", "_files", "_holders")

    def __init__(self, descriptor: int, files: FileLayer) -> None:
        self._descriptor = descriptor
        self._files = files
        self._holders = 1

    def fileno(self) -> int:
        return self._descriptor

    def acquire(self) -> None:
        assert self._holders > 0, "the file is closed"
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        assert self._holders >= 0, "released more often than acquired"
        if self._holders == 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._files.close(descriptor)


class OpenFiles:
    """A cache that keeps up to `limit` files of sealed segments open."""

    __slots__ = ("_files", "_least_recent", "limit")

    def __init__(self, files: FileLayer, limit: int = OPEN_SEGMENTS_MAX) -> None:
        self._files = files
        self.limit = limit
        self._least_recent: OrderedDict[SegmentFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._least_recent)

    def touch(self, file: SegmentFile) -> None:
        """Marks `file` as just used. Closes the least recently used file if there are too many."""
        self._least_recent[file] = None
        self._least_recent.move_to_end(file)
        while len(self._least_recent) > self.limit:
            oldest, _ = self._least_recent.popitem(last=False)
            oldest.close()
            oldest.evicted()

    def forget(self, file: SegmentFile) -> None:
        self._least_recent.pop(file, None)


class SegmentFile:
    """A segment's .log file, which is opened when it is needed."""

    __slots__ = ("_cache", "_files", "_open", "_pinned", "evicted", "path")

    def __init__(
        self, path: Path, files: FileLayer, cache: OpenFiles, evicted: Callable[[], None] = lambda: None
    ) -> None:
        self.path = path
        #: A function that is called when the cache closes the file.
        self.evicted = evicted
        self._files = files
        self._cache = cache
        self._open: OpenFile | None = None
        self._pinned = False

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def handle(self) -> OpenFile:
        """Returns the open file. A caller that uses the open file after its own call has returned must call
        `acquire`."""
        opened = self._open
        if opened is None:
            opened = self._open = OpenFile(self._files.open(self.path, os.O_RDWR), self._files)
        if not self._pinned:
            self._cache.touch(self)
        return opened

    def create(self) -> OpenFile:
        """Makes the file if it does not exist, and opens it."""
        if self._open is None:
            self._open = OpenFile(self._files.open(self.path, os.O_RDWR | os.O_CREAT), self._files)
        return self.handle()

    def adopt(self, opened: OpenFile) -> None:
        """Uses a file that another thread has made and opened, and keeps it open, because the segment takes
        appends."""
        self._open = opened
        self.pin()

    def pin(self) -> None:
        """Keeps the file open, because the segment takes appends."""
        self._pinned = True
        self._cache.forget(self)

    def unpin(self) -> None:
        self._pinned = False
        if self._open is not None:
            self._cache.touch(self)

    def move_to(self, cache: OpenFiles) -> None:
        """Closes the file, and uses another cache from now on. A thread that loads a log has its own cache."""
        self.close()
        self._cache = cache

    def join(self, cache: OpenFiles) -> None:
        """Uses another cache from now on, as `move_to` does, but leaves the file open."""
        self._cache.forget(self)
        self._cache = cache

    def close(self) -> None:
        """Releases the descriptor. It is closed when no response uses it any more."""
        opened, self._open = self._open, None
        self._cache.forget(self)
        if opened is not None:
            opened.release()
