"""Tries a mutation: a room's tests run on a copy of the project in which it stands.

The copy is a whole project in a directory for temporary files, so that the processes which tests start see the
mutation too, whatever environment they are given, and nothing is written into the working tree. It holds no compiled
module; JESENSKA_PURE=1 says so to everybody. The same copy serves for one mutation after the other: the file gets its
own text back. Each of its versions has another time of change, so that no bytecode of one is taken for another's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path

from tests.mutations.mutation import Mutation
from tests.mutations.rooms import Project

_ROOT = Path(__file__).parents[2]
#: Bytecode is not left out: what is there need not be made again.
_LEFT_OUT = shutil.ignore_patterns(".*", "*.so", "*.pyd", "*.egg-info", "build", "dist", "node_modules")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Outcome(Enum):
    """What became of a mutation."""

    FOUND = "found"
    SURVIVED = "survived"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class Tried:
    """`by`: the test that failed, or what else told the mutation; the reason of one that is named."""

    mutation: Mutation
    outcome: Outcome
    by: str = ""


class TestsFailError(Exception):
    """The tests fail on the project as it is."""


class Copy:
    """A copy of a project below `directory`. One mutation at a time is in it."""

    _times = count(1_000_000_000)

    def __init__(self, project: Project, directory: Path) -> None:
        self._project = project
        self._directory = directory
        self._root = directory / "project"
        shutil.copytree(project.root, self._root, ignore=_LEFT_OUT)
        self._process: subprocess.Popen[str] | None = None

    def passes(self, tests: Sequence[str], times: Path) -> float:
        """The seconds that these tests take on the project as it is; what each takes is written into `times`."""
        begun = time.monotonic()
        code, said = self._run(tests, times, None)
        if code != 0:
            raise TestsFailError(f"Without any mutation {' '.join(tests)} fails; mend that first.\n{said.strip()}")
        return time.monotonic() - begun

    def tried(self, mutation: Mutation, tests: Sequence[str], times: Path, limit_seconds: float) -> Tried:
        """What these tests say to a mutation. One that takes longer than that is found."""
        path = self._root / self._project.source.relative_to(self._project.root) / mutation.file
        source = path.read_text()
        self._write(path, mutation.applied_to(source))
        try:
            code, said = self._run(tests, times, limit_seconds)
        finally:
            self._write(path, source)
        if code is None:
            return Tried(mutation, Outcome.FOUND, f"it takes longer than {limit_seconds:.0f} s")
        if code == 0:
            return Tried(mutation, Outcome.SURVIVED)
        failed = _FAILED.search(said)
        return Tried(mutation, Outcome.FOUND, failed[1] if failed is not None else f"pytest ended with {code}")

    def end(self) -> None:
        """Ends what runs in it, also from another thread."""
        process = self._process
        if process is not None:
            _kill(process)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        at = next(self._times)
        os.utime(path, (at, at))

    def _run(self, tests: Sequence[str], times: Path, limit_seconds: float | None) -> tuple[int | None, str]:
        """Exit code and output; None for one that was ended."""
        temporary = self._directory / "temporary"
        temporary.mkdir()
        options = [
            "-q",
            "-x",
            "--tb=line",
            "-rfE",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutations.plugin",
            f"--times={times}",
            "--hypothesis-seed=0",
        ]
        command = [sys.executable, "-m", "pytest", *options, f"--basetemp={temporary / 'pytest'}", *tests]
        process = self._process = subprocess.Popen(
            command,
            cwd=self._root,
            env=self._environment(temporary),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_seconds)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _kill(process)
            process.wait()
            self._process = None
            if process.stdout is not None:
                process.stdout.close()
            shutil.rmtree(temporary, ignore_errors=True)

    def _environment(self, temporary: Path) -> Mapping[str, str]:
        path = os.pathsep.join([str(self._root / "src"), str(self._root), str(_ROOT)])
        return {
            **os.environ,
            "JESENSKA_PURE": "1",
            "PYTHONPATH": path,
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(temporary),
            "COLUMNS": "1000",
        }


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends it with all that it has started, as far as that has not ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
