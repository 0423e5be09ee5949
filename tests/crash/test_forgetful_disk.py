"""The machine goes down at any file operation of a broker, and its disk has forgotten what was not synced: with
`flush.messages=1` nothing that was acknowledged may be lost.

A real broker runs under a tracer (disk_trace.c, loaded with LD_PRELOAD) that writes down every operation on its files,
the tree's SQLite journal included, and every answer that it sends. From that trace the disk is built as it may be
after a crash (traced_disk.py says what may be lost), a broker starts on it, and is compared with what had been
answered (disk_judge.py). In every further round the broker starts on one of the disks of the round before.

JESENSKA_DISK_CRASHES says how many crashes, JESENSKA_DISK_ROUNDS in how many rounds; crashes are spread evenly over
the operations. JESENSKA_SEED is the seed. A failure names the directory that holds the trace and the crash; it alone
runs again with JESENSKA_DISK_AGAIN=<directory> JESENSKA_DISK_CRASH=<number>.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pickle
import shutil
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.testing import BrokerProcess
from tests.crash.disk_judge import Answers, Facts, LogStart, judge
from tests.crash.disk_workload import KEPT, OLD, SETTINGS, TRIMMED, Told, Workload
from tests.crash.traced_disk import Op, TracedDisk, build_tracer, compiler, read_trace

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(10_800),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tracer is written for Linux"),
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the tracer with"),
]

CRASHES = int(os.environ.get("JESENSKA_DISK_CRASHES", "120"))
ROUNDS = int(os.environ.get("JESENSKA_DISK_ROUNDS", "1"))
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
WORKERS = int(os.environ.get("JESENSKA_DISK_WORKERS", "2"))
_LIVES = 2
_BATCHES_PER_LIFE = 200
_LOGS = [TopicPartition(KEPT, 0), TopicPartition(KEPT, 1), TopicPartition(OLD, 0), TopicPartition(TRIMMED, 0)]


@dataclasses.dataclass
class Round:
    """All that is needed to go through the crashes of a round."""

    root: Path
    #: The disk when the round began, each file durable; None if there was nothing.
    before: TracedDisk
    ops: list[Op]
    told: Told
    #: What had been acknowledged before.
    facts: list[object]
    seed: str
    crashes: int

    def cuts(self) -> list[int]:
        """After how many operations each crash comes: evenly over those that change something."""
        changing = [index for index, op in enumerate(self.ops) if op.kind in b"WTAECDUXRL"]
        return [changing[number * len(changing) // self.crashes] + 1 for number in range(self.crashes)]


def _go_through(work: Round, numbers: list[int], directory: Path, *, keep: int | None = None) -> tuple[list[tuple[int, str]], list[object] | None]:
    """Crashes of these numbers, in order; what failed. With `keep` the disk after that crash is left in
    `directory`/kept, and what had been acknowledged by then is given."""
    disk: TracedDisk = pickle.loads(pickle.dumps(work.before))
    answers, facts = Answers(work.told.acknowledged), Facts()
    done = list(work.facts)
    for what in done:
        facts.add(what)
    cuts = work.cuts()
    failures: list[tuple[int, str]] = []
    position = 0
    for number in numbers:
        while position < cuts[number]:
            op = work.ops[position]
            disk.play(position, op)
            if op.kind == b"R" and op.second.endswith(b".log.deleted"):
                for what in _log_starts(disk):
                    facts.add(what)
                    done.append(what)
            for item in answers.answered_by(op):
                facts.add(item.what)
                done.append(item.what)
            position += 1
        target = directory / "crash"
        disk.after_crash(target, Random(f"{work.seed}:{number}"))
        if keep is not None:
            shutil.copytree(target, directory / "kept")
        try:
            asyncio.run(judge(target, facts, work.told, again=number % 4 == 0))
        except Exception:
            failures.append((number, traceback.format_exc()))
            if len(failures) >= 5:
                break
        finally:
            shutil.rmtree(target)
    return failures, done if keep is not None else None


def _log_starts(disk: TracedDisk) -> Iterator[LogStart]:
    for key in _LOGS:
        present = [int(name.removesuffix(".log")) for name in disk.names(str(key)) if name.endswith(".log")]
        if present:
            yield LogStart(key, min(present))


def _in_a_process(pickled: Path, numbers: list[int]) -> list[tuple[int, str]]:
    logging.disable(logging.WARNING)
    work: Round = pickle.loads(pickled.read_bytes())
    # In memory where there is such a place: these disks need not survive anything.
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        return _go_through(work, numbers, Path(directory))[0]


def _run_a_round(number: int, root: Path, directory: Path, tracer: Path, facts: list[object], told: Told) -> Round:
    """Lets a broker work under the tracer."""
    trace = directory / "trace"
    before = TracedDisk(root)
    chance = Random(f"{SEED}:{number}")
    environment = {"LD_PRELOAD": str(tracer), "JESENSKA_TRACE_ROOT": str(root), "JESENSKA_TRACE_FILE": str(trace)}
    broker = BrokerProcess(root, settings=SETTINGS, environment=environment)
    workload = Workload(broker, trace, number, told, chance, _BATCHES_PER_LIFE)
    workload.run(_LIVES)
    assert workload.failures == [], broker.log[-3000:]
    ops = read_trace(trace)
    return Round(root, before, ops, told, facts, f"{SEED}:{number}", -(-CRASHES // ROUNDS))


def _check_trace(work: Round) -> dict[str, int]:
    """The trace tells all that happened on the disk, and everything that this test is about was in it."""
    disk: TracedDisk = pickle.loads(pickle.dumps(work.before))
    answers = Answers(work.told.acknowledged)
    kinds: dict[str, int] = {}
    rolls = dict.fromkeys(_LOGS, 0)
    deleted = 0
    for index, op in enumerate(work.ops):
        disk.play(index, op)
        answers.answered_by(op)
        kinds[op.kind.decode()] = kinds.get(op.kind.decode(), 0) + 1
        name = op.first.decode(errors="replace") if op.kind == b"C" else ""
        for key in _LOGS:
            rolls[key] += f"/{key}/" in name and name.endswith(".log")
        deleted += op.kind == b"R" and op.second.endswith(b".log.deleted")
    assert disk.mappings == 0, "files are written through shared mappings, which the tracer does not see"
    assert disk.differences(work.root) == []
    assert answers.left() == 0
    assert sum(rolls.values()) >= 5 + len(rolls) and max(rolls.values()) >= 6, f"too few rolls: {rolls}"
    assert deleted, "retention deleted nothing"
    return kinds


def test_nothing_acknowledged_is_lost_by_a_disk_that_forgets_what_was_not_synced(tmp_path: Path) -> None:
    print(f"JESENSKA_SEED={SEED}")
    tracer = build_tracer(tmp_path)
    facts: list[object] = []
    told = Told()
    root = tmp_path / "data"
    for number in range(ROUNDS):
        directory = tmp_path / f"round-{number}"
        directory.mkdir()
        work = _run_a_round(number, root, directory, tracer, facts, told)
        kinds = _check_trace(work)
        pickled = directory / "round"
        pickled.write_bytes(pickle.dumps(work))
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
            shares = [list(range(first, work.crashes, WORKERS)) for first in range(WORKERS)]
            jobs = [pool.submit(_in_a_process, pickled, share) for share in shares]
            failures = sorted(failure for job in jobs for failure in job.result())
        covered = len(set(work.cuts()))
        print(f"round {number}: {work.crashes} crashes at {covered} of {len(work.ops)} records of the trace {kinds}, {len(told.acknowledged)} answers")
        for crash, text in failures:
            print(f"JESENSKA_DISK_AGAIN={directory} JESENSKA_DISK_CRASH={crash}\n{text}")
        assert not failures, f"{len(failures)} crashes lost something, the first of them: {failures[0][1]}"
        if number + 1 < ROUNDS:
            chosen = Random(f"{SEED}:{number}:next").randrange(work.crashes // 2, work.crashes)
            (directory / "next").mkdir()
            _, after = _go_through(work, [chosen], directory / "next", keep=chosen)
            assert after is not None
            facts = after
            # What is answered now was answered by another trace; what was sent may still turn up.
            told = dataclasses.replace(told, acknowledged=[])
            shutil.rmtree(root)
            (directory / "next" / "kept").rename(root)


@pytest.mark.skipif("JESENSKA_DISK_AGAIN" not in os.environ, reason="runs one crash of an earlier run again: JESENSKA_DISK_AGAIN names its directory")
def test_one_crash_again(tmp_path: Path) -> None:
    work: Any = pickle.loads((Path(os.environ["JESENSKA_DISK_AGAIN"]) / "round").read_bytes())
    crash = int(os.environ["JESENSKA_DISK_CRASH"])
    failures, _ = _go_through(work, [crash], tmp_path, keep=crash)
    print(f"the disk as it was found is in {tmp_path / 'kept'}")
    assert not failures, failures[0][1]
