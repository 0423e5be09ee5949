"""A disk that loses unsynced data, in a machine that goes down before a chosen call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jesenska.testing.simulation.machine.disk import ForgetfulFiles


class DiesError(BaseException):
    """The machine went down."""


class HeldFiles(ForgetfulFiles):
    """Keeps the number of a removed file from being used again: otherwise the known facts about names would apply to
    the new file."""

    def unlink(self, path: Path) -> None:
        self._keep(path)
        super().unlink(path)

    def rename(self, source: Path, target: Path) -> None:
        self._keep(target)
        super().rename(source, target)

    def _keep(self, path: Path) -> None:
        if path.is_file():
            self._held.append(os.open(path, os.O_RDONLY))


class DyingFiles(HeldFiles):
    """Goes down before one of the calls that change the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.calls = 0

    def _count(self) -> None:
        self.calls += 1
        if self.left is not None:
            if self.left == 0:
                raise DiesError
            self.left -= 1


def _counted(name: str) -> Callable[..., object]:
    def call(self: DyingFiles, *arguments: object) -> object:
        self._count()
        return getattr(HeldFiles, name)(self, *arguments)

    return call


for _name in ("pwrite", "truncate", "fsync", "fsync_directory", "rename", "unlink", "open", "link", "mkdir", "rmdir"):
    setattr(DyingFiles, _name, _counted(_name))
