"""Three brokers, replication factor 3, beside Apache Kafka 4.3.1 with as many (KRaft, each broker a controller, too):
records a second, CPU of all brokers, time until they are ready, memory.

python -m bench.cluster_bench                    three rounds, one side after the other, another one first each time
python -m bench.cluster_bench --rounds 1 --scale 0.1 --rows "64 KB;ready"
python -m bench.cluster_bench --sides jesenska

jesenska's brokers share a tree that is a process of its own; its CPU and memory count as the brokers' do. All run on
this one machine, and so does the load: what a figure says is what the same machine gives with either. A row's figure
is the median of the rounds, its ratio the median of the rounds' ratios."""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.peers.apache_kafka import ApacheKafka, tool_command

from bench.brokers import KAFKA
from bench.figures import Figures, cpu, resident_mb, table
from bench.machine import end_in_order, settle
from bench.needs import kafka, require
from bench.unfinished import Unfinished
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess

BROKERS = 3
READY = "start to ready"
_SIXTY_FOUR_KB = ("batch.size=65536", "linger.ms=10")
#: Name, partitions, records, bytes of each, the producer's settings.
ROWS: tuple[tuple[str, int, int, int, tuple[str, ...]], ...] = (
    ("produce 5 M x 100 B, 6 partitions, acks=all", 6, 5_000_000, 100, ("acks=all",)),
    ("produce 5 M x 100 B, 6 partitions, acks=all, 64 KB batches", 6, 5_000_000, 100, ("acks=all", *_SIXTY_FOUR_KB)),
    ("produce 1 M x 1000 B, 6 partitions, acks=all", 6, 1_000_000, 1000, ("acks=all",)),
)
_SETTINGS = {"offsets.topic.replication.factor": "3", "group.initial.rebalance.delay.ms": "0"}


class Side(Protocol):
    """A cluster of three brokers."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    @property
    def pids(self) -> list[int]:
        """Every process that belongs to it."""
        ...

    def start(self) -> float:
        """Seconds until clients can use all brokers."""
        ...

    def stop(self) -> None: ...


class Ours:
    """jesenska's."""

    name = "jesenska"

    def __init__(self, directory: Path) -> None:
        self._tree = TreeProcess(directory, {"tickTime": "2000"})
        self._directory = directory
        self._brokers: list[BrokerProcess] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in (self._tree, *self._brokers)]

    def start(self) -> float:
        begun = time.monotonic()
        self._tree.start()
        for number in range(1, BROKERS + 1):
            settings = {**_SETTINGS, "broker.id": str(number), "zookeeper.connect": self._tree.address}
            self._brokers.append(BrokerProcess(self._directory / f"data-{number}", settings=settings))
        with ThreadPoolExecutor(BROKERS) as starting:
            list(starting.map(lambda broker: broker.start(), self._brokers))
        return time.monotonic() - begun

    def stop(self) -> None:
        for process in (*self._brokers, self._tree):
            process.stop()


class Theirs:
    """Apache Kafka's."""

    name = "Apache Kafka"

    def __init__(self, directory: Path, release: str = KAFKA, *, zookeeper: bool = False) -> None:
        self._kafka = ApacheKafka(release, directory, nodes=BROKERS, zookeeper=zookeeper)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def pids(self) -> list[int]:
        return self._kafka.pids

    def start(self) -> float:
        begun = time.monotonic()
        self._kafka.start()
        return time.monotonic() - begun

    def stop(self) -> None:
        self._kafka.stop()


SIDES = {side.name: side for side in (Ours, Theirs)}


def kafka_tool(name: str, *arguments: str) -> str:
    done = subprocess.run(tool_command(KAFKA, name, *arguments), text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _create(side: Side, topic: str, partitions: int) -> None:
    sizes = ("--partitions", str(partitions), "--replication-factor", str(BROKERS))
    kafka_tool("kafka-topics", "--bootstrap-server", side.bootstrap, "--create", "--topic", topic, *sizes)


@contextmanager
def _measured(side: Side, figures: Figures, row: str) -> Iterator[None]:
    before = sum(cpu(pid).total for pid in side.pids)
    yield
    figures.add(row, "brokers' CPU s", sum(cpu(pid).total for pid in side.pids) - before)


def _produce(side: Side, topic: str, records: int, size: int, settings: tuple[str, ...]) -> float:
    """Records a second."""
    said = kafka_tool(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(size),
        "--throughput",
        "-1",
        "--bootstrap-server",
        side.bootstrap,
        "--command-property",
        *settings,
    )
    return float(re.findall(r"([\d.]+) records/sec", said)[-1])


def _round(side: Side, figures: Figures, rows: list[str], scale: float) -> None:
    try:
        seconds = side.start()
        if READY in rows:
            figures.add(READY, "s", seconds)
            time.sleep(3)
            figures.add(READY, "MB resident", sum(resident_mb(pid) for pid in side.pids))
        _create(side, "warm", 6)
        _produce(side, "warm", max(1, int(500_000 * scale)), 100, ("acks=all",))
        for number, (row, partitions, records, size, settings) in enumerate(ROWS):
            if row not in rows:
                continue
            topic = f"row-{number}"
            _create(side, topic, partitions)
            settle()
            with _measured(side, figures, row):
                rate = _produce(side, topic, max(1, int(records * scale)), size, settings)
            figures.add(row, "records/s", rate)
    finally:
        side.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="A share of the records.")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rows", default="", help="Words of the rows that are wanted, divided by semicolons.")
    options = parser.parse_args(arguments)
    end_in_order()
    words = [word for word in options.rows.split(";") if word]
    rows = [row for row in (READY, *(row[0] for row in ROWS)) if not words or any(word in row for word in words)]
    # Topics are made and records written by Kafka's own tools, on either side.
    require("cluster_bench", kafka(KAFKA))
    unfinished = Unfinished("cluster_bench")
    names = options.sides.split(",")
    gathered = {name: Figures() for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            with (
                unfinished.part(f"{name}, round {number + 1}"),
                tempfile.TemporaryDirectory(prefix="jesenska-cluster-bench-") as directory,
            ):
                _round(SIDES[name](Path(directory)), gathered[name], rows, options.scale)
            print(table({name: gathered[name]}, f"{name}, after round {number + 1}"), flush=True)
    print(
        table(
            gathered,
            f"{BROKERS} brokers, replication factor {BROKERS}, {options.rounds} rounds, scale {options.scale:g}",
        )
    )
    return unfinished.exit_code()


if __name__ == "__main__":
    raise SystemExit(main())
