"""Queries that write exactly once and applications of streams whose process is killed, and whose checkpoints and state
directories are meanwhile lost, put back from an older copy, or exchanged with those of another program. Each is
refused with a sentence or gives right results. None gives wrong results silently.

    python -m tests.processes.crash.lost_and_swapped                      20 kills; a quarter of an hour
    python -m tests.processes.crash.lost_and_swapped --kills 5 --seed 7

Six programs run in one process (lost_and_swapped_driver.py), in pairs of one kind: two queries, two applications with
exactly_once_v2, two with at_least_once. A pair reads the same topic and has the same description. The input grows all
the time. When each program continues or is refused, the process, its JVM and its workers are killed (SIGKILL) at a
random moment. Then one program of each pair that has not been refused is harmed (harms.py): its whole directory, or a
part of it, down to a single state file.

A program that was refused is repaired: by the remedy in its sentence (the directory is removed, so that it is
restored), or by putting back the earlier content. The two of a pair that were swapped may both be refused.

The required state when all is processed:

    the queries         each line once, in the order of its partition
    exactly_once_v2     the committed counts of each word are 1, 2, 3 ... to the number of times that it was sent, in
                        this order, and the store has the last one
    at_least_once       no count is missing, the last one is what the store has, and it is not lower than it must be.
                        It may be higher: a restored state includes words that were counted after the last offsets
                        of the group, and these are counted again. Each kill adds no more than one micro-batch

The first two are checked after each kill as well. Prints a line for each outcome. The exit code is 1 where one is
wrong."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer

from jesenska.testing import BrokerProcess
from tests.processes.crash.harms import CHECKPOINT_PATHS, STATE_PATHS, SWAPPED, Harm, copy, some_harm
from tests.processes.crash.lost_and_swapped_driver import (
    APPLICATIONS,
    COPIES,
    COUNTS,
    LINES,
    OFFSETS_AT_ONCE,
    PROGRAMS,
    QUERIES,
)
from tests.processes.crash.spark_under_kills import GrowingInput, SparkDriver, committed_records
from tests.processes.pipeline.conftest import Topics

PAIRS = tuple(zip(PROGRAMS[::2], PROGRAMS[1::2], strict=True))
_PARTITIONS = 2
_SECONDS = 180.0
_WORDS = ("all", "streams", "lead", "to", "kafka", "hello", "join", "summit")
_WORDS_A_LINE = 3
#: How often a program may be refused in a row before it is right.
_REFUSALS_MAX = 3


class Inputs(GrowingInput):
    """The input lines: the number as the key, and three words."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        super().__init__(bootstrap, 0.1, _SECONDS)

    def produce_some(self, producer: Producer) -> None:
        for number in range(self.sent, self.sent + 3):
            producer.produce(
                LINES, " ".join(_words(number)), str(number), partition=number % _PARTITIONS, on_delivery=self.told
            )
        self.sent += 3


def _words(number: int) -> list[str]:
    return [_WORDS[(number * 7 + place * place) % len(_WORDS)] for place in range(_WORDS_A_LINE)]


class Outputs:
    """The records that a reader of committed records finds, and the mistakes in them."""

    def __init__(self, bootstrap: str, sent: int) -> None:
        self.wanted = Counter(word for number in range(sent) for word in _words(number))
        self.copies: dict[str, list[tuple[int, int]]] = defaultdict(list)  # partition and number
        self.counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._sent = sent
        for partition, _, value in committed_records(bootstrap, COPIES, _PARTITIONS, _SECONDS):
            name, _, number = value.decode().partition(" ")
            self.copies[name].append((partition, int(number)))
        for _, key, value in committed_records(bootstrap, COUNTS, _PARTITIONS, _SECONDS):
            name, _, word = (key or b"").decode().partition(" ")
            self.counts[name][word].append(int.from_bytes(value, "big"))

    def mistakes(self, stores: dict[str, Counter[str]] | None = None, slack: int = 0) -> list[str]:
        """Returns the mistakes. `stores` are given when all is processed. A count of at_least_once may then be higher
        by `slack`."""
        told = []
        for name in QUERIES:
            found = [number for _, number in self.copies[name]]
            if len(found) != len(set(found)):
                told.append(f"{name}: {len(found) - len(set(found))} lines are there twice")
            for source in range(_PARTITIONS):
                mine = [number for number in found if number % _PARTITIONS == source]
                end = self._sent if stores else max(mine, default=-1) + 1
                if missing := set(range(source, end, _PARTITIONS)) - set(mine):
                    told.append(
                        f"{name}: {len(missing)} lines of partition {source} are lost, the first is {min(missing)}"
                    )
                for target in range(_PARTITIONS):
                    placed = [
                        number
                        for partition, number in self.copies[name]
                        if partition == target and number % _PARTITIONS == source
                    ]
                    if placed != sorted(placed):
                        told.append(f"{name}: the lines of partition {source} are out of order")
        for name, guarantee in APPLICATIONS.items():
            exactly = guarantee != "at_least_once"
            for word, wanted in self.wanted.items():
                counts = self.counts[name][word]
                if (counts if exactly else sorted(set(counts))) != list(range(1, max(counts, default=0) + 1)):
                    told.append(f"{name}: the counts of {word} are not 1, 2, 3 to {max(counts)}")
                last = counts[-1] if counts else 0
                if exactly and last > wanted:
                    told.append(f"{name}: {word} is counted {last} times and was sent {wanted} times")
                if stores and (last < wanted or stores[name][word] != last):
                    told.append(
                        f"{name}: {word} was sent {wanted} times, the last count is {last}, and the store has "
                        f"{stores[name][word]}"
                    )
            if stores and self.excess(name) > (0 if exactly else slack):
                told.append(f"{name}: {self.excess(name)} words are counted too much")
        return told

    def excess(self, name: str) -> int:
        """The number of words that were counted too often, over all last counts."""
        return sum(counts[-1] for counts in self.counts[name].values()) - self.wanted.total()


class Kills:
    """The process, and the harm between two of its runs."""

    def __init__(self, bootstrap: str, place: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._place = place
        self._chance = chance
        self._say = say
        self._number = 0
        self._done: dict[str, Harm] = {}  # by program, the harm to report
        self._refusals = Counter[str]()
        self.outcomes = Counter[str]()

    def of(self, name: str, kept: str = "") -> Path:
        """The directory of a program, or of a copy of it."""
        return (self._place / kept if kept else self._place) / name

    @contextlib.contextmanager
    def driver(self, *further: str) -> Iterator[SparkDriver]:
        self._number += 1
        command = [
            sys.executable,
            "-m",
            "tests.processes.crash.lost_and_swapped_driver",
            self._bootstrap,
            str(self._place),
            *further,
        ]
        driver = SparkDriver(command, self._place, self._number, _SECONDS)
        try:
            yield driver
        finally:
            driver.kill_all()

    def one(self) -> None:
        """Waits until each program continues or has ended, kills the process, and then does harm."""
        with self.driver() as driver:
            driver.until(
                lambda: all(_ended(driver, name) or driver.lines.count(f"going {name}") >= 2 for name in PROGRAMS),
                "does not go on",
                _SECONDS,
            )
            threading.Event().wait(self._chance.uniform(0, 1.0))
            if self._chance.random() < 0.3:
                self._keep_older(driver)  # as a copy that is made while it runs
        ended = self._told(driver)
        for name in PROGRAMS:
            if name not in ended:
                copy(self.of(name), self.of(name, "newest"))
        for pair in PAIRS:
            if not ended.intersection(pair):
                self._harm(pair)
                if self._chance.random() < 0.4:
                    for name in pair:
                        copy(self.of(name, "newest"), self.of(name, "older"))

    def _keep_older(self, driver: SparkDriver) -> None:
        for name in PROGRAMS:
            if not _ended(driver, name):
                with contextlib.suppress(OSError, shutil.Error):  # files that are removed while they are copied
                    copy(self.of(name), self.of(name, "new"))
                    copy(self.of(name, "new"), self.of(name, "older"))

    def _harm(self, pair: tuple[str, str]) -> None:
        one, other = self._chance.sample(pair, 2)
        while True:
            harm = some_harm(self._chance, CHECKPOINT_PATHS if one in QUERIES else STATE_PATHS)
            if harm.do(self.of(one), self.of(one, "older"), self.of(other)):
                break
        self._done[one] = harm
        if harm.action == SWAPPED:
            self._done[other] = harm

    def _told(self, driver: SparkDriver) -> set[str]:
        """Prints the outcome of each program, and repairs those that have ended. Returns their names."""
        ended = set()
        for name in PROGRAMS:
            text = _ended(driver, name)
            harm = self._done.pop(name, None)
            if text is None or text.startswith("done"):
                self._refusals[name] = 0
                if harm is not None:
                    self._outcome("goes on", name, harm)
                continue
            ended.add(name)
            self._refusals[name] += 1
            if self._refusals[name] > _REFUSALS_MAX:
                raise AssertionError(f"{name} does not come to work again: {text}")
            self._outcome(text.split()[0], name, harm, text)
            self._help(name, text)
        return ended

    def _outcome(self, outcome: str, name: str, harm: Harm | None, text: str = "") -> None:
        self.outcomes[f"{name.partition('-')[0]}: {outcome}"] += 1
        self._say(
            f"  {name}, {'helped' if harm is None else harm}: "
            f"{outcome if not text else text.replace(str(self._place), '')[:1500]}"
        )

    def _help(self, name: str, text: str) -> None:
        if name in QUERIES or (self._refusals[name] == 1 and self._chance.random() < 0.5):
            copy(self.of(name, "newest"), self.of(name))
        else:
            assert "is restored" in text, f"{name} is not told what to do: {text}"
            shutil.rmtree(self.of(name))

    def finish(self) -> dict[str, Counter[str]]:
        """Processes the rest of the input, and repairs refused programs. Returns the contents of the stores."""
        while True:
            with self.driver("--finish") as driver:
                driver.until(lambda: all(_ended(driver, name) for name in PROGRAMS), "does not end", _SECONDS)
            if not self._told(driver):
                return {name: Counter(json.loads((self._place / f"{name}.json").read_text())) for name in APPLICATIONS}


def _ended(driver: SparkDriver, name: str) -> str | None:
    """The last line of a program that has ended. None while it runs."""
    return next(
        (
            line
            for line in driver.lines
            if line.startswith((f"refused {name} ", f"failed {name} ")) or line == f"done {name}"
        ),
        None,
    )


def run(place: Path, kills: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Returns the mistakes."""
    chance = random.Random(seed)
    settings = {"num.partitions": str(_PARTITIONS), "transaction.state.log.replication.factor": "1"}
    with BrokerProcess(place / "broker", settings=settings) as broker:
        bootstrap = broker.bootstrap
        with contextlib.closing(Topics(bootstrap)) as topics:
            for topic in (LINES, COPIES, COUNTS):
                topics.create(_PARTITIONS, name=topic)
        killing = Kills(bootstrap, place / "programs", chance, say)
        (place / "programs").mkdir()
        with Inputs(bootstrap) as inputs:
            for number in range(1, kills + 1):
                killing.one()
                told = Outputs(bootstrap, inputs.sent).mistakes()
                say(f"kill {number} of {kills}, {inputs.sent} lines: {'; '.join(told[:5]) or 'right'}")
                if told:
                    return told
        stores = killing.finish()
        outputs = Outputs(bootstrap, inputs.sent)
        told = outputs.mistakes(stores, kills * OFFSETS_AT_ONCE * _WORDS_A_LINE)
        more = ", ".join(f"{name} {outputs.excess(name)}" for name in APPLICATIONS)
        say(f"{kills} kills, {inputs.sent} lines; words counted too much: {more}: {'; '.join(told[:5]) or 'right'}")
        say(", ".join(f"{outcome} {count}" for outcome, count in sorted(killing.outcomes.items())))
        return told


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills programs and harms what they have on disk.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1924)
    parser.add_argument("--dir", type=Path, help="where logs and data stay; a new directory")
    given = parser.parse_args()
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) if given.dir is None else given.dir
        place.mkdir(parents=True, exist_ok=True)
        return 1 if run(place, given.kills, given.seed, say) else 0


if __name__ == "__main__":
    sys.exit(main())
