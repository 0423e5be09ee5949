"""A Spark query writes exactly once while its driver, its tasks, its executors and the brokers are killed. A reader of
committed records finds each input once, transformed, in the order of its partition.

    python -m tests.processes.crash.exactly_once_kills                     a hundred kills; half an hour
    python -m tests.processes.crash.exactly_once_kills --kills 20 --seed 7

There are three brokers, with replication factor 3. The input grows all the time. Kinds of kills, all of them SIGKILL:

    a point           the driver kills itself at a named point of a micro-batch (exactly_once_driver.py)
    driver            the driver, its JVM and its Python workers at once
    driver alone      the driver; its JVM and its tasks may go on for a while
    worker            a Python worker in the middle of its tasks
    executor          the JVM of an executor, which has Python workers of its own (local-cluster)
    broker            any broker; it is started again
    coordinator       the broker that has the query's transactions; it is started again when others lead
    zombie            the driver and all its processes are paused while another driver continues the query, and
                      are resumed then

Prints a line for each kill. The exit code is 1 where a record is lost, duplicated or out of order."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer

from jesenska.coordination.placement import partition_for
from tests.cluster.cluster import BrokerCluster
from tests.processes.crash.exactly_once_driver import POINTS, QUERY
from tests.processes.crash.spark_under_kills import (
    SETTINGS,
    GrowingInput,
    SparkDriver,
    committed_records,
    parent_of,
    signal_all,
    words_of,
)

_INPUT, _OUTPUT = "inputs", "outputs"
_PARTITIONS = 4
_SECONDS = 120.0
_BATCHES_BETWEEN = 2
#: So many of a hundred.
_SHARES = {
    **dict.fromkeys(POINTS, 5),
    "driver": 20,
    "driver alone": 10,
    "worker": 10,
    "executor": 10,
    "broker": 10,
    "coordinator": 10,
    "zombie": 5,
}


def _is_worker(process: int) -> bool:
    """True if Spark started the process for tasks, or for the process that forks them. Workers of a ready Python have
    the command line of the process that forked them."""
    parent = parent_of(process)
    return b"pyspark.daemon" in words_of(process) or all(
        b"python_forks" in words_of(one) for one in (process, parent, parent_of(parent))
    )


class Driver(SparkDriver):
    """The driver of a query that writes exactly once."""

    def __init__(self, bootstrap: str, place: Path, number: int, master: str, point: str | None, after: int) -> None:
        self.master = master
        command = [
            sys.executable,
            "-m",
            "tests.processes.crash.exactly_once_driver",
            bootstrap,
            _INPUT,
            _OUTPUT,
            str(place / "checkpoint"),
        ]
        command += [
            str(place / f"spark-{number}.log"),
            "--master",
            master,
            "--after",
            str(after),
            *(["--point", point] if point is not None else []),
        ]
        super().__init__(command, place, number, _SECONDS)


class Inputs(GrowingInput):
    """An input of numbers. Each partition has its own key."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: dict[int, int] = dict.fromkeys(range(_PARTITIONS), 0)
        super().__init__(bootstrap, 0.05, _SECONDS)

    def produce_some(self, producer: Producer) -> None:
        for partition in range(_PARTITIONS):
            for _ in range(5):
                key, value = b"key-%d" % partition, b"%d:%d" % (partition, self.sent[partition])
                producer.produce(_INPUT, value, key, partition=partition, on_delivery=self.told)
                self.sent[partition] += 1


def _outputs(bootstrap: str) -> list[list[bytes]]:
    """The records that a reader of committed records finds, by partition."""
    found: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    for partition, _, value in committed_records(bootstrap, _OUTPUT, _PARTITIONS, _SECONDS):
        found[partition].append(value)
    return found


def mistakes(outputs: list[list[bytes]], sent: dict[int, int], *, whole: bool) -> list[str]:
    """Returns the mistakes in outputs: duplicate records, records without an input, wrong order, and lost records if
    the query is done. Inputs of one partition have one key, so they are in one partition of the output, in their
    order."""
    counted = Counter(itertools.chain.from_iterable(outputs))
    told = [f"{value!r} is there {count} times" for value, count in counted.items() if count > 1]
    places: dict[int, list[int]] = {partition: [] for partition in sent}
    for values in outputs:
        for value in values:
            matched = re.fullmatch(rb"made of (\d+):(\d+)", value)
            if matched is None or int(matched[1]) not in sent:
                told.append(f"{value!r} is made of nothing")
            else:
                places[int(matched[1])].append(int(matched[2]))
    for partition, numbers in places.items():
        if numbers != sorted(numbers):
            told.append(f"inputs of partition {partition} are out of order")
        missing = (set(range(sent[partition])) if whole else set(range(max(numbers, default=-1) + 1))) - set(numbers)
        if missing:
            told.append(f"{len(missing)} inputs of partition {partition} are lost, the first is {min(missing)}")
    return told


class Kills:
    """The query, the brokers, and the ways to kill them."""

    def __init__(self, cluster: BrokerCluster, place: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._place = place
        self._chance = chance
        self._say = say
        self._numbers = itertools.count(1)
        self._driver: Driver | None = None

    def driver(self, master: str = "local[2]") -> Driver:
        """A driver that runs with this master."""
        if self._driver is not None and self._driver.master != master:
            self._driver.kill_all()
            self._driver = None
        if self._driver is None:
            self._driver = self._begin(master)
            self._driver.until_batches(1)
        return self._driver

    def _begin(self, master: str = "local[2]", point: str | None = None) -> Driver:
        return Driver(self._bootstrap, self._place, next(self._numbers), master, point, self._chance.randint(0, 2))

    @property
    def _bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._cluster.brokers.values())

    def one(self, kind: str) -> None:
        if kind in POINTS:
            self.end()
            driver = self._begin(point=kind)
            if driver.until_gone(_SECONDS) != -signal.SIGKILL:
                raise driver.failure(f"has not killed itself {kind}")
            driver.kill()
            return
        driver = self.driver("local-cluster[2,1,1024]" if kind == "executor" else "local[2]")
        threading.Event().wait(self._chance.uniform(0, 0.6))
        if kind in ("driver", "driver alone"):
            driver.kill_all(alone=kind == "driver alone")
            self._driver = None
        elif kind == "worker":
            workers = [process for process in driver.processes()[1:] if _is_worker(process)]
            signal_all(self._chance.sample(workers, min(1, len(workers))), signal.SIGKILL)
            driver.until_batches(_BATCHES_BETWEEN)
        elif kind == "executor":
            executors = [
                process for process in driver.processes() if b"CoarseGrainedExecutorBackend" in words_of(process)
            ]
            signal_all([self._chance.choice(executors)], signal.SIGKILL)
            driver.until_batches(_BATCHES_BETWEEN)
        elif kind == "zombie":
            self._zombie(driver)
        else:
            self._broker(kind, driver)

    def _broker(self, kind: str, driver: Driver) -> None:
        chosen = self._chance.choice(list(self._cluster.brokers))
        if kind == "coordinator":
            partition = partition_for(f"jesenska-spark-{QUERY}", int(SETTINGS["transaction.state.log.num.partitions"]))
            chosen = self._cluster.view().of("__transaction_state", partition).leader
        self._cluster.brokers[chosen].kill()
        driver.until_batches(1)
        self._cluster.brokers[chosen].start()
        driver.until_batches(1)
        self._cluster.until_whole()

    def _zombie(self, old: Driver) -> None:
        every = old.processes()
        signal_all(every, signal.SIGSTOP)
        try:
            self._driver = self._begin()
            self._driver.until_batches(_BATCHES_BETWEEN)
        finally:
            signal_all(every, signal.SIGCONT)
        code = old.until_gone(_SECONDS)
        self._say(f"  the zombie has ended with exit code {code}")
        old.kill()
        if code == 0:
            raise AssertionError("the driver that stood still has not found out that there is another one")

    def end(self) -> None:
        if self._driver is not None:
            self._driver.kill_all()
            self._driver = None

    def finish(self) -> None:
        driver, self._driver = self.driver(), None
        driver.tell("end")
        if driver.until_all_is_written() != 0:
            raise driver.failure("has failed")
        driver.kill()


def _plan(kills: int, chance: random.Random) -> list[str]:
    """The kinds of kills in their shares. Kills of executors follow each other, since they need a driver of their
    own."""
    kinds = [kind for kind, share in _SHARES.items() for _ in range(max(1, round(share * kills / 100)))]
    chance.shuffle(kinds)
    others = [kind for kind in kinds if kind != "executor"]
    place = chance.randrange(len(others) + 1)
    return [*others[:place], *(kind for kind in kinds if kind == "executor"), *others[place:]][:kills]


@contextlib.contextmanager
def _place(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills what a Spark query that writes exactly once stands on.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1924)
    parser.add_argument("--kinds", help="only these, separated by commas")
    parser.add_argument("--dir", type=Path, help="where logs and data stay; a new directory")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    plan = _plan(given.kills, chance) if given.kinds is None else [kind.strip() for kind in given.kinds.split(",")]
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    with _place(given.dir) as place, BrokerCluster(place / "cluster", settings=SETTINGS) as cluster:
        for topic in (_INPUT, _OUTPUT):
            cluster.create(topic, _PARTITIONS)
        bootstrap = ",".join(broker.address for broker in cluster.brokers.values())
        kills = Kills(cluster, place, chance, say)
        with Inputs(bootstrap) as inputs:
            try:
                for number, kind in enumerate(plan, 1):
                    kills.one(kind)
                    told = mistakes(_outputs(bootstrap), inputs.sent, whole=False)
                    say(f"{number} of {len(plan)}: {kind}{''.join(f'; {sentence}' for sentence in told[:5])}")
                    if told:
                        return 1
            except BaseException:
                kills.end()
                raise
        kills.finish()
        outputs = _outputs(bootstrap)
        told = mistakes(outputs, inputs.sent, whole=True)
        say(
            f"{len(plan)} kills, {sum(inputs.sent.values())} inputs, {sum(map(len, outputs))} outputs: "
            f"{'; '.join(told[:5]) or 'each once, in order'}"
        )
        return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
