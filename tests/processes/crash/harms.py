"""What happens to directories between two runs of a program: what is below a path is lost, is put back from an older
copy, or is changed for what another program has there.

A path is relative to the directory of the program, "" is all of it. With a state file go the files that SQLite keeps
beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

LOST, COPIED_BACK, SWAPPED = "lost", "copied back", "swapped"
ACTIONS = (LOST, COPIED_BACK, SWAPPED)
#: Of a query that writes exactly once: its checkpoint, and what is in it.
CHECKPOINT_PATHS = ("", "", "offsets", "commits", "metadata")
#: Of an application of streams with two sub-topologies, the second of which has stores.
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
        """To what is in `directory`; `older` is a copy of it from before, `other` the directory of another program.
        Two that are swapped have each other's afterwards. False where nothing is there to be copied or swapped."""
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
    """Each once."""
    return [Harm(action, path) for path, action in product(dict.fromkeys(paths), ACTIONS)]


def some_harm(chance: Random, paths: tuple[str, ...]) -> Harm:
    return Harm(chance.choice(ACTIONS), chance.choice(paths))


def copy(source: Path, target: Path) -> None:
    """The same at another place, in place of what is there."""
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
    """What is there under that name: a file, a directory, or a database with its log."""
    return [found for found in _names(path) if found.exists()]


def _names(path: Path) -> Iterator[Path]:
    yield path
    if path.suffix == ".state":
        yield from (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
