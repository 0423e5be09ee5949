"""Passes the tests of a tier: lint, types and pytest in sets, some at a time, so that no processor waits while tests
wait.

    python -m tests.in_sets                  what script/test runs where it is given nothing, and CI
    python -m tests.in_sets quick            lint, types, tests/units and ten seeds of the simulator
    python -m tests.in_sets quick ROOM...    the tests of some rooms below tests/units
    python -m tests.in_sets everything       all tests, tests/hour too

`tests/tiers.py` says which tests of a directory a tier has, `tests/profiles.py` how much each of them does.

A set is a command. What it says is shown whole when it has ended, and where all stand every half a minute; at the end
comes a line for each set with its time and the CPU time of all its processes. The exit code is 1 if one fails. Each
set has directories of its own for temporary files, for pytest's cache and for Hypothesis' examples; the temporary
files of one that fails are kept. Ctrl-C ends every set with the processes that its tests have started.

JESENSKA_SETS says how many run at a time (default: four more than there are processors, as tests wait for each
other's processes). Beside them run as many of those that only compute as there are processors, at a low priority: they
take what the others leave idle.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.compiled_modules import changed_after_it_was_compiled
from tests.profiles import CI, EVERYTHING, PROFILE, QUICK
from tests.tiers import CHANGED, HOUR, ROOT, ROTATION, SHARE, commit

_PYTEST = (sys.executable, "-m", "pytest")
_PROGRESS_SECONDS = 30.0
_LOOK_SECONDS = 0.1
#: So long tests may take to end what they have started.
_END_SECONDS = 20.0
_PERCENT = re.compile(rb"\[ *(\d+)%\]")
_SUMMARY = re.compile(r"=+ (.*(?:passed|failed|error|no tests ran).*) in .*=+")


@dataclass(frozen=True)
class Set:
    """`alone`: nothing runs beside it. `computes`: it waits for nobody, and nobody for it, so that it can run at a low
    priority."""

    name: str
    command: Sequence[str]
    alone: bool = False
    computes: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


#: Tests of processes and with peers by the set in which they run, those that take longest first, so that no processor
#: is idle at the end. A path inside another's is not in that. What is named nowhere, new directories too, is in
#: "others".
PATHS: Mapping[str, Sequence[str]] = {
    "conformance": ["tests/conformance"],
    "mixed": [
        f"tests/conformance/test_{name}.py"
        for name in (
            *(
                "compaction_of_transactions",
                "java_transactions",
                "members_in_transactions",
                "offsets_of_transactions",
                "transaction_table",
            ),
            *(
                "transactional_client",
                "transactions_of_every_client",
                "transactions_on_disk",
                "transactions_with_kafka",
            ),
            *(
                "consumer_and_leaders",
                "kafka_in_our_cluster",
                "kafka_on_our_zookeeper",
                "moves",
                "old_tools_on_the_tree",
            ),
        )
    ],
    "secured": ["tests/conformance/secured"],
    "broker": ["tests/processes/broker", "tests/processes/client"],
    "clients": [
        f"tests/conformance/test_{name}.py"
        for name in (
            "matrix",
            "groups_of_every_client",
            "automatic_topics",
            "dump_log",
            "edges_in_every_format",
            "cluster_tools",
        )
    ],
    "pipeline": ["tests/processes/pipeline", "tests/conformance/pipeline"],
    "demo": ["tests/hour/pipeline"],
    "others": [],
    "log": ["tests/units/log"],
    "cluster": ["tests/processes/cluster", "tests/processes/crash/test_cluster_faults.py"],
    "testing": ["tests/processes/testing"],
    "packaging": ["tests/hour/packaging"],
    "crash": ["tests/processes/crash"],
    "hostile": ["tests/processes/fuzz"],
    "tools": ["tests/processes/cli"],
    "hour": ["tests/hour"],
    "cluster-seeds": ["tests/processes/testing/test_cluster_seeds.py"],
    "simulator": ["tests/processes/testing/test_simulation.py"],
    "transaction-seeds": [
        "tests/processes/testing/test_transaction_seeds.py",
        "tests/processes/testing/test_access_seeds.py",
        "tests/processes/testing/test_move_seeds.py",
    ],
    "seeds": ["tests/processes/testing/test_seeds.py"],
    "streams": ["tests/units/pipeline"],
    "codecs": ["tests/units/wire", "tests/units/records"],
    "units": ["tests/units"],
}
COMPUTE = {"cluster-seeds", "simulator", "transaction-seeds", "seeds", "codecs", "streams", "units"}
_QUICK = ("log", "units", "codecs", "streams", "seeds", "cluster-seeds", "transaction-seeds")
_LOW_PRIORITY = 5
_UNITS = ROOT / "tests" / "units"


def sets(tier: str = CI) -> list[Set]:
    """The sets of a tier in the order in which they begin."""
    lint = (
        "ruff check . && ruff format --check --quiet . && { lint-imports --no-cache >/dev/null || lint-imports "
        "--no-cache; }"
    )
    first = [
        Set("lint", ["bash", "-ec", lint]),
        Set("types", ["mypy", "src", "tests", "bench", "examples"], computes=True),
    ]
    if tier == QUICK:
        return [*first, *(Set(name, _pytest(name)) for name in _QUICK)]
    names = [name for name in PATHS if tier == EVERYTHING or not _is_hours(name)]
    tests = [Set(name, _pytest(name), computes=name in COMPUTE) for name in names]
    if tier == CI:
        tests.insert(
            2,
            Set(
                "rotation",
                [*_PYTEST, "-o", "cache_dir=.pytest_cache/rotation", *_with_hours()],
                environment={SHARE: ROTATION},
            ),
        )
    return [*tests[:4], *first, *tests[4:]]


def sets_of(rooms: Sequence[str]) -> list[Set]:
    """One set for each of some rooms below tests/units. ValueError for a name that is none."""
    known = sorted(path.name for path in _UNITS.iterdir() if path.is_dir() and (path / "__init__.py").exists())
    unknown = [room for room in rooms if room not in known]
    if unknown:
        raise ValueError(f"tests/units has no room {', '.join(unknown)}; it has {', '.join(known)}.")
    return [
        Set(room, [*_PYTEST, "-o", f"cache_dir=.pytest_cache/{room}", f"tests/units/{room}"])
        for room in dict.fromkeys(rooms)
    ]


def _is_hours(name: str) -> bool:
    return bool(PATHS[name]) and all(_is_in(path, HOUR) for path in PATHS[name])


def _with_hours() -> list[str]:
    """The directory of the hour's tests, and files elsewhere that have some."""
    marked = [
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.hour" in path.read_text(encoding="utf-8")
    ]
    return [HOUR, *(name for path in marked if not _is_in(name := path.relative_to(ROOT).as_posix(), HOUR))]


def _pytest(name: str) -> list[str]:
    """The command of one set of tests: its paths but for those of others in them."""
    mine = PATHS[name]
    left_out = [
        path
        for other, paths in PATHS.items()
        if other != name
        for path in paths
        if not any(_is_in(own, path) for own in mine)
    ]
    ignored = [f"--ignore={path}" for path in left_out if not mine or any(_is_in(path, own) for own in mine)]
    return [*_PYTEST, "-o", f"cache_dir=.pytest_cache/{name}", *mine, *ignored]


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


@dataclass
class _Run:
    """A set at work."""

    what: Set
    process: subprocess.Popen[bytes]
    output: BinaryIO
    directory: Path
    begun: float = field(default_factory=time.monotonic)

    def ended(self) -> tuple[int, float] | None:
        """Exit code, and the CPU time of it and of all that it has waited for."""
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, used.ru_utime + used.ru_stime

    def said(self) -> bytes:
        self.output.seek(0)
        return self.output.read()

    def where(self) -> str:
        """Its name and how far it is, if it says that."""
        percent = _PERCENT.findall(self.said())
        return f"{self.what.name} {int(percent[-1])} %" if percent else self.what.name

    def send(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # all of them have ended


class Runner:
    """Runs sets, `at_a_time` of them, and beside these `computing` of those that only compute. Files of theirs lie
    below `directory`."""

    def __init__(self, waiting: Sequence[Set], at_a_time: int, directory: Path, computing: int = 1) -> None:
        self._waiting = list(waiting)
        self._at_a_time = at_a_time
        self._computing = computing
        self._directory = directory
        self._running: list[_Run] = []
        self._ends: list[str] = []
        self._failed: list[str] = []
        self._cpu_seconds = 0.0
        self._begun = time.monotonic()

    def run(self) -> bool:
        """True if all have passed."""
        shown = self._begun
        try:
            while self._waiting or self._running:
                self._start()
                self._look()
                if time.monotonic() - shown >= _PROGRESS_SECONDS:
                    shown = time.monotonic()
                    _say(
                        f"{self._since()}: at work {', '.join(run.where() for run in self._running)}; to come: "
                        f"{self._to_come()}"
                    )
                time.sleep(_LOOK_SECONDS)
        finally:
            self._end_all()
        outcome = f"failed: {', '.join(self._failed)}" if self._failed else "all sets pass"
        _say("\n".join([*self._ends, f"{self._since()}, {self._cpu_seconds:.0f} s of CPU: {outcome}"]))
        return not self._failed

    def _start(self) -> None:
        while (following := self._following()) is not None:
            self._waiting.remove(following)
            self._running.append(self._started(following))

    def _following(self) -> Set | None:
        """The set that begins now, None if none does."""
        running = [run.what for run in self._running]
        if any(what.alone for what in running):
            return None
        first_alone = next((index for index, what in enumerate(self._waiting) if what.alone), len(self._waiting))
        before = self._waiting[:first_alone]
        compute, others = [what for what in before if what.computes], [what for what in before if not what.computes]
        computing = sum(what.computes for what in running)
        if compute and computing < self._computing:
            return compute[0]
        if others:
            return others[0] if len(running) - computing < self._at_a_time else None
        if compute:
            return compute[0] if len(running) < self._at_a_time else None
        return self._waiting[0] if self._waiting and not running else None

    def _started(self, what: Set) -> _Run:
        directory = self._directory / what.name
        directory.mkdir()
        output = (self._directory / f"{what.name}.txt").open("w+b")
        process = subprocess.Popen(
            ["nice", "-n", str(_LOW_PRIORITY), *what.command] if what.computes else what.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**_environment(what.name, directory), **what.environment},
            process_group=0,
        )
        return _Run(what, process, output, directory)

    def _look(self) -> None:
        for run in list(self._running):
            ended = run.ended()
            if ended is None:
                continue
            self._running.remove(run)
            code, cpu_seconds = ended
            self._cpu_seconds += cpu_seconds
            said = run.said().decode(errors="replace")
            run.output.close()
            sys.stdout.write(f"----- {run.what.name}\n{said}")
            sys.stdout.flush()
            counted = _SUMMARY.findall(said)
            outcome = counted[-1] if counted else "passed" if code == 0 else "failed"
            self._ends.append(
                f"{run.what.name}: {outcome}, {time.monotonic() - run.begun:.0f} s, {cpu_seconds:.0f} s of CPU"
            )
            if code == 0:
                shutil.rmtree(run.directory, ignore_errors=True)
            else:
                self._failed.append(run.what.name)
                _say(f"{run.what.name} failed with {code}; its temporary files are in {run.directory}")

    def _end_all(self) -> None:
        """Ends what is still at work: first as Ctrl-C does, so that tests end what they have started elsewhere."""
        for run in self._running:
            run.send(signal.SIGINT)
        deadline = time.monotonic() + _END_SECONDS
        for run in self._running:
            while time.monotonic() < deadline and run.ended() is None:
                time.sleep(_LOOK_SECONDS)
        for run in self._running:
            run.send(signal.SIGKILL)
            if run.process.returncode is None:
                run.process.wait()
            run.output.close()

    def _since(self) -> str:
        return "{:.0f} min {:.0f} s".format(*divmod(time.monotonic() - self._begun, 60))

    def _to_come(self) -> str:
        return ", ".join(what.name for what in self._waiting) or "nothing"


def _environment(name: str, directory: Path) -> Mapping[str, str]:
    """Variables for a set: where its temporary files and Hypothesis' examples are kept."""
    return {**os.environ, "TMPDIR": str(directory), "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis" / name)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupted(number: int, _: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(arguments: Sequence[str]) -> int:
    # Also where a shell has started us with Ctrl-C switched off: the tests' processes would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    tier, *rooms = arguments or [CI]
    try:
        if tier not in (QUICK, CI, EVERYTHING) or (rooms and tier != QUICK):
            raise ValueError(
                f"{' '.join(arguments)} is no tier of the tests: say quick, quick ROOM..., everything, or nothing."
            )
        chosen = sets_of(rooms) if rooms else sets(tier)
    except ValueError as error:
        _say(str(error))
        return 2
    os.environ[PROFILE] = tier
    os.environ[CHANGED] = "\n".join(sorted(commit().changed))
    if tier == QUICK and (source := changed_after_it_was_compiled()) is not None:
        _say(f"{source.relative_to(ROOT)} was changed after it was compiled: everything runs from source.")
        os.environ["JESENSKA_PURE"] = "1"
    processors = os.cpu_count() or 1
    at_a_time = int(os.environ.get("JESENSKA_SETS", "0")) or processors + 4
    directory = Path(tempfile.mkdtemp(prefix="jesenska-tests-"))
    try:
        passed = Runner(chosen, at_a_time, directory, processors).run()
    except KeyboardInterrupt as interrupted:
        _say(f"Ended by {interrupted}.")
        return 130
    if passed:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
