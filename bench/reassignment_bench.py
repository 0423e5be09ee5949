"""Moves of partitions between brokers, beside Apache Kafka 3.9.1 in ZooKeeper mode: seconds and CPU of all brokers.

    python -m bench.reassignment_bench                     10 GB, three rounds
    python -m bench.reassignment_bench --gigabytes 1 --rounds 1 --dir /dev/shm

Three brokers on each side. Six partitions of 1000-byte records are on the first broker, and are moved to the third by
one request of jesenska's admin client; then to the second. The time ends when no reassignment is listed any more. The
sides run one after the other, and the one that begins changes from round to round."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.brokers import KAFKA
from bench.cluster_bench import Ours, Side, Theirs, kafka_tool
from bench.figures import Figures, cpu, table
from bench.machine import settle
from bench.needs import kafka, require
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster

_RELEASE: Final = "3.9.1"
_PARTITIONS: Final = 6
_RECORD_BYTES: Final = 1000
_LOOK_SECONDS: Final = 0.05
_TOPIC: Final = "moved"


class Old(Theirs):
    """Apache Kafka's brokers on its ZooKeeper."""

    name = f"Apache Kafka {_RELEASE}"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _RELEASE, zookeeper=True)


def _measure(side: Side, figures: Figures, gigabytes: float) -> None:
    brokers = asyncio.run(_create(side))
    records = int(gigabytes * 1e9 / _RECORD_BYTES)
    kafka_tool(
        *("kafka-producer-perf-test", "--topic", _TOPIC, "--num-records", str(records)),
        *("--record-size", str(_RECORD_BYTES), "--throughput", "-1", "--producer-props"),
        *(f"bootstrap.servers={side.bootstrap}", "batch.size=65536", "linger.ms=10"),
    )
    for target in (brokers[2], brokers[1]):
        settle()
        before = [cpu(pid).total for pid in side.pids]
        begun = time.monotonic()
        asyncio.run(_move(side, target))
        seconds = time.monotonic() - begun
        used = sum(cpu(pid).total - earlier for pid, earlier in zip(side.pids, before, strict=True))
        row = f"move {gigabytes:g} GB"
        figures.add(row, "seconds", seconds)
        figures.add(row, "brokers' CPU s", used)


async def _create(side: Side) -> list[int]:
    """Creates the topic on the first broker, and returns the ids of all brokers."""
    cluster = Cluster(side.bootstrap)
    try:
        await cluster.topics()
        brokers = sorted(cluster.nodes)
        made = await Admin(cluster).create_topics([NewTopic(_TOPIC, assignment=[[brokers[0]]] * _PARTITIONS)])
        assert made == {_TOPIC: None}, made
        return brokers
    finally:
        await cluster.close()


async def _move(side: Side, target: int) -> None:
    cluster = Cluster(side.bootstrap)
    try:
        admin = Admin(cluster)
        answers = await admin.alter_reassignments(
            {TopicPartition(_TOPIC, number): [target] for number in range(_PARTITIONS)}
        )
        assert not any(answers.values()), answers
        while await admin.list_reassignments():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None, help="Where the data are (default: the place for temporary files).")
    options = parser.parse_args()
    # Records are written by the newest release's tool, on either side.
    require("reassignment_bench", (*kafka(KAFKA), *kafka(_RELEASE)))
    sides: tuple[type[Ours | Old], ...] = (Ours, Old)
    gathered = {kind.name: Figures() for kind in sides}
    for number in range(options.rounds):
        for kind in sides if number % 2 == 0 else sides[::-1]:
            with tempfile.TemporaryDirectory(dir=options.dir) as directory:
                side = kind(Path(directory))
                side.start()
                try:
                    _measure(side, gathered[kind.name], options.gigabytes)
                finally:
                    side.stop()
    print(table(gathered, f"three brokers, {options.gigabytes:g} GB, {options.rounds} rounds"))


if __name__ == "__main__":
    main()
