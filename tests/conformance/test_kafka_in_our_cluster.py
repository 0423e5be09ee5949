"""A cluster of two brokers of jesenska and one of Apache Kafka 3.9.1, on our tree: each follows what the others lead,
byte for byte, whoever is controller."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.metadata import paths
from jesenska.metadata.nodes import ControllerNode, PartitionStateNode
from jesenska.metadata.store import Store
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.testing import BrokerProcess
from jesenska.testing.faults.processes import wait_until_stopped
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from tests.conformance.conftest import need, need_modules
from tests.conformance.disk import batches, segments
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.cli.groups import ask
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")

_OURS, _KAFKA = (1, 2), 3
_EVERYBODY = {*_OURS, _KAFKA}
_PREFERRED, _TOPIC = 0, 2
_SECONDS = 60.0
#: Leaders stay where they are until somebody asks, and topics come from those who make them.
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    # A follower that hangs leaves the ISR soon.
    "replica.lag.time.max.ms": "2000",
}


class Mixed:
    """The cluster. `first` is who starts first, and so is controller. With `two_directories` each broker has two."""

    def __init__(self, directory: Path, first: str, *, two_directories: bool = False) -> None:
        self._first = first
        self._two_directories = two_directories
        self._directory = directory
        self._stack = ExitStack()
        self._names = 0
        self.tree: ServedTree
        self.kafka: ApacheKafka
        self.ours: dict[int, BrokerProcess] = {}

    def __enter__(self) -> Mixed:
        with ExitStack() as stack:
            self.tree = stack.enter_context(ServedTree(config=ServerConfig(tick_ms=1000)))
            settings = {**_SETTINGS, **self._log_dirs(_KAFKA)}
            self.kafka = ApacheKafka(
                "3.9.1",
                self._directory / "kafka",
                heap="384m",
                settings=settings,
                zookeeper_connect=self.tree.address,
                first_id=_KAFKA,
            )
            for number in _OURS:
                settings = {
                    "broker.id": str(number),
                    "zookeeper.connect": self.tree.address,
                    **_SETTINGS,
                    **self._log_dirs(number),
                }
                self.ours[number] = BrokerProcess(self._directory / str(number), settings=settings, warm=True)
            in_order: list[AbstractContextManager[object]] = [*self.ours.values(), self.kafka]
            for broker in in_order if self._first == "jesenska" else in_order[::-1]:
                stack.enter_context(broker)
            for number in _EVERYBODY:
                self.until(partial(self._knows_everybody, number), f"broker {number} does not know the others")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # While there is a controller that it can ask.
        self.kafka.stop()
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in (*_OURS, _KAFKA))

    def address(self, broker_id: int) -> str:
        return self.kafka.bootstrap if broker_id == _KAFKA else self.ours[broker_id].bootstrap

    def _log_dirs(self, broker_id: int) -> dict[str, str]:
        if not self._two_directories:
            return {}
        return {"log.dirs": ",".join(str(self._directory / f"{name}-{broker_id}") for name in ("one", "two"))}

    def data(self, broker_id: int) -> Path:
        return self._directory / "kafka" / "data-0" if broker_id == _KAFKA else self.ours[broker_id].data

    def until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.02)

    # --- the tree ----------------------------------------------------------------------------------------------------

    @property
    def controller(self) -> int:
        tree = self.tree.server.tree.tree
        if tree.exists(paths.CONTROLLER) is None:
            return -1
        return ControllerNode.decode(tree.get(paths.CONTROLLER)[0] or b"").broker_id

    def elect_controller(self) -> None:
        """Elections until one of those is controller who are to be."""
        wanted = _OURS if self._first == "jesenska" else (_KAFKA,)

        async def work(cluster: Store) -> None:
            await cluster.delete(paths.CONTROLLER)

        self.until(lambda: self.controller >= 0, "nobody is controller")
        while self.controller not in wanted:
            asyncio.run(_in_tree(self.tree.address, work))
            self.until(lambda: self.controller >= 0, "nobody is controller")
        for number in _EVERYBODY:
            self.until(partial(self._tells_controller, number), f"broker {number} does not know the controller")

    def state(self, topic: str) -> PartitionStateNode:
        data, _ = self.tree.server.tree.tree.get(paths.partition_state(topic, 0))
        return PartitionStateNode.decode(data or b"")

    def until_in_sync(self, topic: str, brokers: Collection[int] = frozenset(_EVERYBODY)) -> None:
        self.until(lambda: set(self.state(topic).isr) == set(brokers), f"the ISR of {topic} does not become {brokers}")

    def until_led(self, topic: str, leader: int) -> None:
        """Returns when every broker that is up tells clients so."""
        self.until(lambda: self.state(topic).leader == leader, f"broker {leader} does not lead {topic}")
        for number in self._up():
            self.until(
                partial(self._tells_leader, number, topic, leader),
                f"broker {number} does not tell that {leader} leads {topic}",
            )

    # --- clients -----------------------------------------------------------------------------------------------------

    def _up(self) -> list[int]:
        return [int(name) for name in self.tree.server.tree.tree.children(paths.BROKER_IDS)[0]]

    def _knows_everybody(self, broker_id: int) -> bool:
        async def work(cluster: Cluster) -> bool:
            await cluster.refresh(())
            return set(cluster.nodes) == _EVERYBODY

        return ask(_At(self.address(broker_id)), work)

    def _tells_controller(self, broker_id: int) -> bool:
        async def work(cluster: Cluster) -> bool:
            await cluster.refresh(())
            return cluster.controller_id == self.controller

        return ask(_At(self.address(broker_id)), work)

    def _tells_leader(self, broker_id: int, topic: str, leader: int) -> bool:
        async def work(cluster: Cluster) -> bool:
            found = (await cluster.topics()).get(topic)
            return found is not None and [partition.leader for partition in found.partitions] == [leader]

        return ask(_At(self.address(broker_id)), work)

    def create(self, *replicas: int, name: str = "", **configs: str) -> str:
        """A topic of one partition, led by the first of these brokers."""
        self._names += 1
        name = name or f"topic-{self._names}"

        async def work(cluster: Cluster) -> None:
            made = NewTopic(
                name, assignment=[replicas], configs={key.replace("_", "."): value for key, value in configs.items()}
            )
            assert await Admin(cluster).create_topics([made]) == {name: None}

        ask(_At(self.bootstrap), work)
        self.until_led(name, replicas[0])
        self.until_in_sync(name, replicas)
        return name

    def move(self, topic: str, *replicas: int) -> None:
        """These brokers are to have the topic."""

        async def work(cluster: Cluster) -> None:
            moved = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=list(replicas))
            request = AlterPartitionReassignmentsRequest(
                topics=[AlterPartitionReassignmentsRequestTopic(name=topic, partitions=[moved])]
            )
            answer = await cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
            assert (
                answer.error_code,
                [item.error_code for found in answer.responses for item in found.partitions],
            ) in [(0, []), (0, [0])]

        ask(_At(self.bootstrap), work)

    def prefer_first(self, topic: str) -> None:
        async def work(cluster: Cluster) -> None:
            errors = await Admin(cluster).elect_leaders(_PREFERRED, [TopicPartition(topic, 0)])
            assert errors == {TopicPartition(topic, 0): None}

        ask(_At(self.bootstrap), work)

    def write(self, topic: str, count: int = 60, settings: Mapping[str, object] | None = None) -> list[int]:
        """Records with acks=all through librdkafka, in several batches: their offsets."""
        offsets: list[int] = []
        failed: list[object] = []

        def told(error: object, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failed.append(error)

        producer = _client.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "batch.num.messages": 10,
                "linger.ms": 0,
                "log_level": 0,
                **(settings or {}),
            }
        )
        for number in range(count):
            producer.produce(topic, b"value %d " % number * (number % 20), b"key %d" % number, 0, on_delivery=told)
            producer.poll(0)
        assert producer.flush(_SECONDS) == 0
        assert failed == []
        return offsets

    def log(self, broker_id: int, topic: str) -> bytes:
        """The batches of a partition as they stand in a broker's files. A file that is being written may end in
        zeros."""
        size = sum(header.size_bytes for header in batches(self.data(broker_id), topic))
        return b"".join(path.read_bytes() for path in segments(self.data(broker_id), topic))[:size]

    def require_equal_logs(self, topic: str, count: int, brokers: Collection[int] = frozenset(_EVERYBODY)) -> None:
        """These brokers have the same records, so many."""
        self.until(
            lambda: len({self.log(number, topic) for number in brokers}) == 1, f"the logs of {topic} are not equal"
        )
        assert list(batches(self.data(_KAFKA), topic))[-1].last_offset + 1 == count


async def _in_tree(address: str, work: Callable[[Store], Awaitable[None]]) -> None:
    store = await connect(address)
    try:
        await work(store)
    finally:
        await store.close()


class _At:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


#: Apache Kafka is controller: what it tells our brokers changes with them alone.
_LED_BY_KAFKA = pytest.param(
    "3.9.1",
    id="led by Kafka",
    marks=pytest.mark.hour(
        "src/jesenska/broker/replicas/order_receiver.py", "src/jesenska/broker/replicas/replica_manager.py"
    ),
)
_LED_BY_US = pytest.param("jesenska", id="led by jesenska")
led_by_kafka = pytest.mark.parametrize("mixed", [_LED_BY_KAFKA], indirect=True)


@pytest.fixture(scope="module", params=[_LED_BY_US, _LED_BY_KAFKA])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    need("java", "mvn")
    with Mixed(tmp_path_factory.mktemp("mixed"), request.param) as made:
        yield made


@pytest.fixture
def cluster(mixed: Mixed) -> Mixed:
    """A broker of ours is controller, or Apache Kafka's is."""
    mixed.elect_controller()
    return mixed


@pytest.mark.parametrize("leader", [1, 2, _KAFKA])
def test_everybody_follows_whoever_leads(cluster: Mixed, leader: int) -> None:
    topic = cluster.create(leader, *sorted(_EVERYBODY - {leader}))
    assert sorted(cluster.write(topic)) == list(range(60))
    assert sorted(cluster.write(topic, settings={"compression.type": "lz4", "enable.idempotence": True})) == list(
        range(60, 120)
    )
    cluster.require_equal_logs(topic, 120)
    cluster.until_in_sync(topic)


def test_kafka_leads_when_ours_stops_and_gives_back_what_it_led(cluster: Mixed) -> None:
    # Not the broker that is controller.
    mine = next(number for number in _OURS if number != cluster.controller)
    other = next(number for number in _OURS if number != mine)
    topic = cluster.create(mine, _KAFKA, other)
    cluster.write(topic)
    assert cluster.ours[mine].stop() == 0
    try:
        cluster.until_led(topic, _KAFKA)
        cluster.until_in_sync(topic, (_KAFKA, other))
        # Led by another before it was gone: one election, and no second one for its end.
        assert cluster.state(topic).leader_epoch == 1
        assert sorted(cluster.write(topic)) == list(range(60, 120))
    finally:
        cluster.ours[mine].start()
    cluster.until_in_sync(topic)
    cluster.require_equal_logs(topic, 120)
    assert cluster.state(topic).leader == _KAFKA
    cluster.prefer_first(topic)
    cluster.until_led(topic, mine)
    assert sorted(cluster.write(topic)) == list(range(120, 180))
    cluster.require_equal_logs(topic, 180)


def _committed(cluster: Mixed, broker_id: int, topic: str, commit: int | None = None) -> int:
    """The offset that a group has committed, as a broker finds the coordinator; after `commit`, if that is given."""
    at, wanted = (
        _client.TopicPartition,
        {"bootstrap.servers": cluster.address(broker_id), "group.id": "group", "log_level": 0},
    )
    consumer = _client.Consumer(wanted)
    try:
        if commit is not None:
            consumer.commit(offsets=[at(topic, 0, commit)], asynchronous=False)
        (found,) = consumer.committed([at(topic, 0)], _SECONDS)
        return int(found.offset)
    finally:
        consumer.close()


def test_groups_go_with_the_leader_of_their_partition(cluster: Mixed) -> None:
    """Each reads from its log what the other has written as coordinator."""
    mine = next(number for number in _OURS if number != cluster.controller)
    other = next(number for number in _OURS if number != mine)
    topic = cluster.create(mine)
    cluster.create(mine, _KAFKA, other, name="__consumer_offsets", cleanup_policy="compact")
    assert _committed(cluster, mine, topic, 7) == 7
    assert _committed(cluster, _KAFKA, topic) == 7
    assert cluster.ours[mine].stop() == 0
    try:
        cluster.until_led("__consumer_offsets", _KAFKA)
        assert _committed(cluster, other, topic) == 7
        assert _committed(cluster, _KAFKA, topic, 11) == 11
    finally:
        cluster.ours[mine].start()
    cluster.until_in_sync("__consumer_offsets")
    cluster.prefer_first("__consumer_offsets")
    cluster.until_led("__consumer_offsets", mine)
    assert _committed(cluster, _KAFKA, topic) == 11


def test_ours_that_was_killed_comes_back_and_follows_kafka(cluster: Mixed) -> None:
    mine = next(number for number in _OURS if number != cluster.controller)
    other = next(number for number in _OURS if number != mine)
    topic = cluster.create(mine, _KAFKA, other)
    cluster.write(topic)
    cluster.ours[mine].kill()
    try:
        cluster.until_led(topic, _KAFKA)
        assert sorted(cluster.write(topic)) == list(range(60, 120))
    finally:
        cluster.ours[mine].start()
    cluster.until_in_sync(topic)
    cluster.require_equal_logs(topic, 120)


@pytest.mark.parametrize("leads", ["ours", "Kafka"])
def test_a_follower_that_hangs_leaves_the_isr_and_comes_back(cluster: Mixed, leads: str) -> None:
    mine = next(number for number in _OURS if number != cluster.controller)
    leader, follower = (mine, _KAFKA) if leads == "ours" else (_KAFKA, mine)
    topic = cluster.create(leader, follower)
    cluster.write(topic)
    (pid,) = cluster.kafka.pids if follower == _KAFKA else (cluster.ours[mine].pid,)
    os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pid)
    try:
        # Acknowledged by all in sync: the leader alone, after a while. A client that asks the broker that hangs where
        # to write would wait for it.
        assert sorted(cluster.write(topic, settings={"bootstrap.servers": cluster.address(leader)})) == list(
            range(60, 120)
        )
        assert (cluster.state(topic).leader, cluster.state(topic).isr) == (leader, (leader,))
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.until_in_sync(topic, (leader, follower))
    assert sorted(cluster.write(topic)) == list(range(120, 180))
    cluster.require_equal_logs(topic, 180, (leader, follower))


@led_by_kafka
def test_replicas_move_to_ours_and_away_from_them(cluster: Mixed) -> None:
    """Ours cannot move replicas themselves yet, and do what another controller orders."""
    topic = cluster.create(1)
    cluster.write(topic)
    for replicas, gone in (((2, _KAFKA), 1), ((1, _KAFKA), 2), ((_KAFKA,), 1)):
        cluster.move(topic, *replicas)
        cluster.until_in_sync(topic, replicas)
        cluster.until_led(topic, cluster.state(topic).leader)
        cluster.require_equal_logs(topic, 60, replicas)
        cluster.until(partial(_is_gone, cluster.data(gone) / f"{topic}-0"), f"broker {gone} keeps {topic}")


def test_settings_of_a_topic_take_effect_on_every_broker(cluster: Mixed) -> None:
    topics = {leader: cluster.create(leader, *sorted(_EVERYBODY - {leader})) for leader in _EVERYBODY}

    async def lower(asked: Cluster) -> None:
        for topic in topics.values():
            await Admin(asked).alter_configs(_TOPIC, topic, [ConfigChange("max.message.bytes", "1000")])

    ask(_At(cluster.bootstrap), lower)
    for topic in topics.values():
        cluster.until(partial(_is_refused, cluster, topic), f"the setting of {topic} has no effect")
        assert cluster.write(topic, 10)


def _is_gone(path: Path) -> bool:
    return not path.exists()


def _is_refused(cluster: Mixed, topic: str) -> bool:
    """Whether a large record is, for its size."""
    outcomes: list[Any] = []
    producer = _client.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, bytes(5000), partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(_SECONDS) == 0
    (error,) = outcomes
    assert error is None or error.code() == _client.KafkaError.MSG_SIZE_TOO_LARGE
    return error is not None


def test_a_topic_goes_from_every_broker(cluster: Mixed) -> None:
    topic = cluster.create(1, 2, _KAFKA)

    async def delete(asked: Cluster) -> None:
        assert await Admin(asked).delete_topics([topic]) == {topic: None}

    ask(_At(cluster.bootstrap), delete)
    for number in _EVERYBODY:
        cluster.until(partial(_is_gone, cluster.data(number) / f"{topic}-0"), f"broker {number} keeps {topic}")
    cluster.until(
        lambda: cluster.tree.server.tree.tree.exists(paths.topic(topic)) is None, f"{topic} stays in the tree"
    )


@pytest.mark.parametrize("number", [1, 2, _KAFKA])
def test_every_broker_gives_producer_ids(cluster: Mixed, number: int) -> None:
    """Apache Kafka's asks the controller for them (AllocateProducerIds)."""
    given: list[InitProducerIdResponse] = []

    def is_given() -> bool:
        with RawConnection(cluster.address(number)) as connection:
            given.append(
                connection.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, InitProducerIdResponse
                )
            )
        return given[-1].error_code == ErrorCode.NONE

    cluster.until(is_given, f"broker {number} gives no producer id")
    assert given[-1].producer_id >= 0


@led_by_kafka
def test_ours_lead_and_control_when_kafka_stops(cluster: Mixed) -> None:
    """The controller stops, and leads something: both go to ours, and it follows when it is back."""
    topic = cluster.create(_KAFKA, *_OURS)
    cluster.write(topic)
    cluster.kafka.stop()
    try:
        cluster.until_led(topic, 1)
        cluster.until(lambda: cluster.controller in _OURS, "nobody is controller")
        assert sorted(cluster.write(topic)) == list(range(60, 120))
    finally:
        cluster.kafka.start()
    cluster.until_in_sync(topic)
    cluster.require_equal_logs(topic, 120)
    cluster.prefer_first(topic)
    cluster.until_led(topic, _KAFKA)
    assert sorted(cluster.write(topic)) == list(range(120, 180))
    cluster.require_equal_logs(topic, 180)


@pytest.mark.parametrize("first", [_LED_BY_US, _LED_BY_KAFKA])
def test_a_broker_that_loses_a_directory_is_heard_by_whoever_is_controller(tmp_path: Path, first: str) -> None:
    """A broker of each kind, in turn."""
    with Mixed(tmp_path, first, two_directories=True) as cluster:
        cluster.elect_controller()
        for hurt, other in ((_OURS[0], _KAFKA), (_KAFKA, _OURS[1])):
            topics = [cluster.create(hurt, other) for _ in range(2)]
            lost, kept = sorted(topics, key=lambda topic: not (tmp_path / f"one-{hurt}" / f"{topic}-0").exists())
            assert (tmp_path / f"two-{hurt}" / f"{kept}-0").exists()
            cluster.write(lost)
            (tmp_path / f"one-{hurt}").rename(tmp_path / f"away-{hurt}")
            # Both write their checkpoints of high watermarks every five seconds, and notice by that.
            cluster.write(kept)
            cluster.until_led(lost, other)
            assert cluster.state(kept).leader == hurt
            assert sorted(cluster.write(lost)) == list(range(60, 120))
            assert sorted(cluster.write(kept)) == list(range(60, 120))
