"""A disk that forgets: writes that were not synced may be lost, whole or in part, when the machine goes down.

A file's content and a directory's names are kept as of their last fsync. Of all later writes any part may be there:
names one by one, content up to any byte, with zeros after it (a file system that grew the file before the data came).
Renames and truncations are names and content like any other.

`SimulatedFiles` is such a disk for a process of a simulation: it can be full, and it refuses calls for a process that
is gone.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random

from jesenska.log.directory.directory_lock import FILE_NAME as LOCK_FILE
from jesenska.log.disk.files import FileLayer
from jesenska.metadata.journal import METADATA_FILE


class ForgetfulFiles(FileLayer):
    """A disk that knows the durable part of its files and names. `PASSED_OVER` are names that it does not track: the
    caller of a crash copies them."""

    __slots__ = ("_held", "contents", "names_synced")

    PASSED_OVER: frozenset[str] = frozenset()

    def __init__(self) -> None:
        #: Content by inode as of the last fsync.
        self.contents: dict[int, bytes] = {}
        #: Inodes by name as of the last fsync of a directory.
        self.names_synced: dict[Path, dict[str, int]] = {}
        # Keeps inodes from being given to other files.
        self._held: list[int] = []

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_ino not in self.contents:
            # Its number is not given to another file.
            self._held.append(os.dup(descriptor))
        self.contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def fsync_directory(self, path: Path) -> None:
        with os.scandir(path) as entries:
            self.names_synced[path] = {entry.name: entry.inode() for entry in entries}

    def rename(self, source: Path, target: Path) -> None:
        """Renames; the durable names of a directory go with it."""
        super().rename(source, target)
        below = f"{source}{os.sep}"
        for path in [path for path in self.names_synced if path == source or str(path).startswith(below)]:
            self.names_synced[target / path.relative_to(source)] = self.names_synced.pop(path)

    def came_up_with(self, path: Path) -> None:
        """Everything that is there when the machine starts is durable."""
        self.fsync_directory(path)
        for entry in path.iterdir():
            if entry.is_dir():
                self.came_up_with(entry)
            else:
                descriptor = os.open(entry, os.O_RDONLY)
                self.fsync(descriptor)
                os.close(descriptor)

    def forget(self) -> None:
        """Closes the descriptors that it holds."""
        while self._held:
            os.close(self._held.pop())

    def after_crash(self, live: Path, target: Path, chance: Random) -> None:
        """Builds in `target` the files of `live` that a machine might find after a crash."""
        target.mkdir()
        synced = self.names_synced.get(live, {})
        present = {entry.name: entry for entry in live.iterdir()}
        by_inode = {entry.stat().st_ino: entry for entry in present.values()}
        for name in sorted((synced.keys() | present.keys()) - self.PASSED_OVER):
            survives = [] if name not in synced else [synced[name]]
            if name in present:
                survives.append(present[name].stat().st_ino)
            # Never synced, or removed since: it may be there or not.
            if name not in synced or name not in present:
                survives.append(0)
            inode = chance.choice(survives)
            if inode == 0:
                continue
            entry = by_inode.get(inode)
            if entry is not None and entry.is_dir():
                self.after_crash(entry, target / name, chance)
                continue
            durable = self.contents.get(inode, b"")
            current = entry.read_bytes() if entry is not None else durable
            (target / name).write_bytes(_mixture(durable, current, chance))


def _mixture(durable: bytes, current: bytes, chance: Random) -> bytes:
    common = _common_bytes(durable, current)
    kind = chance.randrange(4)
    if kind == 0 or durable == current:
        return durable
    if kind == 1:
        return current
    end = chance.randint(common, len(current))
    return current[:end] if kind == 2 else current[:end] + bytes(len(current) - end)


def _common_bytes(one: bytes, other: bytes) -> int:
    """Returns the length of the common prefix."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


#: The files of the tree's journal in SQLite.
JOURNAL_FILES = (METADATA_FILE, f"{METADATA_FILE}-wal", f"{METADATA_FILE}-shm", f"{METADATA_FILE}-journal")
#: The share of reads without waiting that would have to wait for the disk.
_COLD_SHARE = 0.02


class SimulatedFiles(ForgetfulFiles):
    """The disk of a simulated process, in a directory of the real one."""

    __slots__ = ("_chance", "_is_gone", "_open", "_unchanged", "is_full")

    PASSED_OVER = frozenset({LOCK_FILE, *JOURNAL_FILES})

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        #: No file grows.
        self.is_full = False
        self._is_gone = False
        self._open: set[int] = set()
        #: Directories that have the names of their last sync.
        self._unchanged: set[Path] = set()

    def _require(self) -> None:
        if self._is_gone:
            raise OSError(errno.EIO, "the process is gone")

    def _require_room(self) -> None:
        self._require()
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT and not path.exists():
            self._require_room()
            self._unchanged.discard(path.parent)
        self._require()
        descriptor = super().open(path, flags)
        self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        # The number may be another file's by now, where the process is gone.
        if descriptor in self._open:
            self._open.remove(descriptor)
            super().close(descriptor)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        """Reads data. Sometimes returns None, as if the data were not in memory."""
        return None if self._chance.random() < _COLD_SHARE else self.pread(descriptor, size_bytes, position)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._require_room()
        return super().pwrite(descriptor, data, position)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self._require_room()
        super().allocate(descriptor, size_bytes)

    def fsync(self, descriptor: int) -> None:
        self._require()
        super().fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        self._require()
        if path not in self._unchanged:
            super().fsync_directory(path)
            self._unchanged.add(path)

    def rename(self, source: Path, target: Path) -> None:
        self._require()
        self._unchanged -= {source, source.parent, target, target.parent}
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._require_room()
        self._unchanged.discard(target.parent)
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._require()
        self._unchanged.discard(path.parent)
        super().unlink(path)

    def rmdir(self, path: Path) -> None:
        self._require()
        self._unchanged -= {path, path.parent}
        super().rmdir(path)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._require()
        super().truncate(descriptor, size_bytes)

    def mkdir(self, path: Path) -> None:
        if path.is_dir():
            self._require()
        else:
            self._require_room()
            self._unchanged.difference_update(path.parents)
        super().mkdir(path)

    def leave(self) -> None:
        """The process is gone, and its descriptors with it."""
        self._is_gone = True
        while self._open:
            os.close(self._open.pop())
        self.forget()

    def successor(self) -> SimulatedFiles:
        """Returns the same disk for the next process."""
        made = SimulatedFiles(self._chance)
        made.contents, made.names_synced, made.is_full = self.contents, self.names_synced, self.is_full
        made._held, self._held = self._held, []
        return made

    def after_kill(self, live: Path, target: Path) -> SimulatedFiles:
        """Builds in `target` the files for the next process after this one was killed: all its writes. Writes that
        were not synced are no more durable than before."""
        shutil.copytree(live, target)
        numbers = {live.stat().st_ino: target.stat().st_ino}
        for path in sorted(live.rglob("*")):
            numbers[path.stat().st_ino] = (target / path.relative_to(live)).stat().st_ino
        made = SimulatedFiles(self._chance)
        made.is_full = self.is_full
        for number, content in self.contents.items():
            # A file without a name keeps its synced content, under a unique number.
            made.contents[numbers.get(number, -number)] = content
        for directory, names in self.names_synced.items():
            if directory == live or live in directory.parents:
                made.names_synced[target / directory.relative_to(live)] = {
                    name: numbers.get(number, -number) for name, number in names.items()
                }
        made._hold(target)
        return made

    def _hold(self, path: Path) -> None:
        """Keeps the numbers of known files from being given to other files."""
        for entry in sorted(path.rglob("*")):
            if entry.stat().st_ino in self.contents:
                self._held.append(os.open(entry, os.O_RDONLY))
