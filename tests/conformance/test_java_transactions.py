"""Apache Kafka's Java client consumes, transforms and produces in transactions: each input is in the output once, and
nothing of an aborted transaction is seen, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import RELEASES_OF_TRANSACTIONS, need
from tests.peers.java_programs import command_of

pytestmark = pytest.mark.conformance

_SECONDS = 90
_INPUTS = 500
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def command(release: str, *arguments: str) -> list[str]:
    need("java", "mvn")
    return [*command_of(release, "TransactionLoop", heap="128m", log_level="ERROR"), *arguments]


class Program:
    """The Java program at work; its lines are heard."""

    def __init__(self, release: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command(release, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.strip())
                self._news.notify_all()
        with self._news:
            self.lines.append("gone")
            self._news.notify_all()

    def count(self, begin: str) -> int:
        return sum(line.startswith(begin) for line in self.lines)

    def wait_for(self, begin: str, times: int = 1) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.count(begin) >= times or "gone" in self.lines, _SECONDS), (
                self.lines[-20:]
            )
        assert self.count(begin) >= times, self.lines[-20:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._hearing.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def program(release: str, *arguments: str) -> Iterator[Program]:
    running = Program(release, *arguments)
    try:
        yield running
    finally:
        running.kill()


async def fill(bootstrap: str, topic: str, first: int, count: int, *, partitions: int = 2) -> None:
    cluster = Cluster(bootstrap)
    try:
        async with Producer(cluster) as producer:
            for number in range(first, first + count):
                await producer.send(topic, b"%d" % number, b"%d" % number, number % partitions)
    finally:
        await cluster.close()


async def create_topics(bootstrap: str, *topics: str, replicas: int = 1, partitions: int = 2) -> None:
    cluster = Cluster(bootstrap)
    try:
        await Admin(cluster).create_topics([NewTopic(name, partitions, replicas) for name in topics])
    finally:
        await cluster.close()


def values(release: str, bootstrap: str, topic: str) -> Counter[str]:
    """What a read_committed consumer is given."""
    with program(release, "read", bootstrap, topic) as reader:
        reader.wait_for("ended")
        return Counter(line.removeprefix("value ") for line in reader.lines if line.startswith("value "))


def expected(count: int) -> Counter[str]:
    return Counter(f"made {number}" for number in range(count))


@pytest.mark.parametrize("release", RELEASES_OF_TRANSACTIONS)
def test_each_input_is_in_the_output_once(release: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        asyncio.run(create_topics(broker.bootstrap, "input", "output"))
        asyncio.run(fill(broker.bootstrap, "input", 0, _INPUTS))
        with program(release, "loop", broker.bootstrap, "input", "output", "group", "loop", str(_INPUTS)) as loop:
            loop.wait_for("ended")
            assert loop.count("aborted") > 1
            assert loop.count("failed") == 0
        assert values(release, broker.bootstrap, "output") == expected(_INPUTS)


@pytest.mark.parametrize("release", RELEASES_OF_TRANSACTIONS)
def test_nothing_is_lost_or_twice_when_the_broker_and_the_program_are_killed(release: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS, warm=True) as broker:
        asyncio.run(create_topics(broker.bootstrap, "input", "output"))
        asyncio.run(fill(broker.bootstrap, "input", 0, _INPUTS))
        with program(release, "loop", broker.bootstrap, "input", "output", "group", "loop", str(_INPUTS + 100)) as loop:
            for times in (2, 4, 6):
                loop.wait_for("committed", times)
                broker.kill()
                broker.start()
            loop.wait_for("committed", 8)
            loop.kill()
        with program(release, "loop", broker.bootstrap, "input", "output", "group", "loop", str(_INPUTS + 100)) as loop:
            loop.wait_for("ready")
            asyncio.run(fill(broker.bootstrap, "input", _INPUTS, 100))
            loop.wait_for("ended")
        assert values(release, broker.bootstrap, "output") == expected(_INPUTS + 100)


@pytest.mark.parametrize("release", RELEASES_OF_TRANSACTIONS)
def test_a_transaction_that_a_killed_producer_has_left_open_ends_by_the_next_one(release: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS, warm=True) as broker:
        asyncio.run(create_topics(broker.bootstrap, "input", "output"))
        with program(release, "write", broker.bootstrap, "output", "loop") as writer:
            writer.wait_for("open")
        broker.kill()
        broker.start()
        asyncio.run(fill(broker.bootstrap, "input", 0, 50))
        with program(release, "loop", broker.bootstrap, "input", "output", "group", "loop", "50") as loop:
            loop.wait_for("ended")
        assert values(release, broker.bootstrap, "output") == expected(50)
