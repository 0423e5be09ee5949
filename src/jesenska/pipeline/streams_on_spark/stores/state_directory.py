"""The directory of an application's state below state.dir: locked while the application runs, and bound to the
application and the topology of the state.

    <state.dir>/<application.id>/topology, id, lock, <n>/checkpoint, <n>/stores

`id` is a number that no other state has, and the application.id in a second line. The number is in all parts of the
state: in Spark's checkpoints (checkpoints.py) and in the state files (state_file.py). So a part of another state is
refused. Without the second line, the state is of an older release, whose parts do not have the number.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jesenska.base.clock import system_random
from jesenska.pipeline.streams.errors import StreamsError


class StateDirectory:
    """The state directory of one application, at `path`, whose last part is its id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def take_hold(self) -> None:
        """Locks the directory until `let_go`. Two runs of an application on one state would spoil it: StreamsError for
        the second one, and if the directory cannot be used."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._held = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            raise StreamsError(
                f"the application {self.path.name} runs already on {self.path}: close it first, or give this one "
                f"another application.id."
            ) from None
        except OSError as error:
            raise StreamsError(
                f"the directory {self.path} cannot be used ({error.strerror}): set state.dir to one that can be "
                f"written."
            ) from error

    def let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def check(self, described: str, sub_topologies: int) -> None:
        """Keeps the topology's description, or compares it: state of another topology would be misread. StreamsError
        if it differs."""
        file = self.path / "topology"
        missing = next((path for path in (file, self.path / "id") if not path.exists()), None)
        if missing is not None:
            if any((self.path / str(number)).exists() for number in range(sub_topologies)):
                raise StreamsError(
                    f"{missing} is missing, which says what the state belongs to: put it back, or remove "
                    f"{self.path}, so that it is restored."
                )
            for path, text in (
                (self.path / "id", f"{system_random().getrandbits(64):016x}\n{self.path.name}"),
                (file, described),
            ):
                new = path.with_suffix(".new")
                new.write_text(text)
                new.rename(path)
            return
        owner = (self.path / "id").read_text().partition("\n")[2]
        if owner not in ("", self.path.name):
            raise StreamsError(
                f"the state in {self.path} is that of the application {owner}: put back the one of {self.path.name}, "
                f"or remove {self.path}, "
                "so that it is restored."
            )
        if file.read_text() != described:
            raise StreamsError(
                f"the topology is not the one that made the state in {self.path}: give the changed one another "
                f"application.id, "
                "or begin anew with kafka-streams-application-reset --state-dir."
            )

    def remove(self) -> bool:
        """Removes the state. Returns True if there was some. StreamsError while the application runs, if the directory
        is not one of an application, and if it cannot be removed."""
        if not self.path.exists():
            return False
        if not (self.path / "lock").exists():
            raise StreamsError(
                f"{self.path} is not the state of an application: name the directory that state.dir says."
            )
        with self._holding():
            try:
                # The files that name the state's owner go last: an interrupted removal can be repeated.
                for path in sorted(self.path.iterdir(), key=lambda path: path.name in ("topology", "id")):
                    if path.name != "lock":
                        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                (self.path / "lock").unlink()
                self.path.rmdir()
            except OSError as error:
                raise StreamsError(
                    f"{error.filename or self.path} cannot be removed ({error.strerror}): remove {self.path} by hand."
                ) from error
        return True

    @contextmanager
    def _holding(self) -> Iterator[None]:
        self.take_hold()
        try:
            yield
        finally:
            self.let_go()
