"""Several brokers as processes on one tree, for tests: started beside each other, killed, paused, stopped, started
again, and each asked what it tells its clients.

    with BrokerCluster(tmp_path) as cluster:
        cluster.create("t", 3)
        cluster.brokers[2].kill()       # SIGKILL; or stop(), pause(), resume()
        cluster.until(lambda view: view.of("t").leader not in (-1, 2))
        cluster.brokers[2].start()      # the same port, the same data
        cluster.until_whole()

The tests are right where Apache Kafka passes them, too. JESENSKA_CLUSTER_OF=3.9.1 has the brokers be Apache Kafka's,
on our tree:

    JESENSKA_CLUSTER_OF=3.9.1 python -m pytest tests/cluster"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pytest

from jesenska.base.errors import ErrorCode, KafkaError, TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import PREFERRED, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, decode_controller_epoch
from jesenska.metadata.tree_operations import NoNodeError
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.records.batch import iter_headers
from jesenska.records.record import Record
from jesenska.testing.faults import FaultProxy
from jesenska.testing.faults.load import cluster_of
from jesenska.testing.tree import TreeProcess
from tests.cluster.kafka_process import KafkaProcess
from tests.cluster.members import Broker, OurProcess, Tree
from tests.cluster.one_request import coordinator
from tests.cluster.view import View, view_of
from tests.peers.apache_kafka import free_port
from tests.raw_connection import ClosedByBrokerError

Value = TypeVar("Value")

#: The release of Apache Kafka whose brokers stand in the place of ours; empty: ours.
RELEASE = os.environ.get("JESENSKA_CLUSTER_OF", "")
ours_only = pytest.mark.skipif(bool(RELEASE), reason="Apache Kafka does this otherwise")

SECONDS = 90.0
_LOOK_SECONDS = 0.03
_STACK = "Traceback (most recent call last)"
_TREE = {"tickTime": "200", "maxSessionTimeout": "60000"}
#: What most tests want: small topics of Kafka's own, nothing that waits for long, leaders that stay where they are.
_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "replica.fetch.backoff.ms": "100",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class BrokerCluster:
    """Brokers 1 to `brokers` on a tree; `with` starts and ends them. `settings` are those of every broker.

    At the end of a block that went well, no broker may have logged a stack trace."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        session_ms: int = 1500,
        settings: Mapping[str, str] | None = None,
        proxied: bool = False,
        log_dirs: Sequence[str] = (),
    ) -> None:
        """`session_ms`: for so long the tree keeps the place of a broker that does not answer. `log_dirs`: names of
        several log directories of each broker, in its `data`."""
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._count = brokers
        self._settings = {**_SETTINGS, "zookeeper.session.timeout.ms": str(session_ms), **(settings or {})}
        self._is_proxied = proxied
        self._log_dirs = log_dirs
        self._proxies: list[FaultProxy] = []
        self.session_seconds = session_ms / 1000
        self.tree = Tree(TreeProcess(directory, _TREE))
        self.brokers: dict[int, Broker] = {}

    # --- processes ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> BrokerCluster:
        return self.begin(range(1, self._count + 1))

    def begin(self, broker_ids: Iterable[int]) -> BrokerCluster:
        """Starts the tree and these brokers, and returns when they know each other. `end` is to be called."""
        try:
            self.tree.start()
            self.add(broker_ids)
            self.until_whole()
        except BaseException:
            self.end()
            raise
        return self

    def add(self, broker_ids: Iterable[int]) -> None:
        """Starts further brokers beside each other."""
        wanted = list(broker_ids)
        for broker_id in wanted:
            self.brokers[broker_id] = self._make(broker_id)
        each(wanted, lambda broker_id: self.brokers[broker_id].start())

    def _make(self, broker_id: int) -> Broker:
        settings = {**self._settings, "broker.id": str(broker_id), "zookeeper.connect": self.tree.address}
        proxy = tree_proxy = None
        if self._is_proxied:
            proxy, tree_proxy = FaultProxy().__enter__(), FaultProxy().__enter__()
            self._proxies += [proxy, tree_proxy]
            tree_proxy.target = self.tree.address
            settings |= {
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
                "zookeeper.connect": tree_proxy.address,
            }
        data = self._directory / f"broker-{broker_id}"
        if self._log_dirs:
            settings["log.dirs"] = ",".join(str(data / name) for name in self._log_dirs)
        process = KafkaProcess(RELEASE, data, settings) if RELEASE else OurProcess(data, settings=settings, warm=True)
        if proxy is not None:
            # It is up once a controller has told it of its partitions, which comes through the proxy.
            process.port = process.port or free_port()
            proxy.target = process.address
        return Broker(broker_id, process, proxy, tree_proxy)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is not None:
            error.add_note(self.last_words())
        elif not RELEASE:
            stacks = {
                broker.broker_id: _around_stack(broker.log) for broker in self.brokers.values() if _STACK in broker.log
            }
            assert not stacks, "\n".join(
                f"broker {broker_id} has logged a stack trace: {text}" for broker_id, text in stacks.items()
            )

    def end(self) -> None:
        """Ends everything at once; data and logs stay."""
        each(self.brokers.values(), lambda broker: broker.kill())
        self.tree.kill()
        for proxy in self._proxies:
            proxy.__exit__(None, None, None)

    def last_words(self) -> str:
        """The ends of the brokers' logs."""
        return "\n".join(f"--- broker {broker.broker_id}\n{broker.log[-4000:]}" for broker in self.brokers.values())

    def _failure(self, sentence: str) -> AssertionError:
        error = AssertionError(sentence)
        error.add_note(self.last_words())
        return error

    def heal(self) -> None:
        """Everything runs, and all replicas are in sync."""
        self.tree.heal()
        each(self.brokers.values(), lambda broker: broker.heal())
        self.until_whole()

    @property
    def answering(self) -> list[int]:
        """The brokers that run and are not paused."""
        return [broker_id for broker_id, broker in self.brokers.items() if broker.answers]

    # --- what brokers tell -------------------------------------------------------------------------------------------

    def view(self, broker_id: int | None = None) -> View:
        """What this broker tells; without one, the first that answers."""
        return view_of(self.brokers[self.answering[0] if broker_id is None else broker_id].address)

    def views(self) -> dict[int, View]:
        """What each of those tells that answer."""
        return {broker_id: self.view(broker_id) for broker_id in self.answering}

    def until(
        self, is_so: Callable[[View], bool], brokers: Collection[int] | None = None, seconds: float = SECONDS
    ) -> View:
        """Returns, with the view of one, when each of these brokers (of all that answer) tells what is so.
        AssertionError with what they told last."""
        views = self.until_all(lambda views: all(is_so(view) for view in views.values()), brokers, seconds)
        return next(iter(views.values()))

    def until_all(
        self,
        are_so: Callable[[dict[int, View]], bool],
        brokers: Collection[int] | None = None,
        seconds: float = SECONDS,
    ) -> dict[int, View]:
        """The same of all views together."""
        deadline = time.monotonic() + seconds
        while True:
            wanted = self.answering if brokers is None else list(brokers)
            views: dict[int, View] = {}
            failures: dict[int, Exception] = {}
            for broker_id in wanted:
                try:
                    views[broker_id] = self.view(broker_id)
                except (OSError, ClosedByBrokerError) as error:
                    failures[broker_id] = error
            if views and not failures and are_so(views):
                return views
            if time.monotonic() > deadline:
                raise self._failure(f"after {seconds:g} s brokers tell {views}, and do not answer {failures}")
            time.sleep(_LOOK_SECONDS)

    def until_whole(self, seconds: float = SECONDS) -> None:
        """All brokers run, know each other and the same controller, and all replicas of everything are in sync."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                lacking = self._lacking({broker_id: self.view(broker_id) for broker_id in self.brokers})
            except (OSError, ClosedByBrokerError) as error:
                lacking = [f"not every broker answers: {error!r}"]
            if not lacking:
                return
            if time.monotonic() > deadline:
                raise self._failure(f"after {seconds:g} s the cluster is not whole: {'; '.join(lacking[:20])}")
            time.sleep(_LOOK_SECONDS)

    def _lacking(self, views: Mapping[int, View]) -> list[str]:
        """What the views lack of a whole cluster."""
        addresses = {broker.broker_id: broker.advertised for broker in self.brokers.values()}
        lacking = [
            f"broker {broker_id} knows the brokers {sorted(view.brokers)}"
            for broker_id, view in views.items()
            if view.brokers != addresses
        ]
        controllers = {broker_id: view.controller for broker_id, view in views.items()}
        if len(set(controllers.values())) > 1 or not set(controllers.values()) <= set(addresses):
            lacking.append(f"controllers by broker are {controllers}")
        for broker_id, view in views.items():
            for topic, partitions in view.topics.items():
                lacking += [
                    f"broker {broker_id} tells of {topic}-{number} {each}"
                    for number, each in enumerate(partitions)
                    if not each.is_whole
                ]
        return lacking

    def controller(self) -> int:
        """The broker that all call the controller."""
        views = self.until_all(lambda views: len({view.controller for view in views.values()} - {-1}) == 1)
        return next(iter(views.values())).controller

    def coordinator(self, group: str) -> int:
        """The broker that all that answer name as a group's coordinator, once there is one."""
        named: set[tuple[ErrorCode, int]] = set()

        def is_one() -> bool:
            named.clear()
            try:
                named.update(coordinator(self.brokers[broker_id].address, group) for broker_id in self.answering)
            except (OSError, ClosedByBrokerError):
                return False
            return len(named) == 1 and all(code == ErrorCode.NONE for code, _ in named)

        until(is_one, f"brokers do not name one coordinator of {group}")
        return next(iter(named))[1]

    # --- what the tree says ------------------------------------------------------------------------------------------

    def node(self, path: str) -> bytes | None:
        """The data of a node of the tree; None where there is none."""

        async def work() -> bytes | None:
            store = await connect(self.tree.address, session_timeout_ms=20_000)
            try:
                return (await store.get(path))[0]
            except NoNodeError:
                return None
            finally:
                await store.close()

        return asyncio.run(work())

    def state(self, topic: str, number: int = 0) -> PartitionStateNode:
        data = self.node(paths.partition_state(topic, number))
        assert data is not None, f"{topic}-{number} has no state"
        return PartitionStateNode.decode(data)

    def controller_epoch(self) -> int:
        data = self.node(paths.CONTROLLER_EPOCH)
        assert data is not None
        return decode_controller_epoch(data)

    # --- clients -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """What clients are told of: every broker."""
        return ",".join(broker.advertised for broker in self.brokers.values())

    def ask(self, work: Callable[[Cluster], Awaitable[Value]], seconds: float = SECONDS) -> Value:
        """Runs something on a client that knows the brokers that answer. TimeoutError where it takes too long."""

        async def main() -> Value:
            client = cluster_of(",".join(self.brokers[broker_id].advertised for broker_id in self.answering), "test")
            try:
                async with asyncio.timeout(seconds):
                    return await work(client)
            finally:
                await client.close()

        return asyncio.run(main())

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int | None = None,
        placed: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """A topic with a replica on every broker, unless said otherwise; returns when all that answer tell that all
        its replicas are in sync."""
        new = NewTopic(name, partitions, replicas or len(self.answering), configs or {}, placed)
        self.ask(lambda client: _create(client, new))
        count = len(placed) or partitions
        self.until(
            lambda view: (
                len(view.topics.get(name, ())) == count and all(partition.is_whole for partition in view.topics[name])
            )
        )
        return name

    def elect_preferred(self, topic: str, partition: int = 0) -> None:
        """Has the first replica lead, and returns when all tell that it does."""
        key = TopicPartition(topic, partition)

        async def work(client: Cluster) -> None:
            await Admin(client).elect_leaders(PREFERRED, [key])

        self.ask(work)
        self.until(lambda view: view.of(topic, partition).leader == view.of(topic, partition).replicas[0])

    def write(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        partition: int = 0,
        timestamp_ms: int | None = None,
        **options: Any,
    ) -> list[int]:
        """Writes records in this order, with acks=all unless said otherwise; their offsets."""

        async def work(client: Cluster) -> list[int]:
            async with Producer(client, **options) as producer:
                sent = [
                    await producer.send(topic, value, partition=partition, timestamp_ms=timestamp_ms)
                    for value in values
                ]
                await producer.flush()
                return [(await future).offset for future in sent]

        return self.ask(work)

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        """Every record that is committed now, from the log's beginning."""

        async def work(client: Cluster) -> list[Record]:
            key = TopicPartition(topic, partition)
            end = (await list_offsets(client, {key: LATEST}))[key].offset
            found: list[Record] = []
            async with Consumer(client, auto_offset_reset="none") as consumer:
                await consumer.assign({key: EARLIEST})
                while consumer.position(key) < end:
                    found += (await consumer.poll(1, 10_000)).get(key, [])
            return [record for record in found if record.offset < end]

        return self.ask(work)

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Their values."""
        return [record.value for record in self.read(topic, partition)]

    # --- logs --------------------------------------------------------------------------------------------------------

    def log_bytes(self, broker_id: int, topic: str, partition: int = 0) -> bytes:
        """What a broker has of a partition on its disk, over all segments."""
        data = self.brokers[broker_id].data
        found = (
            path for name in self._log_dirs or (".",) for path in (data / name / f"{topic}-{partition}").glob("*.log")
        )
        return b"".join(path.read_bytes() for path in sorted(found))

    def until_logs_equal(self, topic: str, partitions: int = 1, seconds: float = SECONDS) -> None:
        """Returns when the replicas of each partition have the same bytes, and one partition has some. AssertionError
        with the ends of the logs otherwise."""
        deadline = time.monotonic() + seconds
        replicas = [self.view().of(topic, number).replicas for number in range(partitions)]
        assert all(replicas), f"nobody knows all partitions of {topic}"
        while True:
            logs = [
                {broker_id: self.log_bytes(broker_id, topic, number) for broker_id in brokers}
                for number, brokers in enumerate(replicas)
            ]
            unequal = {number: found for number, found in enumerate(logs) if len(set(found.values())) > 1}
            if not unequal and any(any(found.values()) for found in logs):
                return
            if time.monotonic() > deadline:
                raise self._failure(
                    "; ".join(
                        f"the logs of {topic}-{number} differ: {difference(found)}" for number, found in unequal.items()
                    )
                    or "no records"
                )
            time.sleep(_LOOK_SECONDS)

    def high_watermark(self, broker_id: int, topic: str, partition: int = 0) -> int:
        """What a broker has noted on its disk; -1 where it has noted nothing."""
        file = self.brokers[broker_id].data / "replication-offset-checkpoint"
        for line in file.read_text().splitlines()[2:] if file.exists() else ():
            name, number, offset = line.split()
            if (name, int(number)) == (topic, partition):
                return int(offset)
        return -1


async def _create(client: Cluster, new: NewTopic) -> None:
    """Also while the controller is about to be another one."""
    is_first = True
    while True:
        try:
            error = (await Admin(client).create_topics([new]))[new.name]
        except KafkaError as failed:
            error = failed
        if error is None or (isinstance(error, TopicAlreadyExistsError) and not is_first):
            return
        # Apache Kafka's controller has no better word for a tree that it has just lost.
        if not error.retriable and not (RELEASE and error.code == ErrorCode.UNKNOWN_SERVER_ERROR):
            raise error
        is_first = False
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await client.refresh([])
        except KafkaError:
            pass  # nobody answers at present


def each(items: Iterable[Value], work: Callable[[Value], object]) -> None:
    """Does it to all of them at the same time; raises what one of them raised."""
    wanted = list(items)
    with ThreadPoolExecutor(max(1, len(wanted))) as threads:
        for done in [threads.submit(work, item) for item in wanted]:
            done.result()


def until(is_so: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Returns when it is so; AssertionError with `what` otherwise."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {what}"
        time.sleep(_LOOK_SECONDS)


def _around_stack(log: str) -> str:
    place = log.index(_STACK)
    return log[max(0, place - 1000) : place + 3000]


def difference(logs: Mapping[int, bytes]) -> str:
    """How many bytes the logs of some brokers have in common, and their batches behind that."""
    shortest = min(map(len, logs.values()))
    common = next(
        (place for place, found in enumerate(zip(*logs.values(), strict=False)) if len(set(found)) > 1), shortest
    )
    told = []
    for broker_id, data in logs.items():
        behind = [header for position, header in iter_headers(data) if position + header.size_bytes > common]
        batches = [(header.base_offset, header.last_offset, header.partition_leader_epoch) for header in behind[:5]]
        told.append(
            f"broker {broker_id} has {len(data)} bytes, then (base offset, last offset, leader epoch) {batches}"
        )
    return f"{common} bytes are the same; {'; '.join(told)}"
