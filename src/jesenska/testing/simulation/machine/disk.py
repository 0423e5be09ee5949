"""A simulated disk that loses data: after a crash of the machine, writes that were not synced may be missing,
completely or in part.

The content of a file and the names in a directory are stored as they were at their last fsync. After a crash, any part
of the later writes may exist. Each name is kept or lost independently. A file's content may end at any byte, perhaps
with zeros after it, as if the file system had extended the file before the data was written. Renames and truncations
are treated in the same way.

`SimulatedFiles` is such a disk for a process of a simulation. The disk can be full, and it raises an error for calls
of a process that has ended."""

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
    """A disk that remembers which contents of files and which names in directories were synced. `PASSED_OVER` contains
    the names of files that are not tracked; after a crash the caller copies them."""

    __slots__ = ("_held", "contents", "names_synced")

    PASSED_OVER: frozenset[str] = frozenset()

    def __init__(self) -> None:
        #: The content at the last fsync, by inode.
        self.contents: dict[int, bytes] = {}
        #: The names and inodes at the last fsync of each directory.
        self.names_synced: dict[Path, dict[str, int]] = {}
        # Open descriptors of tracked files. While a descriptor is open, the file system does not give the file's inode
        # to another file.
        self._held: list[int] = []

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_ino not in self.contents:
            # While the descriptor is open, the inode is not given to another file.
            self._held.append(os.dup(descriptor))
        self.contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def fsync_directory(self, path: Path) -> None:
        with os.scandir(path) as entries:
            self.names_synced[path] = {entry.name: entry.inode() for entry in entries}

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or directory. The synced names of a directory are moved with it."""
        super().rename(source, target)
        below = f"{source}{os.sep}"
        for path in [path for path in self.names_synced if path == source or str(path).startswith(below)]:
            self.names_synced[target / path.relative_to(source)] = self.names_synced.pop(path)

    def came_up_with(self, path: Path) -> None:
        """Marks everything in the directory as synced. It is called when the machine starts."""
        self.fsync_directory(path)
        for entry in path.iterdir():
            if entry.is_dir():
                self.came_up_with(entry)
            else:
                descriptor = os.open(entry, os.O_RDONLY)
                self.fsync(descriptor)
                os.close(descriptor)

    def forget(self) -> None:
        """Closes the descriptors that this object keeps open."""
        while self._held:
            os.close(self._held.pop())

    def after_crash(self, live: Path, target: Path, chance: Random) -> None:
        """Creates the directory `target` with contents in which a machine might find the directory `live` after a
        crash."""
        target.mkdir()
        synced = self.names_synced.get(live, {})
        present = {entry.name: entry for entry in live.iterdir()}
        by_inode = {entry.stat().st_ino: entry for entry in present.values()}
        for name in sorted((synced.keys() | present.keys()) - self.PASSED_OVER):
            survives = [] if name not in synced else [synced[name]]
            if name in present:
                survives.append(present[name].stat().st_ino)
            # If a name was created or removed after the last sync of the directory, it may exist or not.
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
    """Returns the length in bytes of the longest common prefix."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


#: The files of the ZooKeeper server's journal in SQLite.
JOURNAL_FILES = (METADATA_FILE, f"{METADATA_FILE}-wal", f"{METADATA_FILE}-shm", f"{METADATA_FILE}-journal")
#: The fraction of `pread_warm` calls that act as if the data were not in memory.
_COLD_SHARE = 0.02


class SimulatedFiles(ForgetfulFiles):
    """The disk of a simulated process. Its files are in a real directory."""

    __slots__ = ("_chance", "_is_gone", "_open", "_unchanged", "is_full")

    PASSED_OVER = frozenset({LOCK_FILE, *JOURNAL_FILES})

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        #: True if the disk is full: no file can grow.
        self.is_full = False
        self._is_gone = False
        self._open: set[int] = set()
        #: Directories whose names have not changed since their last sync.
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
        # If the process has ended, the descriptor's number may belong to another file by now.
        if descriptor in self._open:
            self._open.remove(descriptor)
            super().close(descriptor)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        """Reads data without waiting for the disk. Sometimes returns None, as if the data were not in memory."""
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
        """Handles the end of the process: closes its open files, and refuses later calls."""
        self._is_gone = True
        while self._open:
            os.close(self._open.pop())
        self.forget()

    def successor(self) -> SimulatedFiles:
        """Returns an object for the same disk, which the next process uses."""
        made = SimulatedFiles(self._chance)
        made.contents, made.names_synced, made.is_full = self.contents, self.names_synced, self.is_full
        made._held, self._held = self._held, []
        return made

    def after_kill(self, live: Path, target: Path) -> SimulatedFiles:
        """Creates in `target` the files for the next process after this process was killed. They contain all writes of
        this process. Writes that were not synced are still not synced."""
        shutil.copytree(live, target)
        numbers = {live.stat().st_ino: target.stat().st_ino}
        for path in sorted(live.rglob("*")):
            numbers[path.stat().st_ino] = (target / path.relative_to(live)).stat().st_ino
        made = SimulatedFiles(self._chance)
        made.is_full = self.is_full
        for number, content in self.contents.items():
            # A file that has no name any more keeps its synced content, under a negative number that no inode has.
            made.contents[numbers.get(number, -number)] = content
        for directory, names in self.names_synced.items():
            if directory == live or live in directory.parents:
                made.names_synced[target / directory.relative_to(live)] = {
                    name: numbers.get(number, -number) for name, number in names.items()
                }
        made._hold(target)
        return made

    def _hold(self, path: Path) -> None:
        """Keeps files with tracked inodes open, so that their inodes are not given to other files."""
        for entry in sorted(path.rglob("*")):
            if entry.stat().st_ino in self.contents:
                self._held.append(os.open(entry, os.O_RDONLY))
