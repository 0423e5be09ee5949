"""Topics of a cluster: only the controller creates, grows and deletes them, and every broker carries out its
decisions."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode, InvalidReplicationFactorError
from jesenska.base.identifiers import TopicPartition, uuid_from_text
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.metadata import paths
from jesenska.wire.language import Message
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.cluster.cluster import BrokerCluster, each, until
from tests.cluster.one_request import ask_for_topic
from tests.raw_connection import RawConnection


def _delete(cluster: BrokerCluster, name: str) -> None:
    async def work(client: Cluster) -> None:
        assert await Admin(client).delete_topics([name]) == {name: None}

    cluster.ask(work)
    cluster.until(lambda view: name not in view.topics)


def _directories(cluster: BrokerCluster, topic: str) -> dict[int, list[str]]:
    """The directories of a topic on each broker's disk, also of a topic that is being deleted."""
    return {
        broker_id: sorted(path.name for path in broker.data.glob(f"{topic}-*"))
        for broker_id, broker in cluster.brokers.items()
    }


# --- who may change them ---------------------------------------------------------------------------------------------

_ORDERS: dict[str, tuple[Message, int, type[Message], Callable[[Any], int]]] = {
    "create": (
        CreateTopicsRequest(
            topics=[CreateTopicsRequestTopic(name="refused", num_partitions=1, replication_factor=3)], timeout_ms=10_000
        ),
        7,
        CreateTopicsResponse,
        lambda answer: answer.topics[0].error_code,
    ),
    "delete": (
        DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="kept")], timeout_ms=10_000),
        6,
        DeleteTopicsResponse,
        lambda answer: answer.responses[0].error_code,
    ),
    "grow": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name="kept", count=5, assignments=None)], timeout_ms=10_000
        ),
        3,
        CreatePartitionsResponse,
        lambda answer: answer.results[0].error_code,
    ),
    "elect": (
        ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequestTopic(topic="kept", partitions=[0])], timeout_ms=10_000
        ),
        2,
        ElectLeadersResponse,
        lambda answer: answer.replica_election_results[0].partition_result[0].error_code,
    ),
    "reassign": (
        AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name="kept",
                    partitions=[AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=[1])],
                )
            ],
            timeout_ms=10_000,
        ),
        0,
        AlterPartitionReassignmentsResponse,
        lambda answer: answer.error_code,
    ),
    "list reassignments": (
        ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000),
        0,
        ListPartitionReassignmentsResponse,
        lambda answer: answer.error_code,
    ),
}


@pytest.mark.parametrize("order", _ORDERS)
def test_a_broker_that_is_not_controller_says_so_and_changes_nothing(cluster: BrokerCluster, order: str) -> None:
    if "kept" not in cluster.view().topics:
        cluster.create("kept")
    request, version, response, code = _ORDERS[order]
    before = cluster.view().topics["kept"]
    controller = cluster.controller()
    for broker_id, broker in cluster.brokers.items():
        if broker_id != controller:
            with RawConnection(broker.address) as connection:
                assert code(connection.ask(request, version, response)) == ErrorCode.NOT_CONTROLLER
    # The controller has created this topic, so all earlier work is done.
    cluster.create(f"after-{order.replace(' ', '-')}")
    views = cluster.views()
    assert {broker_id: view.topics["kept"] for broker_id, view in views.items()} == dict.fromkeys(
        cluster.brokers, before
    )
    assert not any("refused" in view.topics for view in views.values())


# --- topics that come ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_any_broker_creates_a_topic_that_somebody_asks_for(cluster: BrokerCluster, broker_id: int) -> None:
    name = f"automatic-{broker_id}"
    code = ask_for_topic(cluster.brokers[broker_id].address, name)
    assert code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    view = cluster.until(lambda view: view.of(name).is_whole)
    assert len(view.of(name).replicas) == 3
    cluster.write(name, [b"value"])
    cluster.until_logs_equal(name)


def test_a_topic_that_is_asked_for_everywhere_at_once_is_created_once(cluster: BrokerCluster) -> None:
    at_once = threading.Barrier(6)

    def ask(broker_id: int) -> None:
        at_once.wait(60)
        code = ask_for_topic(cluster.brokers[broker_id].address, "everywhere")
        assert code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    each([*cluster.brokers] * 2, ask)
    views = cluster.until_all(lambda views: all(view.of("everywhere").is_whole for view in views.values()))
    assert len({view.topic_ids["everywhere"] for view in views.values()}) == 1
    cluster.write("everywhere", [b"value"])
    cluster.until_logs_equal("everywhere")


def test_more_replicas_than_brokers_are_refused_and_nothing_is_left(cluster: BrokerCluster) -> None:
    async def work(client: Cluster) -> None:
        topics = [NewTopic("too-many", 2, 4, {"retention.ms": "1000"}), NewTopic("just-right", 2, 3)]
        errors = await Admin(client).create_topics(topics)
        assert isinstance(errors["too-many"], InvalidReplicationFactorError)
        assert errors["just-right"] is None

    cluster.ask(work)
    cluster.until(lambda view: view.of("just-right", 1).is_whole)
    assert not any("too-many" in view.topics for view in cluster.views().values())
    assert cluster.node(paths.topic("too-many")) is None
    assert cluster.node(paths.topic_config("too-many")) is None
    assert _directories(cluster, "too-many") == {1: [], 2: [], 3: []}


def test_every_broker_has_the_data_of_its_replicas_and_the_topics_id(cluster: BrokerCluster) -> None:
    cluster.create("on-disk", 3, replicas=2)
    view = cluster.view()
    for broker_id, broker in cluster.brokers.items():
        wanted = [number for number in range(3) if broker_id in view.of("on-disk", number).replicas]
        assert _directories(cluster, "on-disk")[broker_id] == [f"on-disk-{number}" for number in wanted]
        for number in wanted:
            text = (broker.data / f"on-disk-{number}" / "partition.metadata").read_text()
            assert _topic_id(text) == view.topic_ids["on-disk"]


def _topic_id(text: str) -> uuid.UUID:
    """The topic id in partition.metadata."""
    (line,) = [line for line in text.splitlines() if line.startswith("topic_id")]
    return uuid_from_text(line.partition(":")[2].strip())


# --- topics that change ----------------------------------------------------------------------------------------------


def test_partitions_that_are_added_lead_on_every_broker_and_take_records(cluster: BrokerCluster) -> None:
    cluster.create("growing", 3)
    cluster.write("growing", [b"old"], partition=1)

    async def work(client: Cluster) -> None:
        assert await Admin(client).create_partitions({"growing": 6}) == {"growing": None}

    cluster.ask(work)
    view = cluster.until(
        lambda view: (
            len(view.topics["growing"]) == 6 and all(partition.is_whole for partition in view.topics["growing"])
        )
    )
    assert Counter(partition.leader for partition in view.topics["growing"]) == {1: 2, 2: 2, 3: 2}
    for number in range(3, 6):
        cluster.write("growing", [b"new %d" % number], partition=number)
        assert cluster.values("growing", number) == [b"new %d" % number]
    assert cluster.values("growing", 1) == [b"old"]
    cluster.until(lambda view: view.topics["growing"] == cluster.view(1).topics["growing"])


def test_a_deleted_topic_is_gone_from_every_broker_and_can_be_made_anew(cluster: BrokerCluster) -> None:
    cluster.create("deleted", 4)
    for number in range(4):
        cluster.write("deleted", [b"old"] * 100, partition=number)
    before = cluster.view().topic_ids["deleted"]
    _delete(cluster, "deleted")
    until(
        lambda: _directories(cluster, "deleted") == {1: [], 2: [], 3: []},
        f"data are left: {_directories(cluster, 'deleted')}",
    )
    until(lambda: cluster.node(paths.topic("deleted")) is None, "the tree has the topic still")
    assert cluster.node(paths.delete_topic("deleted")) is None
    cluster.create("deleted", 2)
    assert len(cluster.view().topics["deleted"]) == 2
    assert cluster.view().topic_ids["deleted"] != before
    assert cluster.write("deleted", [b"new"]) == [0]
    assert cluster.values("deleted") == [b"new"]


def test_a_topic_that_is_deleted_while_a_broker_is_away_does_not_come_back_with_it(cluster: BrokerCluster) -> None:
    cluster.create("away", 3)
    cluster.write("away", [b"old"])
    gone = next(broker_id for broker_id in cluster.brokers if broker_id != cluster.controller())
    cluster.brokers[gone].stop()
    cluster.until(lambda view: gone not in view.brokers)
    _delete(cluster, "away")
    cluster.brokers[gone].start()
    until(
        lambda: _directories(cluster, "away") == {1: [], 2: [], 3: []},
        f"data are left: {_directories(cluster, 'away')}",
    )
    until(lambda: cluster.node(paths.topic("away")) is None, "the tree has the topic still")
    cluster.until_whole()
    assert not any("away" in view.topics for view in cluster.views().values())
    cluster.create("away", 1)
    assert cluster.write("away", [b"new"]) == [0]
    cluster.until_logs_equal("away")


def test_a_broker_that_stood_still_forgets_topics_that_were_deleted_meanwhile(frail: BrokerCluster) -> None:
    """A topic of which the broker has a replica, and a topic of which it has none. Topics of these names are complete
    when they are created again."""
    gone = next(broker_id for broker_id in frail.brokers if broker_id != frail.controller())
    others = [broker_id for broker_id in frail.brokers if broker_id != gone]

    async def make(client: Cluster) -> None:
        await Admin(client).create_topics([NewTopic("missed", 2, 3), NewTopic("elsewhere", 1, 1, {}, [others])])

    async def delete(client: Cluster) -> None:
        assert await Admin(client).delete_topics(["missed", "elsewhere"]) == {"missed": None, "elsewhere": None}

    frail.ask(make)
    frail.until(lambda view: {"missed", "elsewhere"} <= view.topics.keys())
    frail.brokers[gone].pause()
    frail.until(lambda view: gone not in view.brokers, brokers=others)
    frail.ask(delete)
    frail.brokers[gone].resume()
    frail.until(lambda view: len(view.brokers) == 3 and not {"missed", "elsewhere"} & view.topics.keys())
    until(lambda: frail.node(paths.topic("missed")) is None, "the tree has the topic still")
    frail.create("missed", 2)
    frail.create("elsewhere", 1)
    frail.until_whole()
    for name in ("missed", "elsewhere"):
        assert frail.write(name, [b"new"]) == [0]
        frail.until_logs_equal(name)


def test_records_that_are_deleted_are_gone_from_every_replica(cluster: BrokerCluster) -> None:
    cluster.create("trimmed", configs={"segment.bytes": "2000"})
    cluster.write("trimmed", [b"%d " % number + b"x" * 100 for number in range(200)], batch_size=1000)

    async def work(client: Cluster) -> None:
        key = TopicPartition("trimmed", 0)
        assert await Admin(client).delete_records({key: 150}) == {key: 150}

    cluster.ask(work)
    assert cluster.read("trimmed")[0].offset == 150

    def first_segments() -> dict[int, int]:
        return {
            broker_id: min(int(path.stem) for path in (broker.data / "trimmed-0").glob("*.log"))
            for broker_id, broker in cluster.brokers.items()
        }

    until(
        lambda: all(100 < offset <= 150 for offset in first_segments().values()),
        f"segments begin at {first_segments()}",
    )
