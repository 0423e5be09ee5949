"""Which modules of a room decide, and which tests are to notice when one of them changes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutations.mutation import Mutation, mutations_of

#: Tests of a room whose other tests start processes, or take long and look at something else; and of a room that
#: another's tests look at, too. Of all other rooms the tests are all in the directory that has the room's name.
TESTS: Mapping[str, Sequence[str]] = {
    "broker": [
        "tests/units/broker/test_fetch_sessions.py",
        "tests/units/broker/test_fetch_states.py",
        "tests/processes/broker/test_fetches.py",
    ],
    "coordination": ["tests/units/coordination", "tests/units/groups/test_offsets_topic.py"],
    "log": [
        f"tests/units/log/test_{name}.py"
        for name in (
            "leader_epochs",
            "log_cleaner",
            "move_plan",
            "producer_state",
            "retention_policies",
            "roll_and_retention",
            "transaction_index",
        )
    ],
}


class UnknownRoomError(Exception):
    """There is no such room, or no such module."""


@dataclass(frozen=True)
class Project:
    """A project with its package below `src` and its tests below `tests`. The contract of import-linter whose name
    begins with "Deciders" says which modules decide."""

    root: Path
    package: str = "jesenska"
    tests: Mapping[str, Sequence[str]] = field(default_factory=lambda: TESTS)

    @property
    def source(self) -> Path:
        """The package's directory."""
        return self.root / "src" / self.package

    def rooms(self) -> dict[str, list[str]]:
        """The files of modules that decide, by room; relative to the package."""
        settings = tomllib.loads((self.root / "pyproject.toml").read_text())
        contract = next(
            one for one in settings["tool"]["importlinter"]["contracts"] if one["name"].startswith("Deciders")
        )
        found: dict[str, list[str]] = {}
        for name in contract["source_modules"]:
            path = self.source.joinpath(*name.split(".")[1:])
            files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
            found.setdefault(name.split(".")[1], []).extend(str(file.relative_to(self.source)) for file in files)
        return found

    def mutations_of_room(self, room: str) -> list[Mutation]:
        """All mutations of the modules of a room that decide."""
        rooms = self.rooms()
        if room not in rooms:
            raise UnknownRoomError(f"No module of {room!r} decides: name one of {', '.join(sorted(rooms))}.")
        return [mutation for file in rooms[room] for mutation in self.mutations_of_file(file)]

    def mutations_of_file(self, file: str) -> list[Mutation]:
        """All mutations of a module, whose file is named from the package's directory or from the project's."""
        path = self.source / file if (self.source / file).is_file() else self.root / file
        if not path.is_file() or not path.is_relative_to(self.source):
            raise UnknownRoomError(
                f"There is no module {file!r}: name it from src/{self.package} on, as in "
                f"controller/changes/leadership.py."
            )
        return mutations_of(path.read_text(), str(path.relative_to(self.source)))

    def tests_of(self, room: str) -> Sequence[str]:
        """The tests of a room, as pytest takes them."""
        return self.tests.get(room) or [f"tests/units/{room}"]
