"""The command: mutations of rooms, of modules or of single lines, and what the tests say to them."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.equivalents import NAMED, Equivalent, equivalents, that_name_nothing
from tests.mutations.mutation import Mutation
from tests.mutations.rooms import Project, UnknownRoomError
from tests.mutations.trial import Copy, Outcome, TestsFailError, Tried

ROOT = Path(__file__).parents[2]
#: A mutation hangs whose tests take so many times as long as without it, and so many seconds more.
_LIMIT_FACTOR, _LIMIT_MORE_SECONDS = 4.0, 20.0


@dataclass(frozen=True)
class Work:
    """Mutations, and the tests that are to find them."""

    name: str
    mutations: Sequence[Mutation]
    of: int
    tests: Sequence[str]


def work_of_rooms(project: Project, rooms: Sequence[str], seed: int, number: int, tests: Sequence[str]) -> list[Work]:
    """So many mutations of each room, the same for the same seed; 0: all."""
    found = []
    for room in rooms:
        known = project.mutations_of_room(room)
        indices = (
            sorted(random.Random(f"{seed} {room}").sample(range(len(known)), number))
            if 0 < number < len(known)
            else range(len(known))
        )
        found.append(Work(room, [known[index] for index in indices], len(known), tests or project.tests_of(room)))
    return found


def work_of_lines(project: Project, places: Sequence[str], tests: Sequence[str]) -> list[Work]:
    """All mutations of these lines, by room."""
    found: dict[str, list[Mutation]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        if not line.isdecimal():
            raise UnknownRoomError(
                f"{place!r} names no line: write FILE:LINE, as in controller/changes/leadership.py:63."
            )
        mutations = [mutation for mutation in project.mutations_of_file(file) if mutation.line == int(line)]
        if not mutations:
            raise UnknownRoomError(f"Nothing on line {line} of {file} can be changed: --list shows what can.")
        found.setdefault(mutations[0].file.split("/")[0], []).extend(mutations)
    return [Work(room, mutations, len(mutations), tests or project.tests_of(room)) for room, mutations in found.items()]


def try_all(
    project: Project,
    work: Work,
    named: Sequence[Equivalent],
    processes: int,
    limit_seconds: float | None,
    tell: Callable[[str], None],
) -> list[Tried]:
    """What became of each, in the order of the text."""
    directory = Path(tempfile.mkdtemp(prefix="jesenska-mutations-"))
    copies: list[Copy] = []
    tried: dict[Mutation, Tried] = {}
    try:
        reasons = {mutation: entry.reason for entry in named for mutation in work.mutations if entry.names(mutation)}
        tried = {mutation: Tried(mutation, Outcome.NAMED, reason) for mutation, reason in reasons.items()}
        waiting = [mutation for mutation in work.mutations if mutation not in tried]
        tell(
            f"{work.name}: {len(work.mutations)} of {work.of} mutations, {len(tried)} of them named. First the tests "
            f"run without any: {' '.join(work.tests)}"
        )
        if not waiting:
            return [tried[mutation] for mutation in work.mutations]
        processes = min(processes, len(waiting))
        copies += [Copy(project, directory / str(number)) for number in range(processes)]
        times = directory / "times.json"
        seconds = copies[0].passes(work.tests, times)
        if limit_seconds is None:
            limit_seconds = seconds * _LIMIT_FACTOR + _LIMIT_MORE_SECONDS
        minutes = seconds * len(waiting) / processes / 60
        tell(
            f"{work.name}: the tests take {seconds:.0f} s, so all takes {minutes:.1f} min if every mutation "
            f"survives, and less where tests fail early. "
            f"A mutation that hangs is given up after {limit_seconds:.0f} s"
        )
        idle: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            idle.put(copy)

        def one(mutation: Mutation) -> Tried:
            copy = idle.get()
            try:
                return copy.tried(mutation, work.tests, times, limit_seconds)
            finally:
                idle.put(copy)

        begun = time.monotonic()
        with ThreadPoolExecutor(processes) as threads:
            futures = [threads.submit(one, mutation) for mutation in waiting]
            try:
                for number, future in enumerate(as_completed(futures), 1):
                    outcome = future.result()
                    tried[outcome.mutation] = outcome
                    tell(f"{number}/{len(waiting)} after {time.monotonic() - begun:.0f} s: {in_words(outcome)}")
            except BaseException:
                for future in futures:
                    future.cancel()
                for copy in copies:
                    copy.end()
                raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return [tried[mutation] for mutation in work.mutations]


def in_words(tried: Tried) -> str:
    """One line on a mutation: what became of it, where it is, what was changed, and by what it was found."""
    return f"{tried.outcome.value:8} {place_of(tried.mutation)}{f' ({tried.by})' if tried.by else ''}"


def place_of(mutation: Mutation) -> str:
    """Where a mutation is, and what it changes."""
    return f"{mutation.file}:{mutation.line} {mutation.function or '(module)'} [{mutation.text}] {mutation.change}"


def as_json(tried: Tried) -> dict[str, object]:
    """The same for programs."""
    one = tried.mutation
    where = {
        "module": one.file,
        "line_number": one.line,
        "function": one.function,
        "line": one.text,
        "change": one.change,
        "kind": one.kind,
    }
    return {**where, "outcome": tried.outcome.value, "by": tried.by}


def run(project: Project, arguments: Sequence[str], named_in: Path = NAMED) -> int:
    """The command on a project; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description="Changes single places of modules that decide, and has a room's tests look at each. Exit code 1: a "
        "mutation survives.",
        allow_abbrev=False,
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="Whose modules are changed, as in: controller.")
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="FILE:LINE",
        help="All mutations of that line; may be given several times.",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="Which of the room's mutations are tried (default: 1)."
    )
    parser.add_argument(
        "--number", type=int, default=30, metavar="N", help="How many of each room (default: 30; 0: all)."
    )
    parser.add_argument(
        "--tests",
        action="append",
        default=[],
        metavar="PATH",
        help="Tests that are to find them (default: the room's).",
    )
    parser.add_argument(
        "--processes", type=int, choices=(1, 2), default=2, help="How many are tried at a time (default: 2)."
    )
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="A mutation hangs whose tests take longer (default: by the time without any).",
    )
    parser.add_argument("--list", action="store_true", help="Show the mutations and try none.")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="What the outcome is printed as (default: text)."
    )
    options = parser.parse_args(arguments)
    if bool(options.rooms) == bool(options.at):
        parser.error(f"Name rooms or lines (--at), one of the two. Rooms are {', '.join(sorted(project.rooms()))}.")
    try:
        named = equivalents(named_in)
        if options.at:
            all_work = work_of_lines(project, options.at, options.tests)
        else:
            all_work = work_of_rooms(project, options.rooms, options.seed, options.number, options.tests)
        if options.list:
            show([mutation for work in all_work for mutation in work.mutations], options.output)
            return 0
        for entry in stale(project, named):
            _tell(
                f"{named_in.name} names a mutation that is nowhere: take out or mend {entry.module} {entry.function} "
                f"[{entry.line}] {entry.change}"
            )
        tried = [
            one for work in all_work for one in try_all(project, work, named, options.processes, options.limit, _tell)
        ]
    except (UnknownRoomError, ValueError) as error:
        _tell(str(error))
        return 2
    except TestsFailError as error:
        _tell(str(error))
        return 3
    if options.output == "json":
        print(json.dumps({"seed": options.seed, "mutations": [as_json(one) for one in tried]}, indent=2))
    else:
        print("\n".join(in_words(one) for one in tried))
    counts = Counter(one.outcome for one in tried)
    _tell(f"{len(tried)} mutations: " + ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome))
    return 1 if counts[Outcome.SURVIVED] else 0


def show(mutations: Sequence[Mutation], output: str) -> None:
    """Prints mutations that nobody has tried."""
    if output == "json":
        shown = [
            {key: value for key, value in as_json(Tried(one, Outcome.NAMED)).items() if key not in ("outcome", "by")}
            for one in mutations
        ]
        print(json.dumps({"mutations": shown}, indent=2))
    else:
        print("\n".join(f"{place_of(one)} ({one.kind})" for one in mutations))


def stale(project: Project, named: Sequence[Equivalent]) -> list[Equivalent]:
    """Entries that name nothing, since their module is another one by now."""
    modules = {entry.module for entry in named}
    mutations = [
        mutation
        for module in sorted(modules)
        if (project.source / module).is_file()
        for mutation in project.mutations_of_file(module)
    ]
    return that_name_nothing(named, mutations)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupted(number: int, _: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return run(Project(ROOT), sys.argv[1:])
    except KeyboardInterrupt as interrupted:
        _tell(f"Ended by {interrupted}.")
        return 130
    except BrokenPipeError:
        # Whoever read has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
