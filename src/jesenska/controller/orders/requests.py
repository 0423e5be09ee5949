"""Converts the controller's orders to Kafka's requests LeaderAndIsr (key 4), StopReplica (5) and UpdateMetadata (6),
in every version, and converts these requests back to orders.

    LeaderAndIsr      `leader_and_isr`   -> request ->  `read_leader_and_isr`
                      errors by partition                `leader_and_isr_response`, `leader_and_isr_errors`
    StopReplica       `stop_replica`     -> request ->  `read_stop_replica`
                      errors by partition                `stop_replica_response`, `stop_replica_errors`
    UpdateMetadata    `update_metadata`  -> request ->  `read_update_metadata`

Older versions have fewer fields. Topic ids exist from version 5 of LeaderAndIsr and version 7 of UpdateMetadata on.
The broker epoch exists from version 2 of LeaderAndIsr, 1 of StopReplica and 5 of UpdateMetadata on. Before version 3,
StopReplica has a single `delete` flag for all partitions. UpdateMetadata has no listener names before version 3. A
topic that is read from a request has only the partitions that the request names.

Every request contains the controller's id and epoch, and the broker epoch of the broker for which it is meant
(KIP-380). Sources: KIP-4, KIP-380, KIP-455, KIP-516, KIP-570; the messages of Apache Kafka 3.9."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from jesenska.base.errors import InvalidRequestError
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.base.limits import PARTITIONS_OF_A_TOPIC_MAX
from jesenska.base.topic_names import require_topic_name
from jesenska.config.listeners import SECURITY_PROTOCOLS, Endpoint
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import StopReplica, TopicPartitions
from jesenska.metadata.nodes import BrokerRegistration, PartitionStateNode, TopicNode
from jesenska.wire.messages import k04_leader_and_isr as k04
from jesenska.wire.messages import k05_stop_replica as k05
from jesenska.wire.messages import k06_update_metadata as k06

#: In UpdateMetadata, the leader of a partition whose topic is being deleted.
DELETED_LEADER: Final = -2
#: In StopReplica, the leader epoch for a topic that is being deleted: it counts as newer than every epoch.
DELETED_EPOCH: Final = -2
#: The leader epoch if the request has none.
NO_EPOCH: Final = -1
#: The type of an UpdateMetadata that contains a part of all topics.
FULL: Final = 2

_LEADER_AND_ISR_BY_TOPIC, _LEADER_AND_ISR_IDS = 2, 5
_STOP_REPLICA_BY_TOPIC, _STOP_REPLICA_STATES = 1, 3
_UPDATE_METADATA_RACKS, _UPDATE_METADATA_LISTENERS, _UPDATE_METADATA_BY_TOPIC, _UPDATE_METADATA_TYPES = 2, 3, 5, 8

_State = TypeVar(
    "_State",
    k04.LeaderAndIsrRequestUngroupedPartitionState,
    k04.LeaderAndIsrRequestPartitionState,
    k06.UpdateMetadataRequestUngroupedPartitionState,
    k06.UpdateMetadataRequestPartitionState,
)


#: The registered brokers whose replica is offline, by partition.
Offline = Mapping[TopicPartition, Collection[int]]


class Orderer(NamedTuple):
    """The controller that sends a request, and the broker epoch of the broker that gets it (czxid of the broker's
    node; -1: any)."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int = -1


class Stop(NamedTuple):
    """A replica that a broker must stop. With `delete` it must also delete the data."""

    topic_partition: TopicPartition
    leader_epoch: int = NO_EPOCH
    delete: bool = False


class Metadata(NamedTuple):
    """The content of an UpdateMetadata: topics, deleted topics, and all registered brokers."""

    topics: tuple[TopicPartitions, ...]
    gone: tuple[str, ...]
    brokers: Mapping[int, BrokerRegistration]
    #: Offline replicas of registered brokers, as far as the controller knows.
    offline: Mapping[TopicPartition, tuple[int, ...]] = {}
    #: True if `topics` are a part of all topics. Earlier and later requests with the same flag contain the other
    #: topics.
    is_all: bool = False


# --- LeaderAndIsr ----------------------------------------------------------------------------------------------------


def leader_and_isr(
    version: int, orderer: Orderer, topics: Sequence[TopicPartitions], leaders: Mapping[int, tuple[str, int]]
) -> k04.LeaderAndIsrRequest:
    """Returns the LeaderAndIsr request. `leaders` has the host and port of each broker that may lead, for connections
    between brokers. Partitions in their first state are marked as new, because no broker has had them before."""
    request = k04.LeaderAndIsrRequest(
        controller_id=orderer.controller_id,
        controller_epoch=orderer.controller_epoch,
        broker_epoch=orderer.broker_epoch,
    )
    led_by: dict[int, None] = {}
    for part in topics:
        led_by.update(dict.fromkeys(part.topic.partitions[number].state.leader for number in part.numbers))
        if version < _LEADER_AND_ISR_BY_TOPIC:
            request.ungrouped_partition_states += _leader_states(k04.LeaderAndIsrRequestUngroupedPartitionState, part)
            continue
        states = _leader_states(k04.LeaderAndIsrRequestPartitionState, part)
        topic = part.topic
        request.topic_states.append(
            k04.LeaderAndIsrRequestTopicState(
                topic_name=topic.name, topic_id=topic.topic_id or NO_UUID, partition_states=states
            )
        )
    request.live_leaders = [
        k04.LeaderAndIsrRequestLiveLeader(
            broker_id=broker_id, host_name=leaders[broker_id][0], port=leaders[broker_id][1]
        )
        for broker_id in led_by
        if broker_id in leaders
    ]
    return request


def _leader_states(kind: type[_State], part: TopicPartitions) -> list[_State]:
    node = part.topic.node
    return [
        _filled(
            kind,
            part.topic,
            number,
            partition_epoch=part.topic.partitions[number].version,
            adding_replicas=list(node.adding.get(number, ())),
            removing_replicas=list(node.removing.get(number, ())),
            is_new=part.topic.partitions[number].state.leader_epoch == 0 and part.topic.partitions[number].version == 0,
        )
        for number in part.numbers
    ]


def read_leader_and_isr(request: k04.LeaderAndIsrRequest, version: int) -> tuple[TopicPartitions, ...]:
    """Returns the topics in the request. Raises InvalidRequestError or InvalidTopicException for impossible
    partitions."""
    if version < _LEADER_AND_ISR_BY_TOPIC:
        return tuple(
            _topic(name, NO_UUID, states) for name, states in _by_topic(request.ungrouped_partition_states).items()
        )
    return tuple(_topic(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states)


def leader_and_isr_response(
    version: int, error_code: int, topics: Sequence[TopicPartitions], error_codes: Mapping[TopicPartition, int]
) -> k04.LeaderAndIsrResponse:
    """Returns the answer about these partitions. A partition that is not in `error_codes` has no error."""
    response = k04.LeaderAndIsrResponse(error_code=error_code)
    for part in topics:
        codes = [(number, error_codes.get(TopicPartition(part.topic.name, number), 0)) for number in part.numbers]
        if version < _LEADER_AND_ISR_IDS:
            name = part.topic.name
            response.partition_errors += [
                k04.LeaderAndIsrResponsePartitionError(topic_name=name, partition_index=number, error_code=code)
                for number, code in codes
            ]
        else:
            errors = [
                k04.LeaderAndIsrResponseTopicPartitionError(partition_index=number, error_code=code)
                for number, code in codes
            ]
            response.topics.append(
                k04.LeaderAndIsrResponseTopic(topic_id=part.topic.topic_id or NO_UUID, partition_errors=errors)
            )
    return response


def leader_and_isr_errors(
    response: k04.LeaderAndIsrResponse, version: int, topics: Sequence[TopicPartitions]
) -> dict[TopicPartition, int]:
    """Returns the error code of each partition that has an error. `topics` are the topics of the request."""
    if version < _LEADER_AND_ISR_IDS:
        return {
            TopicPartition(item.topic_name, item.partition_index): item.error_code
            for item in response.partition_errors
            if item.error_code
        }
    names = {part.topic.topic_id: part.topic.name for part in topics}
    return {
        TopicPartition(names[topic.topic_id], item.partition_index): item.error_code
        for topic in response.topics
        if topic.topic_id in names
        for item in topic.partition_errors
        if item.error_code
    }


# --- StopReplica -----------------------------------------------------------------------------------------------------


def stops_of(order: StopReplica) -> list[Stop]:
    """Returns the replicas that a StopReplica order names."""
    epochs = order.epochs or (DELETED_EPOCH if order.delete else NO_EPOCH,) * len(order.numbers)
    return [
        Stop(TopicPartition(order.topic, number), epoch, order.delete)
        for number, epoch in zip(order.numbers, epochs, strict=True)
    ]


def stop_replica(version: int, orderer: Orderer, stops: Sequence[Stop]) -> list[k05.StopReplicaRequest]:
    """Returns the requests that stop these replicas. There are two requests if only some replicas are deleted and the
    version has a single `delete` flag for all replicas, else one request."""
    if version >= _STOP_REPLICA_STATES:
        request = _stop_request(orderer)
        for name, of_topic in _stops_by_topic(stops).items():
            states = [
                k05.StopReplicaRequestPartitionState(
                    partition_index=stop.topic_partition.partition,
                    leader_epoch=stop.leader_epoch,
                    delete_partition=stop.delete,
                )
                for stop in of_topic
            ]
            request.topic_states.append(k05.StopReplicaRequestTopicState(topic_name=name, partition_states=states))
        return [request]
    requests = []
    for delete in (False, True):
        alike = [stop for stop in stops if stop.delete is delete]
        if not alike:
            continue
        request = _stop_request(orderer)
        request.delete_partitions = delete
        if version < _STOP_REPLICA_BY_TOPIC:
            request.ungrouped_partitions = [
                k05.StopReplicaRequestUngroupedPartition(
                    topic_name=stop.topic_partition.topic, partition_index=stop.topic_partition.partition
                )
                for stop in alike
            ]
        else:
            request.topics = [
                k05.StopReplicaRequestTopic(
                    name=name, partition_indexes=[stop.topic_partition.partition for stop in of_topic]
                )
                for name, of_topic in _stops_by_topic(alike).items()
            ]
        requests.append(request)
    return requests


def _stop_request(orderer: Orderer) -> k05.StopReplicaRequest:
    return k05.StopReplicaRequest(
        controller_id=orderer.controller_id,
        controller_epoch=orderer.controller_epoch,
        broker_epoch=orderer.broker_epoch,
    )


def _stops_by_topic(stops: Iterable[Stop]) -> dict[str, list[Stop]]:
    found: dict[str, list[Stop]] = {}
    for stop in stops:
        found.setdefault(stop.topic_partition.topic, []).append(stop)
    return found


def read_stop_replica(request: k05.StopReplicaRequest, version: int) -> list[Stop]:
    """Returns the replicas to stop, in the order of the request. Raises InvalidRequestError or InvalidTopicException
    for impossible partitions."""
    if version >= _STOP_REPLICA_STATES:
        return [
            Stop(_topic_partition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    if version >= _STOP_REPLICA_BY_TOPIC:
        named = [_topic_partition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    else:
        named = [_topic_partition(item.topic_name, item.partition_index) for item in request.ungrouped_partitions]
    return [Stop(topic_partition, NO_EPOCH, request.delete_partitions) for topic_partition in named]


def stop_replica_response(
    error_code: int, stops: Sequence[Stop], error_codes: Mapping[TopicPartition, int]
) -> k05.StopReplicaResponse:
    """Returns the answer about these replicas. A replica that is not in `error_codes` has no error."""
    errors = [
        k05.StopReplicaResponsePartitionError(
            topic_name=stop.topic_partition.topic,
            partition_index=stop.topic_partition.partition,
            error_code=error_codes.get(stop.topic_partition, 0),
        )
        for stop in stops
    ]
    return k05.StopReplicaResponse(error_code=error_code, partition_errors=errors)


def stop_replica_errors(response: k05.StopReplicaResponse) -> dict[TopicPartition, int]:
    """Returns the error code of each replica that has an error."""
    return {
        TopicPartition(item.topic_name, item.partition_index): item.error_code
        for item in response.partition_errors
        if item.error_code
    }


# --- UpdateMetadata --------------------------------------------------------------------------------------------------


def update_metadata(
    version: int,
    orderer: Orderer,
    topics: Sequence[TopicPartitions],
    gone: Sequence[TopicPartitions],
    brokers: Mapping[int, BrokerRegistration],
    offline: Offline | None = None,
    *,
    is_all: bool = False,
) -> k06.UpdateMetadataRequest:
    """Returns the UpdateMetadata request. `gone` are topics that are being deleted, `brokers` all registered brokers,
    `offline` their offline replicas. `is_all` means that `topics` are all existing topics or a part of them; versions
    below 8 do not have this flag."""
    request = k06.UpdateMetadataRequest(
        controller_id=orderer.controller_id,
        controller_epoch=orderer.controller_epoch,
        broker_epoch=orderer.broker_epoch,
    )
    for parts, is_gone in ((topics, False), (gone, True)):
        for part in parts:
            if version < _UPDATE_METADATA_BY_TOPIC:
                request.ungrouped_partition_states += _partition_states(
                    k06.UpdateMetadataRequestUngroupedPartitionState, part, brokers, offline or {}, is_gone
                )
                continue
            states = _partition_states(k06.UpdateMetadataRequestPartitionState, part, brokers, offline or {}, is_gone)
            topic = part.topic
            request.topic_states.append(
                k06.UpdateMetadataRequestTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id or NO_UUID, partition_states=states
                )
            )
    request.live_brokers = [_live_broker(version, broker_id, node) for broker_id, node in brokers.items()]
    if is_all and version >= _UPDATE_METADATA_TYPES:
        request.type = FULL
    return request


def _partition_states(
    kind: type[_State],
    part: TopicPartitions,
    brokers: Mapping[int, BrokerRegistration],
    offline: Offline,
    is_gone: bool,
) -> list[_State]:
    made = []
    for number in part.numbers:
        if number not in part.topic.partitions:
            continue  # no broker knows of it
        unread = offline.get(TopicPartition(part.topic.name, number), ())
        away = [
            broker_id
            for broker_id in part.topic.node.replicas[number]
            if broker_id not in brokers or broker_id in unread
        ]
        state = _filled(
            kind, part.topic, number, zk_version=part.topic.partitions[number].version, offline_replicas=away
        )
        if is_gone:
            state.leader = DELETED_LEADER
        made.append(state)
    return made


def _live_broker(version: int, broker_id: int, node: BrokerRegistration) -> k06.UpdateMetadataRequestLiveBroker:
    live = k06.UpdateMetadataRequestLiveBroker(id=broker_id, rack=node.rack)
    if version == 0:
        plain = next((item for item in node.endpoints if item.protocol == "PLAINTEXT"), None)
        if plain is not None:
            live.v0_host, live.v0_port = plain.host, plain.port
        return live
    live.endpoints = [
        k06.UpdateMetadataRequestEndpoint(
            port=item.port,
            host=item.host,
            listener=item.name,
            security_protocol=SECURITY_PROTOCOLS.index(item.protocol),
        )
        for item in node.endpoints
    ]
    return live


def read_update_metadata(request: k06.UpdateMetadataRequest, version: int) -> Metadata:
    """Returns the metadata in the request. Raises InvalidRequestError or InvalidTopicException for impossible
    partitions and brokers."""
    topics: list[TopicPartitions] = []
    gone: list[str] = []
    named: list[tuple[str, uuid.UUID, Sequence[Any]]] = [
        (topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states
    ]
    if version < _UPDATE_METADATA_BY_TOPIC:
        named = [(name, NO_UUID, states) for name, states in _by_topic(request.ungrouped_partition_states).items()]
    for name, topic_id, states in named:
        _take(name, topic_id, states, topics, gone)
    offline = {
        TopicPartition(name, state.partition_index): tuple(state.offline_replicas)
        for name, _, states in named
        for state in states
        if state.offline_replicas
    }
    brokers = {live.id: _registration(version, live) for live in request.live_brokers}
    return Metadata(
        tuple(topics), tuple(gone), brokers, offline, is_all=version >= _UPDATE_METADATA_TYPES and request.type == FULL
    )


def _take(
    name: str, topic_id: uuid.UUID, states: Sequence[_State], topics: list[TopicPartitions], gone: list[str]
) -> None:
    """Adds a topic of the request to `topics`, or to `gone` if the request says that the topic is deleted."""
    require_topic_name(name)
    stays = [state for state in states if state.leader != DELETED_LEADER]
    if states and not stays:
        gone.append(name)
    else:
        topics.append(_topic(name, topic_id, stays))


def _registration(version: int, live: k06.UpdateMetadataRequestLiveBroker) -> BrokerRegistration:
    if version == 0:
        return BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", live.v0_host, live.v0_port),), -1)
    endpoints = []
    for item in live.endpoints:
        if not 0 <= item.security_protocol < len(SECURITY_PROTOCOLS):
            raise InvalidRequestError(f"There is no security protocol {item.security_protocol}.")
        protocol = SECURITY_PROTOCOLS[item.security_protocol]
        endpoints.append(
            Endpoint(
                item.listener if version >= _UPDATE_METADATA_LISTENERS else protocol, protocol, item.host, item.port
            )
        )
    return BrokerRegistration(tuple(endpoints), -1, live.rack if version >= _UPDATE_METADATA_RACKS else None)


# --- partitions ------------------------------------------------------------------------------------------------------


def _filled(kind: type[_State], topic: TopicView, number: int, **further: object) -> _State:
    """Returns a partition's state for LeaderAndIsr or UpdateMetadata (`kind`): the fields that both requests have, and
    the `further` fields."""
    state = topic.partitions[number].state
    return kind(
        topic_name=topic.name,
        partition_index=number,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        replicas=list(topic.node.replicas[number]),
        **further,
    )


def _by_topic(states: Iterable[_State]) -> dict[str, list[_State]]:
    found: dict[str, list[_State]] = {}
    for state in states:
        found.setdefault(state.topic_name, []).append(state)
    return found


def _topic_partition(name: str, number: int) -> TopicPartition:
    """Returns the partition that a request names. Requests may come from anyone, so an impossible name or number is
    refused before it is used as the name of a directory or as an index. Raises InvalidRequestError or
    InvalidTopicException."""
    require_topic_name(name)
    if not 0 <= number < PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidRequestError(f"Topic {name} cannot have a partition {number}.")
    return TopicPartition(name, number)


def _topic(name: str, topic_id: uuid.UUID, states: Sequence[_State]) -> TopicPartitions:
    """Returns a topic with the partitions in a request."""
    require_topic_name(name)
    replicas, adding, removing = {}, {}, {}
    partitions = {}
    for state in states:
        number = _topic_partition(name, state.partition_index).partition
        replicas[number] = tuple(state.replicas)
        if isinstance(state, k04.LeaderAndIsrRequestUngroupedPartitionState | k04.LeaderAndIsrRequestPartitionState):
            adding[number], removing[number] = tuple(state.adding_replicas), tuple(state.removing_replicas)
            version = state.partition_epoch
        else:
            version = state.zk_version
        partitions[number] = PartitionView(
            PartitionStateNode(state.leader, state.leader_epoch, tuple(state.isr), state.controller_epoch), version
        )
    node = TopicNode(replicas, None if topic_id == NO_UUID else topic_id, _not_empty(adding), _not_empty(removing))
    return TopicPartitions(TopicView(name, node, 0, partitions), tuple(partitions))


def _not_empty(replicas: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {number: brokers for number, brokers in replicas.items() if brokers}
