"""Runs of tests, each a process of pytest with a seed of its own, some at a time, and what came of each test."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.repeat import hold_back, process_tree
from tests.repeat.told import TOLD

ROOT = Path(__file__).parents[2]
_HOOK = Path(__file__).parent / "hook"
_LOOK_S = 0.05
_PROGRESS_S = 30.0
#: So long a run that is to end may take to end what its tests have started.
_END_S = 10.0
_LAST_WORDS = 4000
#: Of processes that are held back, and of those that keep the processors busy beside them.
_NICE = 10


@dataclass(frozen=True)
class HeldBack:
    """How a run is disturbed."""

    longest_s: float = hold_back.LONGEST_S


@dataclass
class Test:
    """What came of one test in all runs."""

    passed: int = 0
    skipped: int = 0
    failed: int = 0
    #: What was said when it failed first, and the seed of that run.
    first: str = ""
    seed: int = 0

    @property
    def times(self) -> int:
        return self.passed + self.failed

    def fails(self, text: str, seed: int) -> None:
        if not self.failed:
            self.first, self.seed = text, seed
        self.failed += 1


@dataclass
class _Run:
    """One process of pytest at work."""

    target: str
    seed: int
    directory: Path
    process: subprocess.Popen[bytes]
    begun_s: float = field(default_factory=time.monotonic)

    def told(self) -> Iterator[dict[str, str]]:
        with suppress(FileNotFoundError):
            # The last line may have been written in part.
            for line in (self.directory / "told").read_text().split("\n")[:-1]:
                yield json.loads(line)

    def last_words(self) -> str:
        return (self.directory / "said").read_text(errors="replace")[-_LAST_WORDS:]

    def end(self) -> None:
        """Ends it with all that its tests have started: they are asked first."""
        started = process_tree.below(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        started |= process_tree.below(self.process.pid)
        self.process.kill()
        self.process.wait()
        process_tree.kill(started)


def _whole_name(test: str, target: str) -> str:
    """A node id with its file: pytest leaves out files that are not the project's."""
    return target.partition("::")[0] + test if test.startswith("::") else test


class Repeater:
    """Runs each target (a file or a test's node id) `times` times, with the seeds that follow `seed`."""

    def __init__(
        self,
        targets: Sequence[str],
        *,
        times: int,
        seed: int,
        at_a_time: int,
        limit_s: float,
        held_back: HeldBack | None,
        directory: Path,
    ) -> None:
        self.tests: dict[str, Test] = {}
        self._waiting = [(target, seed + number) for number in range(times) for target in targets]
        self.count = len(self._waiting)
        self._at_a_time = at_a_time
        self._limit_s = limit_s
        self._held_back = held_back
        self._directory = directory
        self._running: list[_Run] = []
        self._begun = 0
        #: How many processes were held back.
        self.processes = 0

    @property
    def left_out(self) -> int:
        """Runs of which nothing is counted: they are at work, or have not begun."""
        return len(self._waiting) + len(self._running)

    def run(self) -> None:
        shown_s = time.monotonic()
        with self._busy_processors():
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._at_a_time:
                        self._start(*self._waiting.pop(0))
                    self._look()
                    if time.monotonic() - shown_s >= _PROGRESS_S:
                        shown_s = time.monotonic()
                        done = self.count - self.left_out
                        print(
                            f"{done} of {self.count} runs, {sum(bool(test.failed) for test in self.tests.values())} "
                            f"tests have failed",
                            file=sys.stderr,
                        )
                    time.sleep(_LOOK_S)
            finally:
                for run in self._running:
                    run.end()

    def _start(self, target: str, seed: int) -> None:
        self._begun += 1
        directory = self._directory / str(self._begun)
        (directory / "files").mkdir(parents=True)
        plugins = ["-p", "no:cacheprovider", "-p", "tests.repeat.told"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            "pyproject.toml",
            *plugins,
            f"--hypothesis-seed={seed}",
            target,
        ]
        with (directory / "said").open("wb") as said:
            process = subprocess.Popen(
                ["nice", "-n", str(_NICE), *command] if self._held_back else command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=self._environment(directory, seed),
                process_group=0,
            )
        self._running.append(_Run(target, seed, directory, process))

    def _environment(self, directory: Path, seed: int) -> dict[str, str]:
        mine = {
            "TMPDIR": str(directory / "files"),
            # What failed in one run is no example of another.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(directory / "examples"),
            TOLD: str(directory / "told"),
        }
        if self._held_back is not None:
            mine |= {
                hold_back.SEED: str(seed),
                hold_back.LONGEST: str(self._held_back.longest_s),
                hold_back.NOTES: str(directory / "held-back"),
                "PYTHONPATH": os.pathsep.join([str(_HOOK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            }
        return {name: value for name, value in os.environ.items() if not name.startswith(hold_back.SEED)} | mine

    def _look(self) -> None:
        for run in list(self._running):
            code = run.process.poll()
            hangs = code is None and time.monotonic() - run.begun_s > self._limit_s
            if code is None and not hangs:
                continue
            if hangs:
                run.end()
            self._running.remove(run)
            self._count_in(
                run,
                f"it was still at work after {self._limit_s:g} s and was ended"
                if hangs
                else f"pytest ended with {code}",
            )
            shutil.rmtree(run.directory, ignore_errors=True)

    def _count_in(self, run: _Run, end: str) -> None:
        begun = ""
        has_failed = False
        for what in run.told():
            if "begun" in what:
                begun = what["begun"]
                continue
            begun = ""
            test = self.tests.setdefault(_whole_name(what["test"], run.target), Test())
            if what["outcome"] == "failed":
                has_failed = True
                test.fails(what["text"], run.seed)
            elif what["outcome"] == "skipped":
                test.skipped += 1
            else:
                test.passed += 1
        if begun or (run.process.returncode != 0 and not has_failed):
            self.tests.setdefault(_whole_name(begun or run.target, run.target), Test()).fails(
                f"{end}\n{run.last_words()}", run.seed
            )
        with suppress(FileNotFoundError):
            self.processes += len((run.directory / "held-back").read_text().splitlines())

    @contextmanager
    def _busy_processors(self) -> Iterator[None]:
        """Where runs are held back, somebody else is at work beside them, at the same low priority."""
        count = (os.cpu_count() or 1) if self._held_back else 0
        command = ["nice", "-n", str(_NICE), sys.executable, "-m", "tests.repeat.busy"]
        busy = [
            subprocess.Popen([*command, str(number)], cwd=ROOT, stdin=subprocess.PIPE, process_group=0)
            for number in range(count)
        ]
        try:
            yield
        finally:
            for process in busy:
                assert process.stdin is not None
                process.stdin.close()
            for process in busy:
                process.wait()
