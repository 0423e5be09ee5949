"""DescribeProducers (key 61), version 0: answers the producers that the log of a partition knows (KIP-664). For each
producer the answer contains its epoch, its last sequence number, the time of its last batch (in milliseconds), and the
first offset of its open transaction (-1 if no transaction is open)."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, shortened
from jesenska.base.topic_names import topic_name_problem
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
)

_NOT_HERE = "This server does not host this topic-partition."


@handles(DescribeProducersRequest, LogFamily)
def handle(uses: LogFamily, request: DescribeProducersRequest, context: Context) -> Outcome:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                name=topic.name, partitions=[_described(uses, topic.name, number) for number in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _described(uses: LogFamily, name: str, number: int) -> DescribeProducersResponsePartition:
    answer = DescribeProducersResponsePartition(partition_index=number)
    topic = uses.view.topics.get(name)
    if topic is None:
        problem = topic_name_problem(name)
        answer.error_code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        answer.error_message = shortened(problem or _NOT_HERE)
    elif not 0 <= number < len(topic.partitions):
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        try:
            log = topic.partitions[number].leader_log()
        except KafkaError as error:
            answer.error_code = error.code
            return answer
        answer.active_producers = [
            DescribeProducersResponseProducer(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in log.producers.entries()
        ]
    return answer
