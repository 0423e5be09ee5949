"""Harm to directories between two runs of a program: the content of a path is lost, is replaced by an older copy, or
is exchanged with that of another program.

A path is relative to the directory of the program. "" is the whole directory. A state file includes the files that
SQLite keeps beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

LOST, COPIED_BACK, SWAPPED = "lost", "copied back", "swapped"
ACTIONS = (LOST, COPIED_BACK, SWAPPED)
#: The checkpoint of a query that writes exactly once, and its parts.
CHECKPOINT_PATHS = ("", "", "offsets", "commits", "metadata")
#: The state directory of an application of streams with two sub-topologies, the second of which has stores, and its
#: parts.
STATE_PATHS = (
    "",
    "",
    "0",
    "1",
    "0/checkpoint",
    "1/checkpoint",
    "1/stores",
    "1/stores/0.state",
    "1/stores/1.state",
    "0/checkpoint/offsets",
    "1/checkpoint/commits",
    "0/checkpoint/metadata",
    "topology",
    "id",
    "changelogs",
)


class Harm(NamedTuple):
    action: str
    path: str

    def __str__(self) -> str:
        return f"{self.path or 'all'} {self.action}"

    def do(self, directory: Path, older: Path, other: Path) -> bool:
        """Harms `directory`. `older` is an earlier copy of it, and `other` is the directory of another program. A swap
        exchanges the contents of both. Returns False where there is nothing to copy or to swap."""
        mine, source = directory / self.path, {LOST: None, COPIED_BACK: older, SWAPPED: other}[self.action]
        if not _files(mine) or (source is not None and not _files(source / self.path)):
            return False
        if self.action == SWAPPED:
            aside = directory.with_name(f"{directory.name}-aside")
            _move(mine, aside)
            _move(other / self.path, mine)
            _move(aside, other / self.path)
            return True
        for path in _files(mine):
            _remove(path)
        if source is not None:
            copy(source / self.path, mine)
        return True


def all_harms(paths: tuple[str, ...]) -> list[Harm]:
    """All harms, each once."""
    return [Harm(action, path) for path, action in product(dict.fromkeys(paths), ACTIONS)]


def some_harm(chance: Random, paths: tuple[str, ...]) -> Harm:
    return Harm(chance.choice(ACTIONS), chance.choice(paths))


def copy(source: Path, target: Path) -> None:
    """Copies to another place, and replaces the content there."""
    for path in _files(target):
        _remove(path)
    for path in _files(source):
        there = target.with_name(target.name + path.name.removeprefix(source.name))
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, there) if path.is_dir() else shutil.copy2(path, there)


def _move(source: Path, target: Path) -> None:
    for path in list(_files(source)):
        path.rename(target.with_name(target.name + path.name.removeprefix(source.name)))


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _files(path: Path) -> list[Path]:
    """The existing files with this name: a file, a directory, or a database with its log."""
    return [found for found in _names(path) if found.exists()]


def _names(path: Path) -> Iterator[Path]:
    yield path
    if path.suffix == ".state":
        yield from (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
