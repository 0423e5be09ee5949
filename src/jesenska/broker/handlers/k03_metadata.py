"""Metadata (key 3), versions 0-13. Each line is what a version adds:

  0      an empty list asks for all topics; offline replicas are left out, with the error REPLICA_NOT_AVAILABLE
  1      null asks for all topics, an empty list for none; controller, racks, internal topics
  2      cluster id
  4      the client may forbid automatic creation of topics
  5      offline replicas
  6      LISTENER_NOT_FOUND if the leader has no listener of the name that the client uses
  7      leader epochs
  8      authorized operations
  9      compact encoding
  10     topic ids in answers; a request that asks by id is refused below version 12
  12     look-up by id, with a null name; if a request contains an id, its names are ignored
  13     an error code for the whole answer

If a client asks by name for a topic that does not exist, the topic is created, provided that both the client and
auto.create.topics.enable permit this. As in Kafka 3.9, the answer for this topic is LEADER_NOT_AVAILABLE, without
partitions, and clients ask again. So a client that has just deleted a topic does not mistake the new topic for the
deleted topic. The answer is sent when the topic can be written to, so that the client's second request finds it. If
the topic cannot be created, the answer has the error of the creation. For a name of a topic that must not be created
automatically, the error is UNKNOWN_TOPIC_OR_PARTITION."""

from __future__ import annotations

from collections.abc import Iterable

from jesenska.base.errors import ErrorCode, InvalidRequestError, KafkaError
from jesenska.base.identifiers import NO_UUID
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.broker.metadata_cache import INTERNAL_TOPICS, Topic
from jesenska.broker.requests.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_FIRST_WITH_NULL = 1
_FIRST_WITH_REPLICAS_THAT_ARE_DOWN = 1
_FIRST_WITH_CREATION_FLAG = 4
_FIRST_WITH_LISTENER_NOT_FOUND = 6
#: If the cluster has more partitions than this, an answer about all topics is made in slices, between which other
#: requests are served.
_PARTITIONS_AT_ONCE = 1000
#: Versions whose requests can contain topic ids, but in which Kafka does not find topics by id.
_IDS_NOT_YET_LOOKED_UP = (10, 11)


@handles(MetadataRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: MetadataRequest, context: Context) -> Outcome:
    asked = request.topics
    if context.version in _IDS_NOT_YET_LOOKED_UP and any(
        item.name is None or item.topic_id != NO_UUID for item in asked or ()
    ):
        return _refuse(asked or ())
    everything = asked is None or (context.version < _FIRST_WITH_NULL and not asked)
    if everything or asked is None:
        if uses.view.partition_count > _PARTITIONS_AT_ONCE:
            return _answer_in_slices(uses, request, context)
        return _answer(uses, request, context, _all(uses, request, context))
    creates = uses.in_force.config.boolean("auto.create.topics.enable")
    may_create = creates and (context.version < _FIRST_WITH_CREATION_FLAG or request.allow_auto_topic_creation)
    missing = (
        [
            item.name
            for item in asked
            if item.name and item.name not in uses.view.topics and is_legal_topic_name(item.name)
        ]
        if may_create
        else []
    )
    if missing:
        return _create_and_answer(uses, request, context, missing)
    return _answer(uses, request, context, _topics(uses, request, context, {}))


def _all(uses: ClusterFamily, request: MetadataRequest, context: Context) -> list[MetadataResponseTopic]:
    return [_known(uses, topic, request, context) for topic in uses.view.topics.values()]


async def _answer_in_slices(uses: ClusterFamily, request: MetadataRequest, context: Context) -> MetadataResponse:
    """Makes the answer about all topics of a large cluster in slices, between which other requests are served. If a
    broker or topic is added or removed between two slices, the answer is made again without a pause, so that it is
    consistent."""
    view, between = uses.view, Slices(uses.clock)
    names, brokers = list(view.topics), view.brokers
    topics = []
    for name in names:
        await between()
        if name not in view.topics:
            break
        topics.append(_known(uses, view.topics[name], request, context))
    is_same = view.brokers == brokers and list(view.topics) == names
    return _answer(uses, request, context, topics if is_same else _all(uses, request, context))


def _refuse(asked: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    """Returns the answer to a request of version 10 or 11 that asks by id: INVALID_REQUEST for each topic, as in
    Kafka."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=item.name or "", topic_id=item.topic_id)
            for item in asked
        ]
    )


async def _create_and_answer(
    uses: ClusterFamily, request: MetadataRequest, context: Context, missing: list[str]
) -> MetadataResponse:
    codes: dict[str, int] = {}
    for name in dict.fromkeys(missing):
        try:
            await uses.controller.create_automatically(name)
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
        except InvalidRequestError:
            continue
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                codes[name] = error.code
    return _answer(uses, request, context, _topics(uses, request, context, codes))


def _topics(
    uses: ClusterFamily, request: MetadataRequest, context: Context, codes: dict[str, int]
) -> list[MetadataResponseTopic]:
    """Returns the answers for the topics of the request, each once. A topic in `codes` is answered with its error code
    in `codes`."""
    answers = []
    asked = request.topics or ()
    if any(item.topic_id != NO_UUID for item in asked):
        # If the request contains an id, all topics without an id are ignored.
        asked = list({item.topic_id: item for item in asked if item.topic_id != NO_UUID}.values())
    for item in {(item.name, item.topic_id): item for item in asked}.values():
        if item.topic_id != NO_UUID:
            topic = uses.view.by_id.get(item.topic_id)
            if topic is None:
                answers.append(
                    MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=item.topic_id)
                )
            else:
                answers.append(_known(uses, topic, request, context))
            continue
        name = item.name or ""
        topic = uses.view.topics.get(name)
        if topic is not None and name not in codes:
            answers.append(_known(uses, topic, request, context))
            continue
        error = (
            codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if is_legal_topic_name(name)
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        answer = MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
        if request.include_topic_authorized_operations:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        answers.append(answer)
    return answers


def _known(uses: ClusterFamily, topic: Topic, request: MetadataRequest, context: Context) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(uses, partition, context) for partition in topic.partitions],
    )
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def _partition(uses: ClusterFamily, partition: Partition, context: Context) -> MetadataResponsePartition:
    view, leader, code = uses.view, partition.leader, ErrorCode.NONE
    node = view.brokers.get(leader)
    if node is None:
        leader, code = -1, ErrorCode.LEADER_NOT_AVAILABLE
    elif context.connection.listener_name not in node.endpoints:
        leader, code = (
            -1,
            ErrorCode.LISTENER_NOT_FOUND
            if context.version >= _FIRST_WITH_LISTENER_NOT_FOUND
            else ErrorCode.LEADER_NOT_AVAILABLE,
        )
    replicas, isr = list(partition.replicas), list(partition.isr)
    if context.version < _FIRST_WITH_REPLICAS_THAT_ARE_DOWN:
        here = {node.broker_id for node, _, _ in uses.view.endpoints_for(context.connection.listener_name)}
        replicas, isr, all_replicas, whole_isr = (
            [one for one in replicas if one in here],
            [one for one in isr if one in here],
            replicas,
            isr,
        )
        if code == ErrorCode.NONE and (replicas, isr) != (all_replicas, whole_isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.topic_partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline_replicas(partition, uses.broker_id),
    )


def _answer(
    uses: ClusterFamily, request: MetadataRequest, context: Context, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in uses.view.endpoints_for(context.connection.listener_name)
        ],
        cluster_id=uses.view.cluster_id,
        controller_id=uses.view.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
