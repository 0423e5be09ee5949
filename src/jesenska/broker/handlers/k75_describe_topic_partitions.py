"""DescribeTopicPartitions (key 75), version 0: answers the partitions of topics page by page, in the order of the
topics' names.

An empty list of topics asks for all topics. A page has at most `response_partition_limit` partitions, and never more
than max.request.partition.size.limit. `next_cursor` is the beginning of the next page. If the cursor names a topic
that is not in the request, or a negative partition, each topic is answered INVALID_REQUEST. Eligible leader replicas
(KIP-966) are not supported: their lists are empty."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import ErrorCode
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.broker.metadata_cache import Topic
from jesenska.broker.requests.authorized_operations import TOPIC_OPERATIONS
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseNextCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@handles(DescribeTopicPartitionsRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: DescribeTopicPartitionsRequest, context: Context) -> Outcome:
    asked = {item.name for item in request.topics}
    names = sorted(asked or uses.view.topics)
    first_partition = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0 or (asked and request.cursor.topic_name not in asked):
            return DescribeTopicPartitionsResponse(
                topics=[_refused(item.name) for item in request.topics], next_cursor=None
            )
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    left = max(
        1, min(request.response_partition_limit, uses.in_force.config.integer("max.request.partition.size.limit"))
    )
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if left == 0:
            response.next_cursor = _cursor(name, first_partition)
            break
        topic = uses.view.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            first_partition = 0
            continue
        page = topic.partitions[first_partition : first_partition + left]
        response.topics.append(_described(uses, name, topic, page))
        left -= len(page)
        if first_partition + len(page) < len(topic.partitions):
            response.next_cursor = _cursor(name, first_partition + len(page))
            break
        first_partition = 0
    return response


def _cursor(topic: str, partition: int) -> DescribeTopicPartitionsResponseNextCursor:
    return DescribeTopicPartitionsResponseNextCursor(topic_name=topic, partition_index=partition)


def _described(
    uses: ClusterFamily, name: str, topic: Topic, page: Sequence[Partition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.topic_partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=uses.view.offline_replicas(partition, uses.broker_id),
            )
            for partition in page
        ],
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
