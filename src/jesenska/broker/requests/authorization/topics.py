"""Checks requests about topics, their records and their settings. Each check returns None, a refusal, or an Amend (see
`access`).

If the user may not describe a topic, an answer about its name does not reveal if the topic exists. A consumer's Fetch
is checked at each read (`broker.fetching.fetches`), so that changed ACLs also apply to sessions and waiting requests.
This module checks only Fetch requests of followers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from jesenska.base.errors import ErrorCode, TopicAuthorizationFailedError
from jesenska.base.identifiers import NO_UUID
from jesenska.base.topic_names import topic_name_problem
from jesenska.broker.requests.authorization.access import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Access,
    Rule,
    Verdict,
    added,
    merged_refusals,
)
from jesenska.broker.requests.authorization.cluster import cluster_operations
from jesenska.records.header import LOW_ATTRIBUTES_OFFSET, MAGIC_OFFSET, MAGIC_V2, TRANSACTIONAL_BIT
from jesenska.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from jesenska.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
)
from jesenska.wire.messages.k33_alter_configs import (
    AlterConfigsResponse,
    AlterConfigsResponseResult,
)
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResult,
)
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
)
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)

_O = AclOperation
_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_FIRST_PRODUCE_WITH_IDS: Final = 13
_FIRST_METADATA_WITH_NULL, _FIRST_METADATA_WITH_CREATION_FLAG = 1, 4
#: Versions of Metadata that contain topic ids, but whose handler refuses a request by id.
_METADATA_WITHOUT_LOOK_UP_BY_ID: Final = (10, 11)
_FIRST_DELETION_WITH_IDS: Final = 6
_FIRST_CREATION_WITH_DETAILS: Final = 5


# --- records ---------------------------------------------------------------------------------------------------------


def produce(access: Access, request: ProduceRequest, version: int) -> Verdict:
    """Checks Produce: it needs WRITE on each topic, and for a transaction's records WRITE on the transactional id. If
    a topic is refused to a producer with acks=0, the connection is closed, because this producer gets no answer."""

    topics = request.topic_data
    name = request.transactional_id
    if _has_transactional_records(topics) and (name is None or not access.allows(_O.WRITE, TRANSACTIONAL_ID, name)):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        kept: list[ProduceRequestTopic] = []
        refused = topics
    else:
        error, kept, refused = _REFUSED, [], []
        by_id = version >= _FIRST_PRODUCE_WITH_IDS
        # This loop does not call `Access.split`, which is slower: the check is a part of every request of a producer.
        for topic in topics:
            found = access.topic_name(topic.topic_id) if by_id else topic.name
            if found is None or access.may_write(found):
                kept.append(topic)
            else:
                refused.append(topic)
    if not refused:
        return None
    failed = _refused_records(refused, error)
    if not kept:
        if request.acks == 0:
            raise TopicAuthorizationFailedError(error.name)
        return ProduceResponse(responses=failed)
    request.topic_data = kept
    return added("responses", failed)


def _refused_records(topics: Sequence[ProduceRequestTopic], error: ErrorCode) -> list[ProduceResponseTopic]:
    """Returns the answers for the partitions of refused topics."""
    found = [
        ProduceResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                ProduceResponsePartition(index=part.index, error_code=error, base_offset=-1)
                for part in topic.partition_data
            ],
        )
        for topic in topics
    ]
    return merged_refusals(found, "partition_responses", "index")


def _has_transactional_records(topics: Sequence[ProduceRequestTopic]) -> bool:
    """Returns True if a batch of the request belongs to a transaction."""
    for topic in topics:
        for part in topic.partition_data:
            if _is_transactional(part.records):
                return True
    return False


def _is_transactional(records: Any) -> bool:
    return (
        isinstance(records, memoryview)
        and len(records) > LOW_ATTRIBUTES_OFFSET
        and records[MAGIC_OFFSET] == MAGIC_V2
        and bool(records[LOW_ATTRIBUTES_OFFSET] & TRANSACTIONAL_BIT)
    )


def fetch(access: Access, request: FetchRequest, version: int) -> Verdict:
    """Checks a follower's Fetch: it needs CLUSTER_ACTION on the cluster. If that is refused to a follower with a fetch
    session, the answer ends the session. The follower then begins a new session, and the answer to that request has
    the error."""
    if max(request.replica_id, request.replica_state.replica_id) < 0 or access.cluster(_O.CLUSTER_ACTION):
        return None
    if request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    refused = [
        FetchResponseTopic(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                FetchResponsePartition(
                    partition_index=part.partition,
                    error_code=_REFUSED,
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=b"",
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(responses=merged_refusals(refused, "partitions", "partition_index"))


def list_offsets(access: Access, request: ListOffsetsRequest, version: int) -> Verdict:
    kept, refused = access.split(_O.DESCRIBE, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    request.topics = kept
    failed = [
        ListOffsetsResponseTopic(
            name=topic.name,
            partitions=[
                ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=_REFUSED)
                for part in topic.partitions
            ],
        )
        for topic in refused
    ]
    return added("topics", failed)


def delete_records(access: Access, request: DeleteRecordsRequest, version: int) -> Verdict:
    kept, refused = access.split(_O.DELETE, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    request.topics = kept
    failed = [
        DeleteRecordsResponseTopic(
            name=topic.name,
            partitions=[
                DeleteRecordsResponsePartition(
                    partition_index=part.partition_index, low_watermark=-1, error_code=_REFUSED
                )
                for part in topic.partitions
            ],
        )
        for topic in refused
    ]
    return added("topics", merged_refusals(failed, "partitions", "partition_index"))


def ends_of_epochs(access: Access, request: OffsetForLeaderEpochRequest, version: int) -> Verdict:
    """Checks OffsetForLeaderEpoch: it needs CLUSTER_ACTION on the cluster (brokers), or DESCRIBE on each topic
    (consumers)."""
    if access.may(_O.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
        return None
    kept, refused = access.split(_O.DESCRIBE, TOPIC, request.topics, lambda topic: topic.topic)
    if not refused:
        return None
    request.topics = kept
    failed = [
        OffsetForLeaderEpochResponseTopic(
            topic=topic.topic,
            partitions=[
                OffsetForLeaderEpochResponsePartition(partition=part.partition, error_code=_REFUSED)
                for part in topic.partitions
            ],
        )
        for topic in refused
    ]
    return added("topics", failed)


def describe_producers(access: Access, request: DescribeProducersRequest, version: int) -> Verdict:
    order = request.topics
    # An invalid topic name is not checked here; the handler refuses it.
    kept, refused = access.split(
        _O.READ, TOPIC, order, lambda topic: None if topic_name_problem(topic.name) else topic.name
    )
    if not refused:
        return None
    request.topics = kept
    forbidden = {id(topic) for topic in refused}

    def amend(response: DescribeProducersResponse) -> None:
        found = iter(response.topics)
        response.topics = [
            DescribeProducersResponseTopic(
                name=topic.name,
                partitions=[
                    DescribeProducersResponsePartition(partition_index=number, error_code=_REFUSED)
                    for number in topic.partition_indexes
                ],
            )
            if id(topic) in forbidden
            else next(found)
            for topic in order
        ]

    return amend


# --- metadata of topics ---------------------------------------------------------------------------------------------


def metadata(access: Access, request: MetadataRequest, version: int) -> Verdict:
    """Checks Metadata: it needs DESCRIBE on each topic. If the request asks for all topics, topics that the user may
    not describe are left out. A topic that would be created needs CREATE on the topic or on the cluster."""
    asked = request.topics
    wants_all = asked is None or (version < _FIRST_METADATA_WITH_NULL and not asked)
    if version in _METADATA_WITHOUT_LOOK_UP_BY_ID and any(
        item.name is None or item.topic_id != NO_UUID for item in asked or ()
    ):
        return None
    failed: list[MetadataResponseTopic] = []
    if asked and not wants_all:
        kept, failed = _metadata_split(access, request, version)
        # In version 0 an empty list would ask for all topics. The empty name stands in for an empty list; its answer
        # is removed.
        request.topics = kept or [MetadataRequestTopic(name="")]

    def amend(response: MetadataResponse) -> None:
        topics = response.topics
        if wants_all:
            topics = [topic for topic in topics if topic.name and access.may(_O.DESCRIBE, TOPIC, topic.name)]
        elif failed:
            topics = [topic for topic in topics if topic.name != ""]
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name:
                    topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(access)
        response.topics = topics + failed

    return amend


def _metadata_split(
    access: Access, request: MetadataRequest, version: int
) -> tuple[list[MetadataRequestTopic], list[MetadataResponseTopic]]:
    """Returns the topics of the request that may be answered, and the answers for the refused topics."""
    asked = request.topics or []
    if any(item.topic_id != NO_UUID for item in asked):
        # In a request with ids, names are ignored. The handler refuses an unknown id. As in Kafka, ids are no secret:
        # a topic that the user may not describe is answered with its id and an authorization error.
        by_id = list({item.topic_id: item for item in asked if item.topic_id != NO_UUID}.values())
        kept, refused = access.split(_O.DESCRIBE, TOPIC, by_id, lambda item: access.topic_name(item.topic_id))
        return kept, [MetadataResponseTopic(error_code=_REFUSED, name=None, topic_id=item.topic_id) for item in refused]
    named = list({item.name: item for item in asked}.values())
    kept, refused = access.split(_O.DESCRIBE, TOPIC, named, lambda item: item.name or "")
    may_create = access.creates_topics and (
        version < _FIRST_METADATA_WITH_CREATION_FLAG or request.allow_auto_topic_creation
    )
    if may_create and not access.may(_O.CREATE, CLUSTER, CLUSTER_NAME):
        missing = [item for item in kept if (item.name or "") not in access.view.topics]
        _, uncreated = access.split(_O.CREATE, TOPIC, missing, lambda item: item.name or "")
        forbidden = {item.name for item in uncreated}
        kept = [item for item in kept if item.name not in forbidden]
        refused += uncreated
    return kept, [MetadataResponseTopic(error_code=_REFUSED, name=item.name or "") for item in refused]


def describe_partitions(access: Access, request: DescribeTopicPartitionsRequest, version: int) -> Verdict:
    """Checks DescribeTopicPartitions: it needs DESCRIBE on each topic. If the request asks for all topics, the request
    is changed to name the topics that the user may describe, so that pages and cursors contain only these topics."""
    asked = list(dict.fromkeys(item.name for item in request.topics))
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return None  # a malformed cursor is the handler's to refuse
    if asked:
        names, refused = access.split(_O.DESCRIBE, TOPIC, asked, lambda name: name)
    else:
        names, refused = [name for name in access.view.topics if access.may(_O.DESCRIBE, TOPIC, name)], []
    if cursor is not None and cursor.partition_index >= 0 and (not asked or cursor.topic_name in refused):
        names = [name for name in names if name >= cursor.topic_name]
        if cursor.topic_name not in names:
            request.cursor = None
    if cursor is not None:
        # The refused topics before the cursor were answered with earlier pages.
        refused = [name for name in refused if name >= cursor.topic_name]
    failed = [DescribeTopicPartitionsResponseTopic(error_code=_REFUSED, name=name) for name in refused]
    if not names:
        return DescribeTopicPartitionsResponse(topics=failed, next_cursor=None)
    request.topics = [DescribeTopicPartitionsRequestTopic(name=name) for name in names]

    def amend(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            topic.topic_authorized_operations = access.operations(TOPIC, topic.name or "")
        response.topics = response.topics + failed

    return amend


# --- creating and deleting topics ------------------------------------------------------------------------------------


def create(access: Access, request: CreateTopicsRequest, version: int) -> Verdict:
    """Checks CreateTopics: it needs CREATE on the cluster or on each topic. The settings of a new topic are answered
    only with DESCRIBE_CONFIGS on the topic. A topic that is named twice is not checked here; the handler refuses
    it."""
    counts = Counter(item.name for item in request.topics)
    order = list(counts)
    refused: list[str] = []
    if not access.may(_O.CREATE, CLUSTER, CLUSTER_NAME):
        once = [name for name, count in counts.items() if count == 1]
        _, refused = access.split(_O.CREATE, TOPIC, once, lambda name: name)
    hidden = {name for name in order if not access.may(_O.DESCRIBE_CONFIGS, TOPIC, name)}
    if not refused and (not hidden or version < _FIRST_CREATION_WITH_DETAILS):
        return None
    forbidden = set(refused)

    def failed(name: str) -> CreateTopicsResponseTopic:
        return CreateTopicsResponseTopic(
            name=name, error_code=_REFUSED, error_message="Authorization failed.", configs=[]
        )

    if len(forbidden) == len(order):
        return CreateTopicsResponse(topics=[failed(name) for name in order])
    request.topics = [item for item in request.topics if item.name not in forbidden]

    def amend(response: CreateTopicsResponse) -> None:
        answers = {answer.name: answer for answer in response.topics}
        for name, answer in answers.items():
            if name in hidden and not answer.error_code:
                _hide(answer)
        response.topics = [failed(name) if name in forbidden else answers[name] for name in order]

    return amend


def _hide(answer: CreateTopicsResponseTopic) -> None:
    """Removes the settings of a new topic from the answer."""
    answer.num_partitions = answer.replication_factor = -1
    answer.configs = None
    answer.topic_config_error_code = _REFUSED


def delete(access: Access, request: DeleteTopicsRequest, version: int) -> Verdict:
    """Checks DeleteTopics: it needs DELETE on each topic. If a refused request names a topic by its id, the answer
    contains the name only with DESCRIBE on the topic."""
    failed: list[DeleteTopicsResponseTopic] = []
    if version < _FIRST_DELETION_WITH_IDS:
        counts = Counter(request.topic_names)
        names, refused = access.split(_O.DELETE, TOPIC, request.topic_names, lambda name: name)
        failed = [
            DeleteTopicsResponseTopic(name=name, error_code=_deletion_error(counts[name] > 1))
            for name in dict.fromkeys(refused)
        ]
        request.topic_names = names
        is_empty = not names
    else:

        def name_of(item: DeleteTopicsRequestTopic) -> str | None:
            return access.topic_name(item.topic_id) if item.topic_id != NO_UUID else item.name

        kept, refused_topics = access.split(_O.DELETE, TOPIC, request.topics, name_of)
        twice = Counter((item.name, item.topic_id) for item in request.topics)
        for item in {(item.name, item.topic_id): item for item in refused_topics}.values():
            name = name_of(item)
            shown = item.name is not None or access.may(_O.DESCRIBE, TOPIC, name or "")
            is_malformed = twice[item.name, item.topic_id] > 1 or (item.name is not None and item.topic_id != NO_UUID)
            failed.append(
                DeleteTopicsResponseTopic(
                    name=(item.name or name) if shown else None,
                    topic_id=item.topic_id,
                    error_code=_deletion_error(is_malformed),
                )
            )
        request.topics = kept
        is_empty = not kept
    if not failed:
        return None
    if is_empty:
        return DeleteTopicsResponse(responses=failed)
    return added("responses", failed)


def _deletion_error(is_malformed: bool) -> ErrorCode:
    """Returns the error for a topic that the user may not delete. As in Kafka, a malformed topic gets the error for
    malformed topics instead."""
    return ErrorCode.INVALID_REQUEST if is_malformed else _REFUSED


def create_partitions(access: Access, request: CreatePartitionsRequest, version: int) -> Verdict:
    counts = Counter(topic.name for topic in request.topics)
    kept, refused = access.split(_O.ALTER, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    request.topics = kept
    failed = [
        CreatePartitionsResponseResult(name=name, error_code=_REFUSED)
        if counts[name] == 1
        else CreatePartitionsResponseResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="A topic is named twice."
        )
        for name in dict.fromkeys(topic.name for topic in refused)
    ]
    if not kept:
        return CreatePartitionsResponse(results=failed)
    return added("results", failed)


# --- settings --------------------------------------------------------------------------------------------------------

#: For each resource type (2 topics, 4 brokers, 8 loggers, 16 client metrics, 32 groups): the resource on which rights
#: to its settings are checked, and the error of a refusal. Other types are refused by the handlers.
_CONFIGS: Final[dict[int, tuple[ResourceType, ErrorCode]]] = {
    2: (TOPIC, _REFUSED),
    4: (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    8: (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    16: (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    32: (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def configs(operation: AclOperation, response: type[Message], field: str, answer: Callable[..., Any]) -> Rule:
    """Returns the check of a request about settings: it needs this operation on each resource. `field` names the
    response's list of answers. As in Kafka, a refused resource that is also malformed gets the error for malformed
    resources."""

    def rule(access: Access, request: Any, version: int) -> Verdict:
        resources = request.resources
        if request.api_key == _DESCRIBE_CONFIGS and any(item.resource_type not in _CONFIGS for item in resources):
            return response(**{field: [_failed(answer, item, _UNKNOWN_TYPE) for item in resources]})
        kept = [item for item in resources if _is_allowed(access, operation, item)]
        if len(kept) == len(resources):
            return None
        counts = Counter((item.resource_type, item.resource_name) for item in resources)
        allowed = set(map(id, kept))
        failed = []
        for item in resources:
            if id(item) not in allowed:
                is_double = operation is _O.ALTER_CONFIGS and counts[item.resource_type, item.resource_name] > 1
                failed.append(_failed(answer, item, _DOUBLE if is_double else _malformed(request.api_key, item)))
        request.resources = kept
        return added(field, failed) if kept else response(**{field: failed})

    return rule


#: The API key of DescribeConfigs. The whole request is refused if one resource has an unknown type.
_DESCRIBE_CONFIGS: Final = 32
_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS = 33, 44
_BROKER_TYPE, _DELETE_SETTING = 4, 1
_UNKNOWN_TYPE: Final = "A resource has a type that is not known."
_DOUBLE: Final = "Each resource must appear at most once."


def _is_allowed(access: Access, operation: AclOperation, item: Any) -> bool:
    """Returns True if the user may do the operation on a resource, or if the type of the resource is unknown: the
    handler refuses such a resource."""
    kind, _ = _CONFIGS.get(item.resource_type, (None, None))
    return kind is None or access.allows(operation, kind, CLUSTER_NAME if kind is CLUSTER else item.resource_name)


def _malformed(key: int, item: Any) -> str | None:
    """Returns the mistake in a change of settings, or None. Only mistakes are found that Kafka reports before it
    checks the user's rights."""
    if key not in (_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS):
        return None
    names = [config.name for config in item.configs]
    if len(set(names)) < len(names):
        return "A setting is named twice."
    for config in item.configs:
        if config.value is None and (key == _ALTER_CONFIGS or config.config_operation != _DELETE_SETTING):
            return "A setting has no value."
    if item.resource_type == _BROKER_TYPE and item.resource_name and not item.resource_name.isdecimal():
        return "The name of a broker is its id."
    return None


def _failed(answer: Callable[..., Any], item: Any, mistake: str | None) -> Any:
    """Returns the answer for a refused resource: INVALID_REQUEST with the mistake, or the authorization error for the
    type of the resource."""
    code = ErrorCode.INVALID_REQUEST if mistake is not None else _CONFIGS[item.resource_type][1]
    return answer(
        error_code=code, error_message=mistake, resource_type=item.resource_type, resource_name=item.resource_name
    )


TOPIC_RULES: Final[dict[int, Rule]] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    19: create,
    20: delete,
    21: delete_records,
    23: ends_of_epochs,
    32: configs(_O.DESCRIBE_CONFIGS, DescribeConfigsResponse, "results", DescribeConfigsResponseResult),
    33: configs(_O.ALTER_CONFIGS, AlterConfigsResponse, "responses", AlterConfigsResponseResult),
    37: create_partitions,
    44: configs(_O.ALTER_CONFIGS, IncrementalAlterConfigsResponse, "responses", IncrementalAlterConfigsResponseResult),
    61: describe_producers,
    75: describe_partitions,
}
