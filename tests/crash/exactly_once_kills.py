"""A Spark query writes exactly once while its driver, its tasks, its executors and the brokers are killed: what a
reader of committed records finds is each input once, transformed, in the order of its partition.

    python -m tests.crash.exactly_once_kills                     a hundred kills; half an hour
    python -m tests.crash.exactly_once_kills --kills 20 --seed 7

Three brokers, replication factor 3. The input grows all the while. Kinds of kills, all of them SIGKILL:

    a point           the driver kills itself at a named point of a micro-batch (exactly_once_driver.py)
    driver            the driver, its JVM and its Python workers at once
    driver alone      the driver; its JVM and its tasks may go on for a while
    worker            a Python worker in the middle of its tasks
    executor          the JVM of an executor, which has Python workers of its own (local-cluster)
    broker            any broker; it is started again
    coordinator       the broker that has the query's transactions; it is started again when others lead
    zombie            the driver and all that belongs to it stand still while another one goes on with the query, and
                      wake up then

A line for each kill; the exit code is 1 where something is lost, twice or out of order."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from jesenska.coordination.placement import partition_for
from tests.cluster.cluster import BrokerCluster
from tests.crash.exactly_once_driver import POINTS, QUERY
from tests.crash.talking_process import Process
from tests.watched_processes import watched

_INPUT, _OUTPUT = "inputs", "outputs"
_PARTITIONS = 4
_SECONDS = 120.0
_BATCHES_BETWEEN = 2
#: So many of a hundred.
_SHARES = {**dict.fromkeys(POINTS, 5), "driver": 20, "driver alone": 10, "worker": 10, "executor": 10, "broker": 10, "coordinator": 10, "zombie": 5}
_SETTINGS = {"transaction.state.log.num.partitions": "3", "transaction.state.log.replication.factor": "3", "min.insync.replicas": "2"}


def _descendants(process: int) -> list[int]:
    """All processes below one, as they are now."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(path.parent.name))
    found, left = [], [process]
    while left:
        below = children[left.pop()]
        found += below
        left += below
    return found


def _words(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class Driver(Process):
    """A driver at work."""

    def __init__(self, bootstrap: str, place: Path, number: int, master: str, point: str | None, after: int) -> None:
        self.master = master
        command = [sys.executable, "-m", "tests.crash.exactly_once_driver", bootstrap, _INPUT, _OUTPUT, str(place / "checkpoint")]
        command += [str(place / f"spark-{number}.log"), "--master", master, "--after", str(after), *(["--point", point] if point is not None else [])]
        super().__init__(f"driver-{number}", command, place)
        self.start()

    @property
    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.lines)

    def until_batches(self, more: int) -> None:
        """Returns when so many micro-batches more are written."""
        wanted = self.batches + more
        self.until(lambda: self.batches >= wanted, f"does not write {more} micro-batches more", _SECONDS)

    def until_all_is_written(self) -> int:
        """Its exit code. Inputs that wait may take it long, as long as it writes micro-batches."""
        while True:
            before = self.batches
            try:
                return self.until_gone(_SECONDS)
            except subprocess.TimeoutExpired:
                if self.batches == before:
                    raise self.failure("does not end, and writes no micro-batch any more") from None

    def processes(self) -> list[int]:
        return [self.pid, *_descendants(self.pid)]

    def kill_all(self, *, alone: bool = False) -> None:
        """All that belongs to it; `alone`: the driver, and the rest ends by itself, which is waited for."""
        every = self.processes()
        with watched(*(process for process in every[1:] if _words(process))) as have_ended:
            _signal(every[:1] if alone else every, signal.SIGKILL)
            self.kill()
            if not have_ended():
                print("  a JVM or a worker has not ended by itself", flush=True)


class Inputs:
    """Writes numbers all the while, each partition's in order."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: dict[int, int] = dict.fromkeys(range(_PARTITIONS), 0)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0})
        self._failures: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Inputs:
        self._thread.start()
        return self

    def _write(self) -> None:
        while not self._ends.wait(0.05):
            for partition in range(_PARTITIONS):
                for _ in range(5):
                    key, value = b"key-%d" % partition, b"%d:%d" % (partition, self.sent[partition])
                    self._producer.produce(_INPUT, value, key, partition=partition, on_delivery=self._told)
                    self.sent[partition] += 1
            self._producer.poll(0)

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(_SECONDS)
        if self._failures:
            raise AssertionError(f"inputs could not be written: {self._failures[:3]}")


def _outputs(bootstrap: str) -> list[list[bytes]]:
    """What a reader of committed records finds, by partition."""
    found: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_OUTPUT, partition, 0) for partition in range(_PARTITIONS)])
    left = set(range(_PARTITIONS))
    deadline = time.monotonic() + _SECONDS
    while left:
        message = consumer.poll(1.0)
        if time.monotonic() > deadline:
            raise AssertionError(f"the outputs cannot be read: partitions {sorted(left)}")
        if message is None:
            continue
        partition, error = message.partition(), message.error()
        assert partition is not None
        if error is None:
            found[partition].append(message.value() or b"")
        elif error.name() == "_PARTITION_EOF":
            left.discard(partition)
    consumer.close()
    return found


def mistakes(outputs: list[list[bytes]], sent: dict[int, int], *, whole: bool) -> list[str]:
    """What is wrong with outputs: records that are there twice, made of nothing, out of order; lost ones, if the query
    is done. Inputs of one partition have one key, so they are in one partition of the output, in their order."""
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
    """The query, the brokers, and how they are killed."""

    def __init__(self, cluster: BrokerCluster, place: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._place = place
        self._chance = chance
        self._say = say
        self._numbers = itertools.count(1)
        self._driver: Driver | None = None

    def driver(self, master: str = "local[2]") -> Driver:
        """One that runs with this master."""
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
            workers = [process for process in driver.processes()[1:] if b"pyspark.daemon" in _words(process) or b"daemon_fork" in _words(process)]
            _signal(self._chance.sample(workers, min(1, len(workers))), signal.SIGKILL)
            driver.until_batches(_BATCHES_BETWEEN)
        elif kind == "executor":
            executors = [process for process in driver.processes() if b"CoarseGrainedExecutorBackend" in _words(process)]
            _signal([self._chance.choice(executors)], signal.SIGKILL)
            driver.until_batches(_BATCHES_BETWEEN)
        elif kind == "zombie":
            self._zombie(driver)
        else:
            self._broker(kind, driver)

    def _broker(self, kind: str, driver: Driver) -> None:
        chosen = self._chance.choice(list(self._cluster.brokers))
        if kind == "coordinator":
            partition = partition_for(f"jesenska-spark-{QUERY}", int(_SETTINGS["transaction.state.log.num.partitions"]))
            chosen = self._cluster.view().of("__transaction_state", partition).leader
        self._cluster.brokers[chosen].kill()
        driver.until_batches(1)
        self._cluster.brokers[chosen].start()
        driver.until_batches(1)
        self._cluster.until_whole()

    def _zombie(self, old: Driver) -> None:
        every = old.processes()
        _signal(every, signal.SIGSTOP)
        try:
            self._driver = self._begin()
            self._driver.until_batches(_BATCHES_BETWEEN)
        finally:
            _signal(every, signal.SIGCONT)
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
    """Kinds in their shares; those of executors beside each other, since they need a driver of their own."""
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

    with _place(given.dir) as place, BrokerCluster(place / "cluster", settings=_SETTINGS) as cluster:
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
        say(f"{len(plan)} kills, {sum(inputs.sent.values())} inputs, {sum(map(len, outputs))} outputs: {'; '.join(told[:5]) or 'each once, in order'}")
        return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
