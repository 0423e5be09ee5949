"""Consumers that read from followers (KIP-392): the same raw requests to two brokers of jesenska and to two of Apache
Kafka 3.9.1, of which one leads in rack a and the other follows in rack b, each pair on a tree of ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import ConfigChange
from jesenska.client.administration.topic_administration import PREFERRED
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.config.replica_selectors import RACK_AWARE
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from tests.conformance.conftest import need
from tests.old_requests import produce
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree
from tests.units.log.log_harness import make_batch

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

_LEADER, _FOLLOWER, _NOBODY = 0, 1, 9
_RACKS = {_LEADER: "a", _FOLLOWER: "b"}
_SECONDS = 60.0
_SETTINGS = {
    "replica.selector.class": RACK_AWARE,
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
#: One replica that is not there keeps what is new from being committed, from when all are asked for.
#: The last three are not compared.
_HELD, _FREE, _READ, _HEARD, _PROBE = "held", "free", "read", "heard", "probe"
_BOTH = [_LEADER, _FOLLOWER]
_TOPICS = {
    _HELD: {"0": [*_BOTH, _NOBODY]},
    _FREE: {"0": _BOTH, "1": _BOTH},
    _READ: {"0": _BOTH},
    _HEARD: {"0": _BOTH},
    _PROBE: {"0": [*_BOTH, _NOBODY]},
}
_READ_RECORDS = 2000
_START, _COMMITTED, _END = 1, 5, 7
_FIRST_WITH_EPOCHS, _FIRST_WITH_RACKS = 9, 11


class Side:
    """Two brokers, and connections to both."""

    def __init__(self, stack: ExitStack, start: Callable[[int, str], Any]) -> None:
        tree = stack.enter_context(ServedTree())
        self.tree = tree
        self.brokers: dict[int, Any] = {}
        self.links: dict[int, RawConnection] = {}
        for broker_id in (_FOLLOWER, _LEADER):
            self.brokers[broker_id] = stack.enter_context(start(broker_id, tree.address))
            self.links[broker_id] = RawConnection(self.brokers[broker_id].bootstrap, _SECONDS)
            stack.callback(self.links[broker_id].socket.close)
            if broker_id == _FOLLOWER:
                # It leads while it is alone, so that the other one leads in another epoch than the first.
                asyncio.run(self._write_topics())
                for topic in _TOPICS:
                    self._until_led(topic, _FOLLOWER)
                self.write(_HELD, _FOLLOWER, 3)
        self._until(
            lambda: all(set(self._state(topic).isr) == {_LEADER, _FOLLOWER} for topic in _TOPICS),
            "they do not come into sync",
        )
        self.on_leader(self._prefer)
        for topic in _TOPICS:
            self._until_led(topic, _LEADER)
        self.ids = {topic: self._until_led(topic, _LEADER) for topic in _TOPICS}
        self.write(_HELD, _LEADER, _COMMITTED - 3)
        self._until(
            lambda: self.high_watermark(_FOLLOWER, _HELD) == _COMMITTED, "the follower does not hear what is committed"
        )
        self.on_leader(self._hold)
        # Settings are taken in the order in which they were changed, and the probe's was the last.
        self._until(lambda: self._refuses(_PROBE), "what is new goes on to be committed")
        self.write(_HELD, _LEADER, _END - _COMMITTED)
        self._until(lambda: self.offset(_FOLLOWER, _HELD, -2, -1, 5)[1] == _END, "the follower does not get everything")
        self._until(
            lambda: (
                self.fetch(_FOLLOWER, 12, [(_HELD, 0, _START, -1)]).responses[0].partitions[0].log_start_offset
                == _START
            ),
            "its log does not start there",
        )

    async def _write_topics(self) -> None:
        store = await connect(self.tree.address)
        try:
            for topic, partitions in _TOPICS.items():
                await store.create(paths.topic_config(topic), nodes.encode_config({"retention.ms": "-1"}))
                await store.create(paths.topic(topic), json.dumps({"version": 1, "partitions": partitions}).encode())
        finally:
            await store.close()

    async def _prefer(self, cluster: Cluster) -> None:
        keys = [TopicPartition(topic, int(number)) for topic, partitions in _TOPICS.items() for number in partitions]
        assert set((await Admin(cluster).elect_leaders(PREFERRED, keys)).values()) == {None}

    async def _hold(self, cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.delete_records({TopicPartition(_HELD, 0): _START})
        for topic in (_HELD, _PROBE):
            await admin.alter_configs(2, topic, [ConfigChange("min.insync.replicas", "3")])

    def _refuses(self, topic: str) -> bool:
        return produce(self.links[_LEADER], topic, 3, make_batch(), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    def on_leader(self, work: Callable[[Cluster], Awaitable[None]]) -> None:
        async def main() -> None:
            cluster = Cluster(self.brokers[_LEADER].bootstrap)
            try:
                await work(cluster)
            finally:
                await cluster.close()

        asyncio.run(main())

    def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.02)

    def _until_led(self, topic: str, leader: int) -> uuid.UUID:
        """The topic's id, when every broker that is up tells that this one leads."""
        found: list[uuid.UUID] = []

        def is_led() -> bool:
            found.clear()
            for link in self.links.values():
                answer = link.ask(
                    MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
                    10,
                    MetadataResponse,
                )
                (told,) = answer.topics
                if (
                    not told.partitions
                    or {part.leader_id for part in told.partitions} != {leader}
                    or told.topic_id == NO_UUID
                ):
                    return False
                found.append(told.topic_id)
            return True

        self._until(is_led, f"broker {leader} does not lead {topic}")
        return found[0]

    def _state(self, topic: str) -> PartitionStateNode:
        data, _ = self.tree.server.tree.tree.get(paths.partition_state(topic, 0))
        return PartitionStateNode.decode(data or b"")

    def write(self, topic: str, broker_id: int, count: int) -> None:
        for _ in range(count):
            assert produce(self.links[broker_id], topic, 3, make_batch()).error_code == ErrorCode.NONE

    # --- requests ----------------------------------------------------------------------------------------------------

    def fetch(
        self,
        broker_id: int,
        version: int,
        wanted: list[tuple[str, int, int, int]],
        *,
        replica: int = -1,
        rack: str = "",
        session: tuple[int, int] = (0, -1),
        forget: tuple[tuple[str, int], ...] = (),
        max_wait_ms: int = 0,
        isolation: int = 0,
    ) -> FetchResponse:
        """`wanted`: topic, partition, offset and current leader epoch of each."""
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            rack_id=rack,
            isolation_level=isolation,
        )
        for topic, number, offset, epoch in wanted:
            part = FetchRequestPartition(
                partition=number, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20
            )
            request.topics.append(FetchRequestTopic(topic=topic, topic_id=self.id_of(topic), partitions=[part]))
        for topic, number in forget:
            request.forgotten_topics_data.append(
                FetchRequestForgottenTopicsData(topic=topic, topic_id=self.id_of(topic), partitions=[number])
            )
        if version >= 15:
            request.replica_state = FetchRequestReplicaState(replica_id=replica)
        else:
            request.replica_id = replica
        return self.links[broker_id].ask(request, version, FetchResponse)

    def id_of(self, topic: str) -> uuid.UUID:
        return self.ids.get(topic, uuid.UUID(int=77)) if hasattr(self, "ids") else NO_UUID

    def high_watermark(self, broker_id: int, topic: str) -> int:
        return self.fetch(broker_id, 12, [(topic, 0, 0, -1)]).responses[0].partitions[0].high_watermark

    def told(self, answer: FetchResponse) -> list[tuple[object, ...]]:
        """What is compared of an answer."""
        names = {topic_id: topic for topic, topic_id in self.ids.items()}
        found: list[tuple[object, ...]] = [(ErrorCode(answer.error_code), answer.session_id > 0)]
        found += [
            (topic.topic or names.get(topic.topic_id, "?"), part.partition_index, *_told_of(part))
            for topic in answer.responses
            for part in topic.partitions
        ]
        found += sorted((node.node_id, node.rack) for node in answer.node_endpoints)
        return found

    def offset(
        self,
        broker_id: int,
        topic: str,
        replica: int,
        timestamp: int,
        version: int,
        epoch: int = -1,
        isolation: int = 0,
    ) -> tuple[object, ...]:
        asked = ListOffsetsRequestPartition(
            partition_index=0, timestamp=timestamp, current_leader_epoch=epoch if version >= 4 else -1
        )
        if not version:
            asked.max_num_offsets = 3
        request = ListOffsetsRequest(
            replica_id=replica, topics=[ListOffsetsRequestTopic(name=topic, partitions=[asked])]
        )
        request.isolation_level = isolation if version >= 2 else 0
        found = self.links[broker_id].ask(request, version, ListOffsetsResponse).topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset, found.timestamp, found.leader_epoch, found.old_style_offsets

    def epoch_end(
        self, broker_id: int, version: int, replica: int, current_epoch: int, epoch: int
    ) -> tuple[object, ...]:
        asked = OffsetForLeaderEpochRequestPartition(
            partition=0, current_leader_epoch=current_epoch if version >= 2 else -1, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[OffsetForLeaderEpochRequestTopic(topic=_HELD, partitions=[asked])]
        )
        found = self.links[broker_id].ask(request, version, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        return ErrorCode(found.error_code), found.leader_epoch, found.end_offset


def _told_of(part: FetchResponsePartition) -> tuple[object, ...]:
    leader, diverging = part.current_leader, part.diverging_epoch
    return (
        ErrorCode(part.error_code),
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.preferred_read_replica,
        part.aborted_transactions,
        (leader.leader_id, leader.leader_epoch),
        (diverging.epoch, diverging.end_offset),
        bytes(part.records or b""),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    need("java", "mvn")
    directory: Path = tmp_path_factory.mktemp("near")

    def ours(broker_id: int, tree: str) -> BrokerProcess:
        settings = {
            "broker.id": str(broker_id),
            "broker.rack": _RACKS[broker_id],
            "zookeeper.connect": tree,
            **_SETTINGS,
        }
        # A follower of ours is told at once what is committed: nobody waits for as long.
        settings["replica.fetch.wait.max.ms"] = "25000"
        return BrokerProcess(directory / f"ours-{broker_id}", settings=settings, warm=True)

    def theirs(broker_id: int, tree: str) -> ApacheKafka:
        settings = {"broker.rack": _RACKS[broker_id], **_SETTINGS}
        return ApacheKafka(
            "3.9.1",
            directory / f"kafka-{broker_id}",
            heap="384m",
            settings=settings,
            zookeeper_connect=tree,
            first_id=broker_id,
        )

    with ExitStack() as one, ExitStack() as other, ThreadPoolExecutor(2) as threads:
        made = [threads.submit(Side, stack, start) for stack, start in ((one, ours), (other, theirs))]
        yield made[0].result(), made[1].result()


# The epoch of the leader is 1, and was 0.
_ASKED = [
    *(
        (_HELD, 0, offset, epoch)
        for epoch in (-1, 1)
        for offset in (-1, 0, _START, 2, 3, _COMMITTED - 1, _COMMITTED, _COMMITTED + 1, _END, _END + 1, 1000)
    ),
    *((_HELD, 0, 2, epoch) for epoch in (0, 2, -3)),
    (_HELD, 0, 1000, 0),
    (_HELD, 5, 0, -1),
    (_FREE, 1, 0, 1),
    ("nothing", 0, 0, -1),
]


@pytest.mark.parametrize("broker_id", [_FOLLOWER, _LEADER], ids=["follower", "leader"])
@pytest.mark.parametrize("version", [4, 9, 10, 11, 12, 13, 15, 17])
def test_consumers_are_answered_as_by_kafka(sides: tuple[Side, Side], version: int, broker_id: int) -> None:
    nearer: set[tuple[str, int]] = set()
    for replica in (-1, -2):
        for rack in ("", *_RACKS.values(), "c") if version >= _FIRST_WITH_RACKS else ("",):
            for asked in _ASKED:
                wanted = [asked if version >= _FIRST_WITH_EPOCHS else (*asked[:3], -1)]
                isolation = int(rack == "b")
                answers = [
                    side.fetch(broker_id, version, wanted, replica=replica, rack=rack, isolation=isolation)
                    for side in sides
                ]
                ours, theirs = (side.told(answer) for side, answer in zip(sides, answers, strict=True))
                assert ours == theirs, (replica, rack, asked)
                nearer.add((rack, answers[0].responses[0].partitions[0].preferred_read_replica))
    assert (("b", _FOLLOWER) in nearer) == (version >= _FIRST_WITH_RACKS and broker_id == _LEADER)
    assert len({rack for rack, replica in nearer if replica != -1}) <= 1


def test_followers_are_not_asked_by_other_followers(sides: tuple[Side, Side]) -> None:
    for version in (11, 12, 17):
        for replica in (_LEADER, _NOBODY):
            ours, theirs = (
                side.told(side.fetch(_FOLLOWER, version, [(_HELD, 0, 2, -1)], replica=replica)) for side in sides
            )
            assert ours == theirs, (version, replica)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_producers_at_a_follower_are_sent_to_the_leader(sides: tuple[Side, Side], version: int) -> None:
    """From version 10 on with its address, and nobody else's."""
    answers = []
    for side in sides:
        items = [ProduceRequestPartition(index=number, records=make_batch()) for number in (0, 1, 5)]
        request = ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[ProduceRequestTopic(name=_FREE, partition_data=items)]
        )
        answer = side.links[_FOLLOWER].ask(request, version, ProduceResponse)
        parts = sorted(answer.responses[0].partition_responses, key=lambda part: part.index)
        told = [
            (
                part.index,
                ErrorCode(part.error_code),
                part.base_offset,
                part.log_start_offset,
                part.current_leader.leader_id,
                part.current_leader.leader_epoch,
            )
            for part in parts
        ]
        answers.append((told, sorted((node.node_id, node.rack) for node in answer.node_endpoints)))
    ours, theirs = answers
    assert ours == theirs
    assert [node for node, _ in ours[1]] == ([_LEADER] if version >= 10 else [])


@pytest.mark.parametrize("broker_id", [_FOLLOWER, _LEADER], ids=["follower", "leader"])
def test_sessions_go_as_with_kafka(sides: tuple[Side, Side], broker_id: int) -> None:
    steps: list[tuple[list[tuple[str, int, int, int]], tuple[tuple[str, int], ...], str]] = [
        ([(_HELD, 0, 2, -1), (_FREE, 0, 0, -1), (_FREE, 1, 0, -1)], (), "b"),
        ([], (), "b"),
        ([], (), "b"),
        ([(_HELD, 0, _COMMITTED, 1)], (), "b"),
        ([(_HELD, 0, _END, 1)], (), "b"),
        ([], (), "b"),
        ([(_HELD, 0, 1000, 1)], (), "b"),
        ([], ((_HELD, 0), (_FREE, 0)), "b"),
        ([(_HELD, 0, 3, 0)], ((_FREE, 1),), "b"),
        ([(_HELD, 0, 3, 1), (_FREE, 0, 0, 1)], (), ""),
        ([], (), ""),
    ]
    for version in (11, 12, 13, 17):
        session = [0, 0]
        for epoch, (wanted, forget, rack) in enumerate(steps):
            answers = [
                side.fetch(broker_id, version, wanted, forget=forget, rack=rack, session=(session[number], epoch))
                for number, side in enumerate(sides)
            ]
            session = [answer.session_id for answer in answers]
            ours, theirs = (side.told(answer) for side, answer in zip(sides, answers, strict=True))
            assert ours == theirs, (version, epoch)
        for number, side in enumerate(sides):
            side.fetch(broker_id, version, [], session=(session[number], -1))


@pytest.mark.parametrize("broker_id", [_FOLLOWER, _LEADER], ids=["follower", "leader"])
@pytest.mark.parametrize("version", [0, 1, 2, 4, 5, 7, 9])
def test_offsets_are_told_as_by_kafka(sides: tuple[Side, Side], version: int, broker_id: int) -> None:
    timestamps = [-1, -2, 0, 2**62] + ([-3] if version >= 7 else [])
    for replica in (-1, -2, _NOBODY):
        for timestamp in timestamps:
            for epoch in (-1, 0, 1, 2) if version >= 4 else (-1,):
                for isolation in (0, 1):
                    ours, theirs = (
                        side.offset(broker_id, _HELD, replica, timestamp, version, epoch, isolation) for side in sides
                    )
                    assert ours == theirs, (replica, timestamp, epoch, isolation)


@pytest.mark.parametrize("broker_id", [_FOLLOWER, _LEADER], ids=["follower", "leader"])
@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_ends_of_epochs_are_told_as_by_kafka(sides: tuple[Side, Side], version: int, broker_id: int) -> None:
    for replica in (-1, -2) if version >= 3 else (-2,):
        for current_epoch in (-1, 0, 1, 2):
            for epoch in (-1, 0, 1, 5):
                ours, theirs = (side.epoch_end(broker_id, version, replica, current_epoch, epoch) for side in sides)
                assert ours == theirs, (replica, current_epoch, epoch)


def test_a_consumer_at_our_follower_hears_of_a_record_before_the_follower_would_ask_again(
    sides: tuple[Side, Side],
) -> None:
    ours, _ = sides
    for offset in range(3):
        ours.write(_HEARD, _LEADER, 1)
        (part,) = ours.fetch(_FOLLOWER, 12, [(_HEARD, 0, offset, -1)], max_wait_ms=20_000).responses[0].partitions
        assert (bool(part.records), part.high_watermark) == (True, offset + 1)


def test_a_java_consumer_of_the_followers_rack_reads_everything_there(sides: tuple[Side, Side], tools_3: Tools) -> None:
    ours, _ = sides
    values = [b"%06d " % number + b"x" * 993 for number in range(_READ_RECORDS)]
    ours.on_leader(lambda cluster: _produce(cluster, values))
    before = {broker_id: _fetched_bytes(broker) for broker_id, broker in ours.brokers.items()}
    where = (
        "--bootstrap-server",
        ours.brokers[_LEADER].bootstrap,
        "--topic",
        _READ,
        "--partition",
        0,
        "--offset",
        "earliest",
    )
    said = tools_3.run(
        "kafka-console-consumer",
        *where,
        "--max-messages",
        _READ_RECORDS,
        "--timeout-ms",
        30_000,
        "--consumer-property",
        f"client.rack={_RACKS[_FOLLOWER]}",
    )
    assert said.lines == [value.decode() for value in values]
    sent = {broker_id: _fetched_bytes(broker) - before[broker_id] for broker_id, broker in ours.brokers.items()}
    assert sent[_FOLLOWER] > _READ_RECORDS * 1000
    assert sent[_LEADER] < 20_000


async def _produce(cluster: Cluster, values: list[bytes]) -> None:
    async with Producer(cluster) as producer:
        for told in [await producer.send(_READ, value, partition=0) for value in values]:
            await told


def _fetched_bytes(broker: BrokerProcess) -> int:
    """What a broker of ours has answered to fetches."""
    seen = len(broker.log)
    os.kill(broker.pid, signal.SIGUSR1)
    deadline = time.monotonic() + _SECONDS
    while (found := re.search(r"^figures (\{.*\})$", broker.log[seen:], re.MULTILINE)) is None:
        assert time.monotonic() < deadline, "it does not tell its figures"
        time.sleep(0.02)
    answered: int = json.loads(found[1])["requests"]["Fetch"]["response_bytes"]
    return answered
