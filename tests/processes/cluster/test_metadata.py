"""The metadata of a cluster are the same at every broker, and only leaders serve partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerRegistration, ControllerNode, decode_cluster_id
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.cluster.cluster import BrokerCluster
from tests.cluster.one_request import fetch, list_offset, produce
from tests.raw_connection import RawConnection


def test_every_broker_names_the_same_brokers_controller_and_cluster(cluster: BrokerCluster) -> None:
    addresses = {broker.broker_id: broker.address for broker in cluster.brokers.values()}
    views = cluster.views()
    assert {broker_id: view.brokers for broker_id, view in views.items()} == dict.fromkeys(addresses, addresses)
    controller, cluster_id = cluster.node(paths.CONTROLLER), cluster.node(paths.CLUSTER_ID)
    assert controller is not None
    assert cluster_id is not None
    assert {view.controller for view in views.values()} == {ControllerNode.decode(controller).broker_id}
    assert {view.cluster_id for view in views.values()} == {decode_cluster_id(cluster_id)}


def test_the_tree_has_each_brokers_address(cluster: BrokerCluster) -> None:
    for broker_id, broker in cluster.brokers.items():
        data = cluster.node(paths.broker(broker_id))
        assert data is not None
        (endpoint,) = BrokerRegistration.decode(data).endpoints
        assert f"{endpoint.host}:{endpoint.port}" == broker.address


def test_every_broker_describes_the_same_cluster(cluster: BrokerCluster) -> None:
    told = set()
    for broker in cluster.brokers.values():
        with RawConnection(broker.address) as connection:
            answer = connection.ask(DescribeClusterRequest(), 1, DescribeClusterResponse)
        assert answer.error_code == ErrorCode.NONE
        brokers = frozenset((item.broker_id, f"{item.host}:{item.port}") for item in answer.brokers)
        told.add((answer.cluster_id, answer.controller_id, brokers))
    view = cluster.view()
    assert told == {(view.cluster_id, view.controller, frozenset(view.brokers.items()))}


def test_every_broker_tells_the_same_of_a_new_topic(cluster: BrokerCluster) -> None:
    cluster.create("told", 6)
    views = list(cluster.views().values())
    for view in views:
        assert view.topics["told"] == views[0].topics["told"]
        assert view.topic_ids["told"] == views[0].topic_ids["told"]
    for number, partition in enumerate(views[0].topics["told"]):
        state = cluster.state("told", number)
        assert (state.leader, state.leader_epoch, tuple(sorted(state.isr))) == (
            partition.leader,
            partition.leader_epoch,
            partition.isr,
        )


def test_leaders_and_followers_are_spread_evenly(cluster: BrokerCluster) -> None:
    cluster.create("spread", 30)
    partitions = cluster.view().topics["spread"]
    assert [partition.leader for partition in partitions] == [partition.replicas[0] for partition in partitions]
    assert Counter(partition.leader for partition in partitions) == {1: 10, 2: 10, 3: 10}
    assert {tuple(sorted(partition.replicas)) for partition in partitions} == {(1, 2, 3)}
    # The first follower leads when the leader has failed.
    pairs = Counter(partition.replicas[:2] for partition in partitions)
    assert set(pairs.values()) == {5}


def test_with_fewer_replicas_than_brokers_each_broker_has_as_many(cluster: BrokerCluster) -> None:
    cluster.create("two", 6, replicas=2)
    partitions = cluster.view().topics["two"]
    assert Counter(broker_id for partition in partitions for broker_id in partition.replicas) == {1: 4, 2: 4, 3: 4}
    for broker_id, broker in cluster.brokers.items():
        wanted = {f"two-{number}" for number, partition in enumerate(partitions) if broker_id in partition.replicas}
        assert {path.name for path in broker.data.glob("two-*")} == wanted


def _delete_records(address: str, topic: str) -> ErrorCode:
    item = DeleteRecordsRequestTopic(
        name=topic, partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=1)]
    )
    with RawConnection(address) as connection:
        answer = connection.ask(DeleteRecordsRequest(topics=[item], timeout_ms=10_000), 2, DeleteRecordsResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def _offset_for_leader_epoch(address: str, topic: str) -> ErrorCode:
    item = OffsetForLeaderEpochRequestTopic(
        topic=topic, partitions=[OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)]
    )
    with RawConnection(address) as connection:
        answer = connection.ask(
            OffsetForLeaderEpochRequest(replica_id=-1, topics=[item]), 3, OffsetForLeaderEpochResponse
        )
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def placed(cluster: BrokerCluster) -> str:
    """Creates a topic on brokers 1, which leads, and 2, with two records."""
    if "placed" not in cluster.view().topics:
        cluster.create("placed", placed=[[1, 2]])
        cluster.write("placed", [b"first", b"second"])
    return "placed"


_ASKS: dict[str, Callable[[str, str], ErrorCode]] = {
    "produce, acks=1": lambda address, topic: produce(address, topic, acks=1)[0],
    "produce, acks=all": lambda address, topic: produce(address, topic)[0],
    "fetch": lambda address, topic: fetch(address, topic)[0],
    "offsets": lambda address, topic: list_offset(address, topic)[0],
    "delete records": _delete_records,
    "epochs": _offset_for_leader_epoch,
}


@pytest.mark.parametrize("broker_id", [2, 3], ids=["follower", "stranger"])
@pytest.mark.parametrize("ask", _ASKS)
def test_a_broker_that_does_not_lead_says_so_and_does_nothing(
    cluster: BrokerCluster, placed: str, ask: str, broker_id: int
) -> None:
    assert _ASKS[ask](cluster.brokers[broker_id].address, placed) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.values(placed) == [b"first", b"second"]
    cluster.until_logs_equal(placed)


def test_the_leader_answers_what_others_do_not(cluster: BrokerCluster, placed: str) -> None:
    address = cluster.brokers[1].address
    assert fetch(address, placed) == (ErrorCode.NONE, 2, [b"first", b"second"])
    assert list_offset(address, placed) == (ErrorCode.NONE, 2)
    assert _offset_for_leader_epoch(address, placed) == ErrorCode.NONE
