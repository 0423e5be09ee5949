"""Short transactions on three brokers, each begun as soon as the one before is committed, so that its first write
comes while markers of that one are on their way: clients of Java, Go (franz-go) and librdkafka, each with one producer
that writes records and one that commits offsets, while the coordinators of transactions move from broker to broker.

    python -m tests.conformance.short_transactions --minutes 10                     on our brokers
    python -m tests.conformance.short_transactions --minutes 10 --peer 4.3.1        on ours, then on Apache Kafka's

Prints how many transactions each producer has made, and its errors. With `--peer` the exit code is 1 where a client
has met an error with our brokers that it did not meet with Apache Kafka's; without, where it has met any."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import PREFERRED, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.transactions.records import TRANSACTIONS_TOPIC
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from tests.cluster.cluster import BrokerCluster
from tests.conformance.every_client import environment
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.clients import PROJECT, go_client
from tests.peers.java_programs import command_of
from tests.raw_connection import RawConnection

TOPIC, PARTITIONS = "short", 6
MILLISECONDS = 20
#: Of the brokers. Each coordinates some of the transactions.
SETTINGS = {
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}
_CLIENT: Final = "4.3.1"
_BROKERS = 3
_SECONDS = 90
_KINDS = ("produce", "offsets")

Stop = Callable[[], None]


class Load:
    """Clients at work. `made` and `errors` are by the client's name and what it does, like "java produce"."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.errors: dict[str, Counter[str]] = {}
        self._news = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._is_stopping = threading.Event()

    def start_java(self, bootstrap: str, transactions: int) -> None:
        command = [
            *command_of(_CLIENT, "ShortTransactions", heap="128m", log_level="OFF"),
            bootstrap,
            TOPIC,
            *map(str, (PARTITIONS, MILLISECONDS, transactions)),
        ]
        self._start("java", command, "")

    def start_go(self, bootstrap: str, transactions: int) -> None:
        asked = {"Topic": TOPIC, "Partitions": PARTITIONS, "Milliseconds": MILLISECONDS, "Transactions": transactions}
        self._start("go", go_client(), json.dumps({"bootstrap": bootstrap, "shortTransactions": asked}) + "\n")

    def start_librdkafka(self, bootstrap: str) -> None:
        """Until `stop`."""
        for kind in _KINDS:
            self._run(lambda kind=kind: self._librdkafka(kind, bootstrap))  # type: ignore[misc]

    def _start(self, name: str, command: list[str], given: str) -> None:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=PROJECT,
            env=environment(),
        )
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.flush()
        self._processes.append(process)
        self._run(lambda: self._hear(name, process))

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _hear(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said, kind, what = [*line.strip().split(" ", 2), "", ""][:3]
            if said == "made":
                with self._news:
                    self.made[f"{name} {kind}"] = int(what)
            elif said == "error":
                self._failed(f"{name} {kind}", what)
            else:
                self._failed(name, line.strip())

    def _failed(self, name: str, what: str) -> None:
        with self._news:
            self.errors.setdefault(name, Counter())[what] += 1

    def has_ended(self, seconds: float) -> bool:
        """Whether the programs have made as many transactions as they were asked for; waits so long at most."""
        ends = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def wait(self) -> None:
        """Returns when they have."""
        if not self.has_ended(_SECONDS):
            raise AssertionError(f"the clients do not come to an end; so far: {self.errors}")
        for thread in self._threads:
            thread.join(_SECONDS)

    def stop(self) -> None:
        """Has everybody end after the transaction that is under way."""
        self._is_stopping.set()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        self.wait()

    def end(self) -> None:
        self._is_stopping.set()
        for process in self._processes:
            process.kill()
            process.wait(30)
        for thread in self._threads:
            thread.join(_SECONDS)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def _librdkafka(self, kind: str, bootstrap: str) -> None:
        client: Any = importlib.import_module("confluent_kafka")
        name = f"librdkafka {kind}"
        group = client.Consumer({"bootstrap.servers": bootstrap, "group.id": "librdkafka"})
        while not self._is_stopping.is_set():
            producer = client.Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "transactional.id": f"librdkafka-{kind}",
                    "linger.ms": 0,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(_SECONDS)
                while not self._is_stopping.is_set():
                    self._make(client, producer, group, kind, name)
            except client.KafkaException as failure:
                self._failed(name, f"begins again: {failure}")
        group.close()

    def _make(self, client: Any, producer: Any, group: Any, kind: str, name: str) -> None:
        begun = time.monotonic()
        producer.begin_transaction()
        try:
            if kind == "produce":
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"x" * 20, partition=partition)
                producer.poll(0)
            else:
                producer.send_offsets_to_transaction(
                    [client.TopicPartition(TOPIC, 0, self.made[name])], group.consumer_group_metadata(), _SECONDS
                )
            self._is_stopping.wait(max(0.0, begun + MILLISECONDS / 1000 - time.monotonic()))
            producer.commit_transaction(_SECONDS)
            self.made[name] += 1
        except client.KafkaException as failure:
            self._failed(name, str(failure))
            if failure.args[0].fatal():
                raise
            producer.abort_transaction(_SECONDS)


class Coordinators:
    """Moves the coordinators of transactions from broker to broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._moves = 0

    def move(self) -> None:
        """Each partition of __transaction_state gets the next broker for its leader."""
        self._moves += 1
        asyncio.run(self._move(self._moves))

    async def _move(self, number: int) -> None:
        cluster = Cluster(self._bootstrap)
        try:
            topic = (await Admin(cluster).topics())[TRANSACTIONS_TOPIC]
            partitions = []
            for index, partition in enumerate(topic.partitions):
                replicas = sorted(partition.replicas)
                first = (index + number) % len(replicas)
                partitions.append(
                    AlterPartitionReassignmentsRequestPartition(
                        partition_index=index, replicas=[*replicas[first:], *replicas[:first]]
                    )
                )
            wanted = AlterPartitionReassignmentsRequestTopic(name=TRANSACTIONS_TOPIC, partitions=partitions)
            answer = await cluster.ask_controller(
                AlterPartitionReassignmentsRequest(topics=[wanted]), AlterPartitionReassignmentsResponse
            )
            refused = [
                item.error_code
                for found in answer.responses
                for item in found.partitions
                if item.error_code != ErrorCode.NONE
            ]
            if answer.error_code != ErrorCode.NONE or refused:
                raise AssertionError(f"the coordinators cannot be moved: {answer}")
            await Admin(cluster).elect_leaders(
                PREFERRED, [TopicPartition(TRANSACTIONS_TOPIC, index) for index in range(len(partitions))]
            )
        finally:
            await cluster.close()


def transaction_version(bootstrap: str) -> int:
    """The level of the feature, 0 where the broker tells none."""
    with RawConnection(bootstrap.partition(",")[0]) as connection:
        answer = connection.ask(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, ApiVersionsResponse
        )
    return {item.name: item.max_version_level for item in answer.finalized_features}.get("transaction.version", 0)


async def _create_topic(bootstrap: str) -> None:
    cluster = Cluster(bootstrap)
    try:
        await Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, _BROKERS)])
    finally:
        await cluster.close()


@contextmanager
def _brokers(release: str, directory: Path) -> Iterator[str]:
    """Three brokers, ours without a release; where they are."""
    if release:
        with ApacheKafka(release, directory, nodes=_BROKERS, heap="512m", settings=SETTINGS, log_level="OFF") as kafka:
            yield kafka.bootstrap
    else:
        with BrokerCluster(directory, brokers=_BROKERS, session_ms=10_000, settings=SETTINGS) as cluster:
            yield cluster.bootstrap


def run(release: str, minutes: float, between_moves_seconds: float) -> Load:
    """Every client at work for so long."""
    load = Load()
    with tempfile.TemporaryDirectory() as directory, _brokers(release, Path(directory) / "brokers") as bootstrap:
        asyncio.run(_create_topic(bootstrap))
        ends = time.monotonic() + minutes * 60
        try:
            load.start_java(bootstrap, 0)
            load.start_go(bootstrap, 0)
            load.start_librdkafka(bootstrap)
            coordinators = Coordinators(bootstrap)
            while (left := ends - time.monotonic()) > 0:
                if load.has_ended(min(left, between_moves_seconds)):
                    break
                if left > between_moves_seconds:
                    coordinators.move()
            load.stop()
        finally:
            load.end()
    return load


def kinds_of(errors: Mapping[str, Counter[str]]) -> Counter[tuple[str, str]]:
    """How often each client met each error, without numbers and names that differ from run to run."""
    found: Counter[tuple[str, str]] = Counter()
    for name, said in errors.items():
        for what, count in said.items():
            found[name, re.sub(r"\d+", "N", what)] += count
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.short_transactions",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--peer", metavar="RELEASE", help="a release of Apache Kafka, whose brokers are asked after ours"
    )
    parser.add_argument(
        "--moves", type=float, default=5.0, metavar="SECONDS", help="between two moves of the coordinators"
    )
    options = parser.parse_args()
    met = []
    for release in ("", options.peer) if options.peer else ("",):
        load = run(release, options.minutes, options.moves)
        met.append(kinds_of(load.errors))
        print(f"{f'Apache Kafka {release}' if release else 'jesenska'}: {dict(sorted(load.made.items()))}")
        for (name, what), count in met[-1].most_common():
            print(f"  {count} times {name}: {what}")
    unknown = met[0].keys() - (met[1].keys() if options.peer else set())
    print(f"{len(unknown)} errors that Apache Kafka does not give" if options.peer else f"{len(unknown)} errors")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
