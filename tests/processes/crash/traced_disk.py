"""The possible contents of a machine's disk after it went down at any point of a broker's work, built from a trace of
a real broker's file operations (disk_trace.c).

The model of the disk, on the conservative side of what file systems promise:

- durable for sure: the bytes of a file that were written before an fsync (or fdatasync) of it began, once that has
  ended, and in the same way the names in a directory. An fsync of a file does not make its name durable, and an fsync
  of a directory does not make the content of its files durable.
- everything later may be there or not, operation by operation: a name made or removed, a truncation, a write. A rename
  within a directory takes place as a whole or not at all. A write may be torn at any byte; where it would have made
  the file longer, the missing bytes may be zeros.
- a write does not touch bytes beside it, and durable bytes stay as they were: no damaged sectors.
- a file that has several names (hard links) has one content.

Each crash takes one of several habits for names and for content (nothing, everything, in order up to a point, each by
itself), so that mild states turn up as well as wild ones.
"""

from __future__ import annotations

import os
import struct
import subprocess
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import which
from typing import NamedTuple

_HEAD = struct.Struct("=cQQQII")
_SOURCE = Path(__file__).with_name("disk_trace.c")
#: Written by the test between two lives of the broker.
KILLED = b"K"


class Op(NamedTuple):
    """One record of the trace. disk_trace.c describes its fields."""

    kind: bytes
    a: int
    b: int
    c: int
    first: bytes
    second: bytes


def compiler() -> str | None:
    return which("cc") or which("gcc") or which("clang")


def build_tracer(directory: Path) -> Path:
    """The library with the tracer, which a broker is started with."""
    library = directory / "disk_trace.so"
    cc = compiler()
    assert cc is not None
    done = subprocess.run(
        [cc, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return library


def read_trace(path: Path) -> list[Op]:
    data = path.read_bytes()
    found, position = [], 0
    while position < len(data):
        kind, a, b, c, first, second = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        found.append(
            Op(kind, a, b, c, data[position : position + first], data[position + first : position + first + second])
        )
        position += first + second
    return found


def mark_killed(path: Path) -> None:
    """Writes into the trace that the broker was killed here."""
    with path.open("ab") as trace:
        trace.write(_HEAD.pack(KILLED, 0, 0, 0, 0, 0))


# --- files and directories -------------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """One change of a file: bytes at a position, or another size (data is None)."""

    at: int
    position: int
    data: bytes | None


class File:
    """The durable content of a file, and the later changes in order."""

    __slots__ = ("durable", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.pending: list[_Change] = []

    def sync(self, before: int) -> None:
        count = bisect_left(self.pending, before, key=lambda change: change.at)
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]

    def current(self) -> bytearray:
        content = bytearray(self.durable)
        for change in self.pending:
            _apply(content, change)
        return content

    def after_crash(self, chance: Random) -> bytes | bytearray:
        pending = self.pending
        habit = chance.randrange(4)
        if not pending or habit == 0:
            return self.durable
        content = bytearray(self.durable)
        if habit == 1:
            kept = pending
        elif habit == 2:
            kept = pending[: chance.randint(0, len(pending))]
            if kept and kept[-1].data is not None and chance.random() < 0.5:
                kept = [*kept[:-1], *_torn(kept[-1], len(content), chance)]
        else:
            kept = []
            for change in pending:
                fate = chance.randrange(3)
                if fate == 0:
                    kept.append(change)
                elif fate == 1 and change.data is not None:
                    kept.extend(_torn(change, len(content), chance))
        for change in kept:
            _apply(content, change)
        return content


def _apply(content: bytearray, change: _Change) -> None:
    position, data = change.position, change.data
    end = position if data is None else position + len(data)
    if data is None and end < len(content):
        del content[end:]
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[position:end] = data


def _torn(change: _Change, size: int, chance: Random) -> Iterator[_Change]:
    """A part of a write from its beginning, possibly empty or complete. Sometimes the file is as long as if the write
    were complete."""
    data = change.data or b""
    kept = chance.randint(0, len(data))
    if chance.random() < 0.5:
        kept -= kept % 512
    if change.position + len(data) > size and chance.random() < 0.5:
        yield _Change(change.at, change.position + kept, bytes(len(data) - kept))
    if kept:
        yield _Change(change.at, change.position, data[:kept])


class Directory:
    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.durable: dict[str, Node] = {}
        self.names: dict[str, Node] = {}
        self.pending: list[tuple[int, dict[str, Node | None]]] = []

    def change(self, index: int, names: dict[str, Node | None]) -> None:
        self.pending.append((index, names))
        _rename(self.names, names)

    def sync(self, before: int) -> None:
        while self.pending and self.pending[0][0] < before:
            _rename(self.durable, self.pending.pop(0)[1])


def _rename(names: dict[str, Node], changes: dict[str, Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


Node = File | Directory


class TracedDisk:
    """The tree of files below `root` during the replay of the trace. Its initial content is durable."""

    def __init__(self, root: Path) -> None:
        self._prefix = f"{root}/".encode()
        self.root = Directory()
        self._by_inode: dict[int, Node] = {}
        self._syncing: dict[int, tuple[Node, int]] = {}
        #: The number of shared writable mappings. Writes to them are not in the trace.
        self.mappings = 0
        if root.exists():
            self._by_inode[root.stat().st_ino] = self.root
            self._scan(root, self.root)

    def _scan(self, path: Path, directory: Directory) -> None:
        for entry in path.iterdir():
            node: Node
            if entry.is_dir():
                node = Directory()
                self._scan(entry, node)
            else:
                known = self._by_inode.get(entry.stat().st_ino)
                node = known if known is not None else File(entry.read_bytes())
            self._by_inode[entry.stat().st_ino] = node
            directory.durable[entry.name] = directory.names[entry.name] = node

    def _split(self, path: bytes) -> tuple[Directory, str]:
        assert path.startswith(self._prefix), path
        *above, name = path[len(self._prefix) :].decode().split("/")
        directory = self.root
        for part in above:
            below = directory.names[part]
            assert isinstance(below, Directory)
            directory = below
        return directory, name

    def content(self, path: bytes) -> bytes:
        """The content of a file at this moment."""
        directory, name = self._split(path)
        node = directory.names[name]
        assert isinstance(node, File)
        return bytes(node.current())

    def file(self, inode: int) -> File:
        node = self._by_inode[inode]
        assert isinstance(node, File)
        return node

    def play(self, index: int, op: Op) -> bool:
        """Replays an operation. True if a crash after it may leave another disk."""
        kind = op.kind
        if kind == b"W":
            self.file(op.a).pending.append(_Change(index, op.b, op.first))
        elif kind == b"T":
            self.file(op.a).pending.append(_Change(index, op.b, None))
        elif kind == b"A":
            file = self.file(op.a)
            if op.b + op.c > len(file.current()):
                file.pending.append(_Change(index, op.b + op.c, None))
        elif kind == b"B":
            self._syncing[op.b] = self._by_inode[op.a], index
            return False
        elif kind == b"E":
            node, began = self._syncing.pop(op.b)
            node.sync(began)
        elif kind in b"CD":
            node = File() if kind == b"C" else Directory()
            if op.first == self._prefix[:-1]:
                node = self.root
            else:
                directory, name = self._split(op.first)
                directory.change(index, {name: node})
            self._by_inode[op.a] = node
        elif kind in b"UX":
            directory, name = self._split(op.first)
            directory.change(index, {name: None})
        elif kind in b"RL":
            source, old = self._split(op.first)
            target, new = self._split(op.second)
            assert kind == b"L" or source is target, "a rename between directories is two changes"
            node = source.names[old]
            target.change(index, {old: None, new: node} if kind == b"R" else {new: node})
        else:
            self.mappings += kind == b"M"
            return False
        return True

    # --- what is there -----------------------------------------------------------------------------------------------

    def differences(self, root: Path) -> list[str]:
        """The places where the disk differs from the trace. Empty if the trace is complete."""
        found: list[str] = []

        def compare(path: Path, directory: Directory) -> None:
            there = {entry.name for entry in path.iterdir()}
            found.extend(
                f"{path / name} is only on {'the disk' if name in there else 'the trace'}"
                for name in there ^ directory.names.keys()
            )
            for name in there & directory.names.keys():
                node = directory.names[name]
                if isinstance(node, Directory):
                    compare(path / name, node)
                elif (path / name).read_bytes() != node.current():
                    found.append(f"{path / name} has other content")

        compare(root, self.root)
        return found

    def names(self, name: str) -> list[set[str]]:
        """The names in each directory with this name, at any place below the root at this moment."""
        above = [node for node in self.root.names.values() if isinstance(node, Directory)]
        found = (directory.names.get(name) for directory in (self.root, *above))
        return [set(node.names) for node in found if isinstance(node, Directory)]

    def after_crash(self, target: Path, chance: Random) -> None:
        """Builds in `target` a possible disk of a machine that went down at this moment."""
        habit = chance.randrange(4)
        until = 0
        if habit == 2:
            changes = sorted(index for directory in self._directories(self.root) for index, _ in directory.pending)
            until = chance.choice(changes) if changes else 0
        self._build(self.root, target, habit, until, chance, {})

    def _directories(self, directory: Directory) -> Iterator[Directory]:
        yield directory
        for node in {id(node): node for node in (*directory.durable.values(), *directory.names.values())}.values():
            if isinstance(node, Directory):
                yield from self._directories(node)

    def _build(
        self, directory: Directory, target: Path, habit: int, until: int, chance: Random, built: dict[int, Path]
    ) -> None:
        """Builds a directory. `built` has the place of each file that has a name already."""
        target.mkdir()
        names = dict(directory.durable)
        for index, changes in directory.pending:
            if habit == 1 or (habit == 2 and index <= until) or (habit == 3 and chance.random() < 0.5):
                _rename(names, changes)
        for name, node in names.items():
            path = target / name
            if isinstance(node, Directory):
                self._build(node, path, habit, until, chance, built)
            elif id(node) in built:
                path.hardlink_to(built[id(node)])
            else:
                built[id(node)] = path
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                try:
                    os.write(descriptor, node.after_crash(chance))
                finally:
                    os.close(descriptor)
