"""An application of Kafka Streams' API on Spark while its driver and the brokers are killed. Its results are those of
a run without kills.

    python -m tests.processes.crash.streams_on_spark_kills  20 kills of the driver and 20 of brokers, each guarantee
    python -m tests.processes.crash.streams_on_spark_kills --kills 4 --guarantees exactly_once_v2 --seed 7

There are three brokers, with replication factor 3. The input grows all the time. All kills are SIGKILL, at random
moments:

    driver          the driver, its JVM and its Python workers at once
    driver alone    the driver. Its JVM and its tasks may go on for a while
    broker          any broker. It is started again after up to two seconds

The required results (streams_on_spark_driver.py has the topology):

    exactly once     the committed records of every output have the counts 1, 2, 3 ... to the last one of each key, in
                     this order; the stores have the last ones
    at least once    no output is lost; the last count of each key, and the stores, are right. Records of a repartition
                     topic may be there twice, so words are counted too high by no more than that, and never too low

Prints a line for each kill. The exit code is 1 where a result is wrong."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Producer

from tests.cluster.cluster import BrokerCluster
from tests.processes.crash.spark_under_kills import SETTINGS, GrowingInput, SparkDriver, committed_records
from tests.processes.crash.streams_on_spark_driver import WINDOW_MS

_PARTITIONS = 4
_SECONDS = 180.0
_DRIVER_SECONDS = 120.0
_INPUT, _OUTPUTS = "lines", ("words", "keys", "windows")
_GUARANTEES = ("exactly_once_v2", "at_least_once")
_WORDS = ("all", "streams", "lead", "to", "kafka", "hello", "join", "summit")
_LINES_A_SECOND, _LINE_MS = 100, 50
_KEYS = 2 * _PARTITIONS
#: Some hours ago: brokers keep such records.
_FIRST_MS = (int(time.time()) // 3600 - 3) * 3_600_000

Counts = dict[str, Counter[str]]
"""By store: key -> count."""


def _line(number: int) -> tuple[str, str, int, int]:
    """The key, value, timestamp and partition of a line. The lines of a partition have rising timestamps."""
    words = [_WORDS[(number * 7 + place * place) % len(_WORDS)] for place in range(1 + number % 4)]
    return f"key-{number % _KEYS}", " ".join(words), _FIRST_MS + number * _LINE_MS, number % _PARTITIONS


def counted(lines: int) -> Counts:
    """The counts of one run without kills."""
    found: Counts = {name: Counter() for name in _OUTPUTS}
    for number in range(lines):
        key, value, at, _ = _line(number)
        found["words"].update(value.split(" "))
        found["keys"][key] += 1
        found["windows"][f"{key}@{at // WINDOW_MS * WINDOW_MS}"] += 1
    return found


class Inputs(GrowingInput):
    """The input lines."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        super().__init__(bootstrap, 0.1, _SECONDS)

    def produce_some(self, producer: Producer) -> None:
        for _ in range(_LINES_A_SECOND // 10):
            key, value, at, partition = _line(self.sent)
            producer.produce(_INPUT, value, key, partition=partition, timestamp=at, on_delivery=self.told)
            self.sent += 1


def outputs(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """The counts of each key in their order, as a reader of committed records finds them."""
    found: dict[str, list[int]] = defaultdict(list)
    for _, key, value in committed_records(bootstrap, topic, _PARTITIONS, _SECONDS):
        assert key is not None
        name = key.decode() if topic != "windows" else f"{key[:-8].decode()}@{int.from_bytes(key[-8:], 'big')}"
        found[name].append(int.from_bytes(value, "big"))
    return found


def mistakes(
    topic: str, found: Mapping[str, list[int]], wanted: Counter[str], *, exactly: bool, whole: bool
) -> list[str]:
    """The mistakes in the counts of a topic. `whole`: all of the input is counted."""
    told = []
    for key, counts in found.items():
        steps = list(range(1, max(counts) + 1))
        if exactly and counts != steps:
            told.append(f"{topic}: the counts of {key} are not 1 to {len(counts)} in this order: {_around(counts)}")
        if not exactly and (missing := set(steps) - set(counts)):
            told.append(f"{topic}: of {key} {len(missing)} counts are lost, the first is {min(missing)}")
        if key not in wanted:
            told.append(f"{topic}: {key} is made of nothing")
    if whole:
        for key, count in wanted.items():
            last = found.get(key, [0])[-1]
            if last < count or (last != count and (exactly or topic != "words")):
                told.append(f"{topic}: the last count of {key} is {last} and not {count}")
    return told


def _around(counts: list[int]) -> str:
    """The counts around the first one that is out of order."""
    place = next(place for place, count in enumerate(counts) if count != place + 1)
    return f"... {counts[max(0, place - 3) : place + 4]} ..."


class Kills:
    """The application, the brokers, and the ways to kill them."""

    def __init__(
        self, cluster: BrokerCluster, place: Path, chance: random.Random, guarantee: str, command: list[str]
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._chance = chance
        self._guarantee = guarantee
        self._command = command
        self._number = 0
        self._driver: SparkDriver | None = None

    def _begin(self, *further: str) -> SparkDriver:
        self._number += 1
        self._driver = SparkDriver([*self._command, *further], self._place, self._number, _DRIVER_SECONDS)
        return self._driver

    def one(self, kind: str) -> None:
        driver = self._driver
        if driver is None:
            driver = self._begin()
            driver.until_batches(2)
        threading.Event().wait(self._chance.uniform(0, 1.0))
        if kind == "broker":
            chosen = self._chance.choice(list(self._cluster.brokers))
            self._cluster.brokers[chosen].kill()
            threading.Event().wait(self._chance.uniform(0, 2.0))
            self._cluster.brokers[chosen].start()
            self._cluster.until_whole()
            driver.until_batches(2)
        else:
            driver.kill_all(alone=kind == "driver alone")
            self._driver = None

    def end(self) -> None:
        if self._driver is not None:
            self._driver.kill_all()
            self._driver = None

    def finish(self) -> Counts:
        """Processes the rest of the input. Returns the contents of the stores."""
        self.end()
        driver = self._begin("--finish")
        if driver.until_all_is_written() != 0:
            raise driver.failure("has failed")
        driver.kill()
        found: Counts = {name: Counter() for name in _OUTPUTS}
        for name, key, count in json.loads((self._place / "stores.json").read_text()):
            found[name][key] = count
        return found


def _run(
    place: Path, guarantee: str, kinds: list[str], chance: random.Random, say: Callable[[str], None], functions: bool
) -> bool:
    exactly = guarantee != "at_least_once"
    with BrokerCluster(place / "cluster", settings=SETTINGS) as cluster:
        for topic in (_INPUT, *_OUTPUTS):
            cluster.create(topic, _PARTITIONS)
        bootstrap = ",".join(broker.address for broker in cluster.brokers.values())
        command = [
            sys.executable,
            "-m",
            "tests.processes.crash.streams_on_spark_driver",
            bootstrap,
            str(place),
            guarantee,
        ]
        kills = Kills(cluster, place, chance, guarantee, [*command, *(["--functions"] if functions else [])])
        try:
            with Inputs(bootstrap) as inputs:
                for number, kind in enumerate(kinds, 1):
                    kills.one(kind)
                    found = {topic: outputs(bootstrap, topic) for topic in _OUTPUTS}
                    wanted = counted(inputs.sent)
                    told = [
                        text
                        for topic in _OUTPUTS
                        for text in mistakes(topic, found[topic], wanted[topic], exactly=exactly, whole=False)
                    ]
                    say(
                        f"{guarantee}, {number} of {len(kinds)}: "
                        f"{kind}{''.join(f'; {sentence}' for sentence in told[:5])}"
                    )
                    if told:
                        return False
            stores, wanted = kills.finish(), counted(inputs.sent)
        except BaseException:
            kills.end()
            raise
        found = {topic: outputs(bootstrap, topic) for topic in _OUTPUTS}
        told = [
            text
            for topic in _OUTPUTS
            for text in mistakes(topic, found[topic], wanted[topic], exactly=exactly, whole=True)
        ]
        for topic in _OUTPUTS:
            last = Counter({key: counts[-1] for key, counts in found[topic].items()})
            if stores[topic] != last:
                told.append(
                    f"{topic}: the store is not what the output says, first "
                    f"{sorted((stores[topic] - last) | (last - stores[topic]))[:3]}"
                )
        records = sum(len(counts) for counts in found["keys"].values())
        more = sum(stores["words"].values()) - sum(wanted["words"].values())
        say(
            f"{guarantee}: {len(kinds)} kills, {inputs.sent} lines, {records} counts of keys, {more} words counted "
            f"too much: {'; '.join(told[:5]) or 'right'}"
        )
        return not told


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills what an application of Kafka Streams' API on Spark stands on.")
    parser.add_argument("--kills", type=int, default=20, help="of the driver, and as many of brokers")
    parser.add_argument("--seed", type=int, default=1924)
    parser.add_argument("--guarantees", default=",".join(_GUARANTEES))
    parser.add_argument("--functions", action="store_true", help="Python functions in place of expressions")
    parser.add_argument("--dir", type=Path, help="where logs and data stay; a new directory")
    given = parser.parse_args()
    begun, is_right = time.monotonic(), True

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    for guarantee in given.guarantees.split(","):
        chance = random.Random(given.seed)
        kinds = ["broker"] * given.kills + [
            chance.choice(["driver", "driver", "driver alone"]) for _ in range(given.kills)
        ]
        chance.shuffle(kinds)
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch) if given.dir is None else given.dir / guarantee
            place.mkdir(parents=True, exist_ok=True)
            is_right = _run(place, guarantee, kinds, chance, say, given.functions) and is_right
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
