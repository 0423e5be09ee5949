"""The programs of a simulation: a broker, producers, members of a group, and a reader that reads everything at the
end. The programs use jesenska's own broker and client. There is also an operator, who deletes a node in ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jesenska.base.errors import KafkaError, TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import EARLIEST
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.config.layers import BrokerConfig
from jesenska.metadata import paths
from jesenska.metadata.tree_operations import TreeError
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.watches.history import History

GROUP = "group"
#: The number of empty polls after which the last reader assumes that it has read everything.
_QUIET_POLLS_MAX = 60
#: The session timeout of the operator in ZooKeeper in milliseconds, and the seconds for which the operator waits for
#: the end of a broker.
_OPERATORS_SESSION_MS, _OPERATORS_PATIENCE_SECONDS = 4000, 10.0


def cluster_of(process: Process, bootstrap: str) -> Cluster:
    """Returns a client's connection to the cluster, in this process."""
    return Cluster(
        bootstrap,
        ClientConfig(client_id=process.name, request_timeout_seconds=5.0, connect_timeout_seconds=2.0),
        clock=process.clock,
        chance=process.world.random.random,
        network=process.network,
    )


class BrokerProgram:
    """A broker whose data is in a directory."""

    def __init__(self, process: Process, data: Path, settings: Mapping[str, str]) -> None:
        self.process = process
        self.data = data
        self.broker: Broker | None = None
        self.is_ready = False
        self._settings = {"log.dirs": str(data), **settings}

    async def run(self) -> None:
        self.broker = Broker(BrokerConfig(self._settings), self.process.machine)
        await self.broker.start()
        self.is_ready = True
        self.process.world.tell(self.process.name, "is ready")

    def end(self) -> None:
        """Kills the broker. Its file locks are released, as at the end of a real process."""
        self.process.end()
        broker, self.broker = self.broker, None
        for directory in () if broker is None or broker.storage is None else broker.directories.directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    def high_watermarks(self) -> dict[TopicPartition, int]:
        if self.broker is None or not self.is_ready or self.process.is_dead:
            return {}
        topics = self.broker.view.topics.values()
        return {
            partition.topic_partition: partition.high_watermark
            for topic in topics
            for partition in topic.partitions
            if partition.is_served
        }


class _Client:
    """The base class of clients that use a topic until `is_stopping` is set."""

    def __init__(self, process: Process, history: History, bootstrap: str, topic: str) -> None:
        self.process = process
        self.is_stopping = False
        self._history = history
        self._bootstrap = bootstrap
        self._topic = topic


class Writer(_Client):
    """A producer that sends numbered records."""

    def __init__(self, process: Process, history: History, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(process, history, bootstrap, topic)
        self.acknowledged = 0
        self._partitions = partitions

    async def run(self) -> None:
        world, name = self.process.world, self.process.name
        cluster = cluster_of(self.process, self._bootstrap)
        producer = Producer(cluster, random_source=world.random, delivery_timeout_seconds=90.0, linger_seconds=0.01)
        number = 0
        while not self.is_stopping:
            value = f"{name}-{number}".encode() + b"." * world.random.choice((0, 0, 0, 100, 3000))
            try:
                future = await producer.send(self._topic, value, partition=number % self._partitions)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            future.add_done_callback(partial(self._acknowledged, value))
            number += 1
            await asyncio.sleep(world.random.choice((0.0, 0.01, 0.1, 0.5)))
        await producer.close()
        await cluster.close()
        world.tell(name, f"has sent {number} records, {self.acknowledged} acknowledged")

    def _acknowledged(self, value: bytes, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None or self.process.is_dead:
            return
        record_metadata = future.result()
        self.acknowledged += 1
        self._history.sent(
            TopicPartition(record_metadata.topic, record_metadata.partition), record_metadata.offset, value
        )


class SimulatedMember(_Client):
    """A member of the consumer group. It reads records, commits offsets, and reports both to the history."""

    def __init__(self, process: Process, history: History, bootstrap: str, topic: str) -> None:
        super().__init__(process, history, bootstrap, topic)
        self.read = 0
        self._expected: dict[TopicPartition, int] = {}
        #: The offsets at which this member must start its partitions, if they are known. Before this member reads,
        #: another member may commit later offsets: this happens if this member was cut off from the network and its
        #: partitions were assigned to the other member.
        self._starts: dict[TopicPartition, int | None] = {}
        self._membership = (-1, "")
        self._power_losses = 0
        #: Partitions in which a loss of power may have removed records that this member has read. In each of these
        #: partitions the member may go back to an earlier offset once.
        self._may_restart: set[TopicPartition] = set()

    async def run(self) -> None:
        world, name, history = self.process.world, self.process.name, self._history
        cluster = cluster_of(self.process, self._bootstrap)
        consumer = GroupConsumer(
            cluster,
            GROUP,
            [self._topic],
            MembershipOptions(session_timeout_seconds=6.0, heartbeat_seconds=1.0, max_poll_interval_seconds=10.0),
            auto_commit_seconds=None,
            auto_offset_reset="earliest",
        )
        while not self.is_stopping:
            try:
                records = await consumer.poll(0.5)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            if history.power_losses != self._power_losses:
                self._power_losses, self._expected, self._starts = history.power_losses, {}, {}
                self._may_restart = set(consumer.assignment())
            membership = (consumer.generation, consumer.member_id)
            if membership != self._membership and consumer.generation >= 0:
                self._membership = membership
                self._expected = {}
                self._starts = {key: history.start_of(GROUP, key) for key in consumer.assignment()}
                history.owns(GROUP, consumer.generation, name, consumer.assignment())
                world.tell(
                    name,
                    f"is in generation {consumer.generation} with "
                    f"{sorted(key.partition for key in consumer.assignment())}",
                )
            for key, found in records.items():
                for record in found:
                    expected = self._expected.get(key, self._starts.get(key))
                    if expected is not None and record.offset < expected and key in self._may_restart:
                        self._may_restart.remove(key)
                        expected = None
                    history.received(
                        name,
                        key,
                        record.offset,
                        record.value or b"",
                        record.offset if expected is None else expected,
                        of_group=True,
                    )
                    self._expected[key] = record.offset + 1
                    self.read += 1
            if records and world.random.random() < 0.5:
                await self._commit(consumer)
        await consumer.close()
        await cluster.close()
        world.tell(name, f"has read {self.read} records")

    async def _commit(self, consumer: GroupConsumer) -> None:
        offsets = {key: offset for key, offset in self._expected.items() if key in consumer.assignment()}
        power_losses = self._history.power_losses
        try:
            await consumer.commit(offsets)
        except KafkaError:
            return
        if self._history.power_losses != power_losses:
            return  # the answering broker may have lost it since
        for key, offset in offsets.items():
            self._history.committed(GROUP, key, offset)
        for key, offset in (await self._committed(consumer, list(offsets))).items():
            self._history.found_committed(GROUP, key, offset)

    async def _committed(self, consumer: GroupConsumer, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        try:
            return await consumer.committed(keys)
        except KafkaError:
            return {}


async def create_topic(
    process: Process, bootstrap: str, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
) -> None:
    """Creates a topic. Repeats the request until the topic exists."""
    cluster = cluster_of(process, bootstrap)
    while True:
        try:
            for error in (
                await Admin(cluster).create_topics([NewTopic(name, partitions, replicas, configs=dict(settings))])
            ).values():
                # An earlier request without a response may have created it.
                if error is not None and not isinstance(error, TopicAlreadyExistsError):
                    raise error
            break
        except KafkaError:
            await asyncio.sleep(0.5)
    await cluster.close()


async def take_controllers_place(process: Process, tree: str, gone: int, pause_seconds: float) -> None:
    """Acts as an operator: deletes ZooKeeper's node of the controller. This is done soon after the node of the broker
    `gone` has disappeared, so the controller is replaced at that moment."""
    machine, went = process.machine, asyncio.Event()

    def changed(_: WatchEvent) -> None:
        went.set()

    try:
        store = await ZooKeeperStore.connect(
            ConnectString.parse(tree),
            session_timeout_ms=_OPERATORS_SESSION_MS,
            streams=machine.streams,
            random=machine.random,
        )
    except TreeError as error:
        process.world.tell(process.name, f"cannot reach the tree: {error}")
        return
    try:
        if await store.exists(paths.broker(gone), changed) is not None:
            await asyncio.wait_for(went.wait(), _OPERATORS_PATIENCE_SECONDS)
        await asyncio.sleep(pause_seconds)
        await store.delete(paths.CONTROLLER)
        process.world.tell(process.name, "has taken the controller's place away")
    except (TreeError, TimeoutError) as error:
        process.world.tell(process.name, f"does not take the controller's place away: {type(error).__name__}")
    finally:
        await store.close()


async def read_everything(
    process: Process, history: History, bootstrap: str, topic: str, partitions: int
) -> dict[TopicPartition, int]:
    """Reads each partition from its beginning to its end. Returns the end offsets."""
    cluster = cluster_of(process, bootstrap)
    consumer = Consumer(cluster, max_wait_seconds=0.2)
    keys = [TopicPartition(topic, number) for number in range(partitions)]
    expected = dict.fromkeys(keys, 0)
    while True:
        try:
            await consumer.assign(dict.fromkeys(keys, EARLIEST))
            break
        except KafkaError:
            await asyncio.sleep(0.5)
    quiet = 0
    # If acknowledged records are missing, the reader waits longer, since there may be no leader yet or a slow disk.
    while quiet < 3 or (
        quiet < _QUIET_POLLS_MAX and any(place.offset >= expected[place.partition] for place in history.acknowledged)
    ):
        found = await consumer.poll(0.5)
        quiet = 0 if found else quiet + 1
        for key, records in found.items():
            for record in records:
                history.received("the last reader", key, record.offset, record.value or b"", expected[key])
                history.next_of_all(key, record.value or b"")
                expected[key] = record.offset + 1
    await consumer.close()
    await cluster.close()
    return expected
