"""The directory of an application's state below state.dir. It is locked while the application runs, and belongs to one
application and one topology:

    <state.dir>/<application.id>/topology, id, lock, <n>/checkpoint, <n>/stores

The file `id` contains a random number that identifies the state, and the application.id in a second line. All parts of
the state contain the number: Spark's checkpoints (checkpoints.py) and the state files (state_file.py). So a part of
another state is refused. If the second line is missing, an older release has made the state, and its parts do not
contain the number.
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
    """The state directory of one application. The last part of `path` is the application's id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def take_hold(self) -> None:
        """Locks the directory until `let_go`. Two runs of an application on one state would damage it, so the second
        run gets a StreamsError. Also raises StreamsError if the directory cannot be used."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._held = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            raise StreamsError(
                f"another run of the application {self.path.name} uses the state in {self.path}: close that run "
                "first, or give this application another application.id."
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
        """Stores the description of the topology in the directory, or compares it with the description that is stored
        there. State of another topology would be read wrongly, so StreamsError is raised if the descriptions
        differ."""
        file = self.path / "topology"
        missing = next((path for path in (file, self.path / "id") if not path.exists()), None)
        if missing is not None:
            if any((self.path / str(number)).exists() for number in range(sub_topologies)):
                raise StreamsError(
                    f"the file {missing}, which says to what the state belongs, is missing: put the file back, or "
                    f"remove {self.path}, so that the state is restored."
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
                f"the state in {self.path} belongs to the application {owner}: put back the state of "
                f"{self.path.name}, or remove {self.path}, so that the state is restored."
            )
        if file.read_text() != described:
            raise StreamsError(
                f"the state in {self.path} was made by another topology: give the changed topology another "
                "application.id, or start again with kafka-streams-application-reset --state-dir."
            )

    def remove(self) -> bool:
        """Removes the state directory. Returns True if the directory existed. Raises StreamsError while the
        application runs, if the directory is not that of an application, or if it cannot be removed."""
        if not self.path.exists():
            return False
        if not (self.path / "lock").exists():
            raise StreamsError(
                f"{self.path} is not the state of an application: name the application's directory below state.dir."
            )
        with self._holding():
            try:
                # The files that identify the state are removed last, so that an interrupted removal can be repeated.
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
