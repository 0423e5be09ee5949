"""A disk that forgets: what was not synced may be lost, whole or in part, when the machine goes down.

What is kept for sure: a file's content as of its last fsync, a directory's names as of its last fsync. Of everything later any part may be there: names
one by one, content up to any byte, with zeros behind it (a file system that grew the file before the data came). Renames and truncations are
names and content like any other.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from jesenska.log.files import FileLayer


class ForgetfulFiles(FileLayer):
    __slots__ = ("_held", "contents", "names_synced")

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
            self._held.append(os.dup(descriptor))
        self.contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def fsync_directory(self, path: Path) -> None:
        self.names_synced[path] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}

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
        """Lets go of what it holds."""
        while self._held:
            os.close(self._held.pop())

    def after_crash(self, live: Path, target: Path, chance: Random) -> None:
        """Builds in `target` what a machine might find of `live` when it comes up again."""
        target.mkdir()
        synced = self.names_synced.get(live, {})
        present = {entry.name: entry for entry in live.iterdir()}
        by_inode = {entry.stat().st_ino: entry for entry in present.values()}
        for name in sorted(synced.keys() | present.keys()):
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
    common = next((index for index, pair in enumerate(zip(durable, current)) if pair[0] != pair[1]), min(len(durable), len(current)))
    kind = chance.randrange(4)
    if kind == 0 or durable == current:
        return durable
    if kind == 1:
        return current
    end = chance.randint(common, len(current))
    return current[:end] if kind == 2 else current[:end] + bytes(len(current) - end)
