"""The controller's orders arrive unchanged at the broker, in every version of the three requests, as bytes; only the
fields that a version lacks are lost."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.errors import InvalidRequestError, InvalidTopicException
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import PARTITIONS_OF_A_TOPIC_MAX
from jesenska.config.listeners import SECURITY_PROTOCOLS, Endpoint
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import StopReplica, TopicPartitions
from jesenska.controller.orders.requests import (
    NO_EPOCH,
    Orderer,
    Stop,
    leader_and_isr,
    leader_and_isr_errors,
    leader_and_isr_response,
    read_leader_and_isr,
    read_stop_replica,
    read_update_metadata,
    stop_replica,
    stop_replica_errors,
    stop_replica_response,
    stops_of,
    update_metadata,
)
from jesenska.metadata.nodes import BrokerRegistration, PartitionStateNode, TopicNode
from jesenska.wire.codec import decode, encode
from jesenska.wire.language import Message
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrRequestUngroupedPartitionState
from jesenska.wire.messages.k06_update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
)
from tests.profiles import examples

_NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
_INT32 = st.integers(0, 2**31 - 1)
_BROKERS = st.integers(0, 5)
_ISRS = st.lists(_BROKERS, unique=True, max_size=4).map(tuple)
_STATES = st.builds(
    PartitionStateNode, leader=st.integers(-1, 5), leader_epoch=_INT32, isr=_ISRS, controller_epoch=_INT32
)
#: Each version has examples of its own.
_SOME = settings(max_examples=examples(0.2))
_ORDERERS = st.builds(Orderer, _INT32, _INT32, st.integers(-1, 2**63 - 1))


@st.composite
def _parts(draw: st.DrawFn) -> TopicPartitions:
    numbers = draw(st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=4))
    replicas = {number: draw(st.lists(_BROKERS, unique=True, min_size=1, max_size=4).map(tuple)) for number in numbers}
    adding = {
        number: draw(st.lists(_BROKERS, unique=True, min_size=1, max_size=2).map(tuple))
        for number in numbers
        if draw(st.booleans())
    }
    removing = {
        number: draw(st.lists(_BROKERS, unique=True, min_size=1, max_size=2).map(tuple))
        for number in numbers
        if draw(st.booleans())
    }
    partitions = {number: PartitionView(draw(_STATES), draw(_INT32)) for number in numbers}
    return TopicPartitions(
        TopicView(draw(_NAMES), TopicNode(replicas, draw(st.uuids(version=4)), adding, removing), 0, partitions),
        tuple(numbers),
    )


_TOPICS = st.lists(_parts(), max_size=3, unique_by=(lambda part: part.topic.name, lambda part: part.topic.topic_id))
_HOSTS = st.from_regex(r"[a-z0-9.]{1,12}", fullmatch=True)
_PORTS = st.integers(1, 65535)
_ENDPOINTS = st.builds(
    Endpoint, st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.sampled_from(SECURITY_PROTOCOLS), _HOSTS, _PORTS
)
_LIVE = st.dictionaries(
    _BROKERS,
    st.builds(BrokerRegistration, st.lists(_ENDPOINTS, max_size=3).map(tuple), st.just(-1), st.none() | _NAMES),
    max_size=4,
)


def _through_bytes(message: Message, version: int) -> Any:
    return decode(type(message), version, encode(message, version))


def _as_carried(part: TopicPartitions, *, ids: bool, changes: bool) -> TopicPartitions:
    """Returns the part as it arrives in a version with or without topic ids, and with or without moving replicas."""
    node = part.topic.node
    left = TopicNode(
        node.replicas, node.topic_id if ids else None, node.adding if changes else {}, node.removing if changes else {}
    )
    return TopicPartitions(replace(part.topic, node=left), part.numbers)


@pytest.mark.parametrize("version", range(8))
@_SOME
@given(topics=_TOPICS, orderer=_ORDERERS, leaders=st.dictionaries(_BROKERS, st.tuples(_HOSTS, _PORTS)))
def test_leader_and_isr_arrives_as_it_was_ordered(
    version: int, topics: list[TopicPartitions], orderer: Orderer, leaders: Mapping[int, tuple[str, int]]
) -> None:
    request = _through_bytes(leader_and_isr(version, orderer, topics, leaders), version)
    assert isinstance(request, LeaderAndIsrRequest)
    assert list(read_leader_and_isr(request, version)) == [
        _as_carried(part, ids=version >= 5, changes=version >= 3) for part in topics
    ]
    assert (request.controller_id, request.controller_epoch) == orderer[:2]
    assert request.broker_epoch == (orderer.broker_epoch if version >= 2 else -1)
    led_by = {view.state.leader for part in topics for view in part.topic.partitions.values()}
    assert {live.broker_id: (live.host_name, live.port) for live in request.live_leaders} == {
        key: leaders[key] for key in led_by & leaders.keys()
    }


@pytest.mark.parametrize("version", range(8))
@_SOME
@given(topics=_TOPICS, data=st.data())
def test_errors_of_leader_and_isr_arrive(version: int, topics: list[TopicPartitions], data: st.DataObject) -> None:
    everyone = [TopicPartition(part.topic.name, number) for part in topics for number in part.numbers]
    errors = {key: data.draw(st.integers(1, 100)) for key in everyone if data.draw(st.booleans())}
    response = _through_bytes(leader_and_isr_response(version, 0, topics, errors), version)
    assert leader_and_isr_errors(response, version, topics) == errors


_STOPS = st.lists(
    st.builds(
        Stop,
        st.builds(TopicPartition, _NAMES, st.integers(0, PARTITIONS_OF_A_TOPIC_MAX - 1)),
        st.integers(-2, 2**31 - 1),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda stop: stop.topic_partition,
)


@pytest.mark.parametrize(("delete", "epoch"), [(True, -2), (False, -1)])
def test_replicas_that_are_deleted_are_stopped_in_kafkas_epoch_for_that(delete: bool, epoch: int) -> None:
    stops = stops_of(StopReplica(1, 0, "t", (0, 3), delete))
    assert stops == [Stop(TopicPartition("t", number), epoch, delete) for number in (0, 3)]


@pytest.mark.parametrize("version", range(5))
@_SOME
@given(stops=_STOPS, orderer=_ORDERERS)
def test_stop_replica_arrives_as_it_was_ordered(version: int, stops: list[Stop], orderer: Orderer) -> None:
    found = [
        stop
        for request in stop_replica(version, orderer, stops)
        for stop in read_stop_replica(_through_bytes(request, version), version)
    ]
    wanted = stops if version >= 3 else [stop._replace(leader_epoch=NO_EPOCH) for stop in stops]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("version", range(5))
@_SOME
@given(stops=_STOPS, data=st.data())
def test_errors_of_stop_replica_arrive(version: int, stops: list[Stop], data: st.DataObject) -> None:
    errors = {stop.topic_partition: data.draw(st.integers(1, 100)) for stop in stops if data.draw(st.booleans())}
    assert stop_replica_errors(_through_bytes(stop_replica_response(0, stops, errors), version)) == errors


@pytest.mark.parametrize("version", range(9))
@_SOME
@given(topics=_TOPICS, gone=_parts(), live=_LIVE, orderer=_ORDERERS)
def test_update_metadata_arrives_as_it_was_ordered(
    version: int,
    topics: list[TopicPartitions],
    gone: TopicPartitions,
    live: Mapping[int, BrokerRegistration],
    orderer: Orderer,
) -> None:
    topics = [part for part in topics if part.topic.name != gone.topic.name]
    request = _through_bytes(update_metadata(version, orderer, topics, [gone], live), version)
    assert isinstance(request, UpdateMetadataRequest)
    found = read_update_metadata(request, version)
    assert list(found.topics) == [_as_carried(part, ids=version >= 7, changes=False) for part in topics]
    # Kafka's brokers know a topic that is gone by its leader, -2.
    leaders = {
        state.leader
        for topic in request.topic_states
        if topic.topic_name == gone.topic.name
        for state in topic.partition_states
    }
    leaders |= {state.leader for state in request.ungrouped_partition_states if state.topic_name == gone.topic.name}
    assert leaders == {-2}
    assert found.gone == (gone.topic.name,)
    assert found.brokers == {broker_id: _as_told(version, node) for broker_id, node in live.items()}


def _as_told(version: int, node: BrokerRegistration) -> BrokerRegistration:
    """Returns a broker as a version describes it: one plaintext address, addresses by protocol, by listener."""
    if version == 0:
        plain = next(
            (item for item in node.endpoints if item.protocol == "PLAINTEXT"), Endpoint("PLAINTEXT", "PLAINTEXT", "", 0)
        )
        return BrokerRegistration((replace(plain, name="PLAINTEXT"),), -1)
    endpoints = node.endpoints if version >= 3 else tuple(replace(item, name=item.protocol) for item in node.endpoints)
    return BrokerRegistration(endpoints, -1, node.rack if version >= 2 else None)


def test_replicas_of_brokers_that_are_down_are_told_as_offline() -> None:
    part = TopicPartitions(
        TopicView(
            "t", TopicNode({0: (1, 2, 3)}, uuid.uuid4()), 0, {0: PartitionView(PartitionStateNode(1, 0, (1, 3), 1))}
        ),
        (0,),
    )
    request = update_metadata(
        8, Orderer(1, 1), [part], [], {1: BrokerRegistration((), -1), 3: BrokerRegistration((), -1)}
    )
    assert request.topic_states[0].partition_states[0].offline_replicas == [2]


@pytest.mark.parametrize("name", ["../up", "", "..", "a/b", "a" * 250])
def test_a_topic_that_could_be_no_directory_is_refused(name: str) -> None:
    state = LeaderAndIsrRequestUngroupedPartitionState(topic_name=name, partition_index=0, replicas=[1])
    with pytest.raises(InvalidTopicException):
        read_leader_and_isr(LeaderAndIsrRequest(ungrouped_partition_states=[state]), 0)


@pytest.mark.parametrize("number", [-1, 2**31 - 1, -(2**31)])
def test_a_number_that_no_partition_has_is_refused_in_every_order(number: int) -> None:
    lead = LeaderAndIsrRequestUngroupedPartitionState(topic_name="t", partition_index=number, replicas=[1])
    with pytest.raises(InvalidRequestError, match=f"partition {number}"):
        read_leader_and_isr(LeaderAndIsrRequest(ungrouped_partition_states=[lead]), 1)
    for version in range(5):
        (request,) = stop_replica(version, Orderer(1, 1), [Stop(TopicPartition("t", number), delete=True)])
        with pytest.raises(InvalidRequestError, match=f"partition {number}"):
            read_stop_replica(request, version)


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "..", "x" * 300])
def test_a_name_that_no_topic_has_is_not_given_up(name: str) -> None:
    for version in range(5):
        (request,) = stop_replica(version, Orderer(1, 1), [Stop(TopicPartition(name, 0), delete=True)])
        with pytest.raises(InvalidTopicException):
            read_stop_replica(request, version)


def test_a_security_protocol_that_does_not_exist_is_refused() -> None:
    live = UpdateMetadataRequestLiveBroker(
        id=1, endpoints=[UpdateMetadataRequestEndpoint(port=1, host="h", listener="L", security_protocol=4)]
    )
    with pytest.raises(InvalidRequestError, match="security protocol 4"):
        read_update_metadata(UpdateMetadataRequest(live_brokers=[live]), 8)
