"""The machine goes down at any file operation of a broker, and its disk has forgotten all data that were not synced.
With `flush.messages=1`, no acknowledged record may be lost, and no record that compaction has removed may return.

A real broker runs under a tracer (disk_trace.c, loaded with LD_PRELOAD) that writes down every operation on its files,
the tree's SQLite journal included, and every answer that it sends (disk_workload.py has its work). From that trace the
disk is built as it may be after a crash (traced_disk.py defines the data that may be lost). A broker starts on it, and
its records are compared with the answers up to the crash (disk_judge.py). In every further round the broker starts on
one of the disks of the round before.

    python -m tests.processes.crash.forgetful_disk --points 10000                 in ten rounds
    python -m tests.processes.crash.forgetful_disk --again DIRECTORY --point 123   one of them once more

Half of the points of a round are spread evenly over all operations, half over those of compactions, branches, moves
and deletions. Each point that lost something is printed in a line with the command that runs it again. The exit code
is 1 then, and the traces are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import pickle
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp

from jesenska.base.identifiers import TopicPartition
from jesenska.testing import BrokerProcess
from tests.processes.crash.disk_judge import Answers, Facts, LogStart, judge
from tests.processes.crash.disk_workload import BOTH, COMPACTED, DIRECTORIES, OLD, PARTITIONS, SETTINGS, Told, Workload
from tests.processes.crash.traced_disk import KILLED, Op, TracedDisk, build_tracer, read_trace

_LIVES = 2
_BATCHES_PER_LIFE = 300
_LOGS = [TopicPartition(name, number) for name, count in PARTITIONS.items() for number in range(count)]
#: Kinds of operations that change the disk after another crash.
_CHANGING = b"WTAECDUXRL"
_RARE_NAMES = (
    b".cleaned",
    b".swap",
    b".deleted",
    b"-delete",
    b"-future",
    b"jesenska-moved-",
    b"cleaner-offset-checkpoint",
)
#: The number of points after which a process reports its progress.
_POINTS_AT_ONCE = 50
#: In memory where there is such a directory, since the built disks need not be durable.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

Say = Callable[[str], None]


@dataclasses.dataclass
class Round:
    """Everything that is needed to check the points of a round."""

    root: Path
    #: The disk when the round began, each file durable.
    before: TracedDisk
    ops: list[Op]
    told: Told
    #: The facts that had been acknowledged before.
    facts: list[object]
    seed: str
    points: int

    def cuts(self) -> list[int]:
        """The numbers of operations after which the machine goes down, one for each point."""
        changing = [index for index, op in enumerate(self.ops) if op.kind in _CHANGING]
        rare = sorted(_rare(self.ops)) or changing
        half = self.points // 2
        return sorted([*_spread(changing, self.points - half), *_spread(rare, half)])


def _spread(indexes: list[int], count: int) -> list[int]:
    return [indexes[number * len(indexes) // count] + 1 for number in range(count)]


def _rare(ops: list[Op]) -> Iterator[int]:
    """The operations of compactions, branches, moves and deletions."""
    files: set[int] = set()
    for index, op in enumerate(ops):
        named = any(name in op.first or name in op.second for name in _RARE_NAMES) if op.kind in b"CDUXRL" else False
        if op.kind in b"CD":
            (files.add if named else files.discard)(op.a)
        if named or op.kind == b"L" or (op.kind in b"WTAE" and op.a in files):
            yield index


def go_through(
    work: Round, numbers: list[int], directory: Path, *, keep: int | None = None
) -> tuple[list[tuple[int, str]], list[object] | None]:
    """Checks the points with these numbers, in order. Returns the failures. With `keep`, leaves the disk after that
    point in `directory`/kept, and returns the facts that had been acknowledged by then."""
    disk: TracedDisk = pickle.loads(pickle.dumps(work.before))
    answers, facts = Answers(work.told.acknowledged), Facts()
    done = list(work.facts)
    for what in done:
        facts.add(what)
    cuts = work.cuts()
    failures: list[tuple[int, str]] = []
    given_up, unused = _given_up(work.ops), set[str]()
    position = 0
    for number in numbers:
        while position < cuts[number]:
            op = work.ops[position]
            disk.play(position, op)
            if op.kind == b"R" and op.second.endswith(b".log.swap"):
                (unused.add if position in given_up else unused.discard)("/".join(op.second.decode().split("/")[-2:]))
            begun: list[LogStart] = []
            if op.kind == b"R" and op.second.endswith(b".log.deleted"):
                begun += _log_starts(disk, unused)
            elif op.kind == b"R" and op.second.endswith(b"/log-start-offset-checkpoint"):
                begun += _announced_starts(disk.content(op.second))
            for what in begun:
                facts.add(what)
                done.append(what)
            for item in answers.answered_by(op):
                facts.add(item.what)
                done.append(item.what)
            position += 1
        target = directory / "crash"
        disk.after_crash(target, Random(f"{work.seed}:{number}"))
        _at_home(target)
        if keep is not None:
            shutil.copytree(target, directory / "kept")
        try:
            asyncio.run(judge(target, facts, work.told, again=number % 4 == 0))
        except Exception:
            failures.append((number, traceback.format_exc()))
        finally:
            shutil.rmtree(target)
    return failures, done if keep is not None else None


def _at_home(root: Path) -> None:
    """Adapts a built disk to its place: the files about moves of replicas must name directories of this disk, not
    those of the broker."""
    for path in root.rglob("jesenska-moved-*"):
        text = path.read_bytes()
        if text.endswith(b"\n") and b"\0" not in text:
            named = Path(os.fsdecode(text[:-1]))
            path.write_bytes(os.fsencode(root.joinpath(*named.parts[-2:]).absolute()) + b"\n")


def _given_up(ops: list[Op]) -> set[int]:
    """The operations at which the result of a compaction is ready that is not used in that life of the broker, because
    retention has deleted segments of it meanwhile."""
    ready: dict[bytes, int] = {}
    found: set[int] = set()
    for index, op in enumerate(ops):
        if op.kind == KILLED:
            found.update(ready.values())
            ready.clear()
        elif op.kind == b"R" and op.second.endswith(b".log.swap"):
            ready[op.second] = index
        elif op.first in ready:
            at = ready.pop(op.first)
            if op.kind != b"R":
                found.add(at)
    return found.union(ready.values())


def _announced_starts(checkpoint: bytes) -> Iterator[LogStart]:
    """The log start offsets that retention is about to set. They are written down before a segment is renamed."""
    for line in checkpoint.decode().splitlines()[2:]:
        topic, number, offset = line.split()
        if topic in (OLD, BOTH):
            yield LogStart(TopicPartition(topic, int(number)), int(offset))


def _log_starts(disk: TracedDisk, unused: set[str]) -> Iterator[LogStart]:
    """The log start offset of each log after retention. A result of compaction that is ready to be used belongs to the
    log, except for those in `unused`."""
    for key in _LOGS:
        for names in disk.names(str(key)):
            there = [name for name in names if name.endswith((".log", ".log.swap")) and f"{key}/{name}" not in unused]
            present = [int(name.partition(".")[0]) for name in there]
            if present:
                yield LogStart(key, min(present))


def _in_a_process(pickled: Path, numbers: list[int]) -> list[tuple[int, str]]:
    logging.disable(logging.WARNING)
    work: Round = pickle.loads(pickled.read_bytes())
    with TemporaryDirectory(dir=_MEMORY) as directory:
        return go_through(work, numbers, Path(directory))[0]


def _run_a_round(
    number: int, root: Path, directory: Path, tracer: Path, facts: list[object], told: Told, seed: int, points: int
) -> Round:
    """Runs a broker under the tracer."""
    trace = directory / "trace"
    _at_home(root)
    before = TracedDisk(root)
    chance = Random(f"{seed}:{number}")
    environment = {"LD_PRELOAD": str(tracer), "JESENSKA_TRACE_ROOT": str(root), "JESENSKA_TRACE_FILE": str(trace)}
    settings = {**SETTINGS, "log.dirs": ",".join(str(root / name) for name in DIRECTORIES)}
    broker = BrokerProcess(root, settings=settings, environment=environment)
    workload = Workload(broker, trace, number, told, chance, _BATCHES_PER_LIFE)
    workload.run(_LIVES)
    assert workload.failures == [], broker.log[-3000:]
    return Round(root, before, read_trace(trace), told, facts, f"{seed}:{number}", points)


def _check_trace(work: Round) -> dict[str, int]:
    """Checks that the trace has everything that happened on the disk, and that all kinds of operations under test
    occurred in it."""
    disk: TracedDisk = pickle.loads(pickle.dumps(work.before))
    answers = Answers(work.told.acknowledged)
    kinds: dict[str, int] = {}
    rolls, compactions = dict.fromkeys(map(str, _LOGS), 0), dict.fromkeys([COMPACTED, "both", "__consumer_offsets"], 0)
    deleted = linked = moved = 0
    for index, op in enumerate(work.ops):
        disk.play(index, op)
        answers.answered_by(op)
        kinds[op.kind.decode()] = kinds.get(op.kind.decode(), 0) + 1
        if op.kind in b"CRL":
            partition = Path((op.second or op.first).decode()).parent.name
            if op.kind == b"C" and op.first.endswith(b".log") and partition in rolls:
                rolls[partition] += 1
            if op.kind == b"R" and op.second.endswith(b".log.swap"):
                compactions[partition.rpartition("-")[0]] = compactions.get(partition.rpartition("-")[0], 0) + 1
        moved += op.kind == b"R" and op.first.endswith(b"-future") and not op.second.endswith(b"-delete")
        deleted += op.kind == b"R" and op.second.endswith(b".log.deleted")
        linked += op.kind == b"L" and op.second.endswith(b".log")
    assert disk.mappings == 0, "files are written through shared mappings, which the tracer does not see"
    assert disk.differences(work.root) == []
    assert answers.left() == 0
    assert sum(rolls.values()) >= 5 + len(rolls) and max(rolls.values()) >= 6, f"too few rolls: {rolls}"
    assert deleted, "retention deleted nothing"
    assert moved >= 3, f"too few replicas were moved: {moved}"
    assert linked, "no branch was made of closed segments"
    assert all(compactions.values()), f"too few compactions: {compactions}"
    return {**kinds, **compactions, "moves": moved}


def go_down(directory: Path, *, points: int, rounds: int, seed: int, workers: int, say: Say) -> list[str]:
    """Runs a broker in a number of rounds, and simulates a crash at a number of points. Returns a line for each point
    that lost something. The first round with such a point is the last."""
    tracer = build_tracer(directory)
    facts: list[object] = []
    told = Told()
    root = directory / "data"
    root.mkdir()
    done, begun = 0, time.monotonic()
    for number in range(rounds):
        place = directory / f"round-{number}"
        place.mkdir()
        work = _run_a_round(number, root, place, tracer, facts, told, seed, -(-points // rounds))
        kinds = _check_trace(work)
        say(
            f"round {number}: {work.points} points at {len(set(work.cuts()))} of {len(work.ops)} records of the "
            f"trace {kinds}"
        )
        pickled = place / "round"
        pickled.write_bytes(pickle.dumps(work))
        failures: list[tuple[int, str]] = []
        shares = [
            list(range(first, min(first + _POINTS_AT_ONCE, work.points)))
            for first in range(0, work.points, _POINTS_AT_ONCE)
        ]
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            jobs = {pool.submit(_in_a_process, pickled, share): share for share in shares}
            for job in as_completed(jobs):
                found = job.result()
                for point, text in found:
                    say(f"{text}{_line(place, point, text)}")
                failures += found
                done += len(jobs[job])
                say(f"{done} of {points} points, {len(failures)} lost something, {time.monotonic() - begun:.0f} s")
        if failures:
            return [_line(place, point, text) for point, text in sorted(failures)]
        if number + 1 < rounds:
            chosen = Random(f"{seed}:{number}:next").randrange(work.points // 2, work.points)
            (place / "next").mkdir()
            _, after = go_through(work, [chosen], place / "next", keep=chosen)
            assert after is not None
            facts = after
            # The acknowledgements of this round belong to another trace. The sent records may still appear.
            told = dataclasses.replace(told, acknowledged=[])
            shutil.rmtree(root)
            (place / "next" / "kept").rename(root)
        shutil.rmtree(place)
    return []


def _line(place: Path, point: int, text: str) -> str:
    reason = text.strip().splitlines()[-1]
    return (
        f"point {point} lost something: {reason}; again: python -m tests.processes.crash.forgetful_disk --again "
        f"{place} --point {point}"
    )


def once_more(place: Path, point: int, directory: Path) -> str | None:
    """Runs one point of an earlier run again. Returns the failure, or None. Leaves the disk before the start of the
    broker in `directory`/kept."""
    work: Round = pickle.loads((place / "round").read_bytes())
    failures, _ = go_through(work, [point], directory, keep=point)
    return failures[0][1] if failures else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Loses what is not synced, at points of a broker's file operations, and looks for what was acknowledged."  # noqa: E501
    )
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, help="default: one for each 1,000 points")
    parser.add_argument("--seed", type=int, default=1948)
    parser.add_argument("--workers", type=int, default=2, help="points that are looked at at a time")
    parser.add_argument("--again", type=Path, metavar="DIRECTORY", help="of a round: runs one of its points once more")
    parser.add_argument("--point", type=int, default=0)
    options = parser.parse_args()
    directory = Path(mkdtemp(prefix="forgetful-disk-"))
    if options.again is not None:
        wrong = once_more(options.again, options.point, directory)
        print(f"{wrong or 'Nothing is lost.'}\nThe disk as it was found is in {directory / 'kept'}.")
        return 1 if wrong else 0
    logging.disable(logging.WARNING)
    rounds = options.rounds or -(-options.points // 1000)
    failed = go_down(
        directory,
        points=options.points,
        rounds=rounds,
        seed=options.seed,
        workers=options.workers,
        say=lambda text: print(text, flush=True),
    )
    print("\n".join(failed) or f"{options.points} points, nothing is lost.")
    if not failed:
        shutil.rmtree(directory)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
