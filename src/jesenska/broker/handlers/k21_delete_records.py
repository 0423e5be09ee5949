"""DeleteRecords (key 21), versions 0-2. Each line is what a version adds:

    0      raises the log start offset; -1 means the high watermark
    2      compact encoding

As soon as the request is answered, consumers no longer get records before the new log start offset. Segments that
contain only records before this offset are deleted at the next retention check. If a topic's cleanup.policy does not
include `delete`, the answer is POLICY_VIOLATION, as in Kafka. A partition that is named twice is answered once, for
its last offset. A topic without partitions is not answered."""

from __future__ import annotations

from jesenska.base.errors import KafkaError, OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.log.partition.log_start import delete_records
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

_HIGH_WATERMARK = -1


@handles(DeleteRecordsRequest, LogFamily)
def handle(uses: LogFamily, request: DeleteRecordsRequest, context: Context) -> Outcome:
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        if topic.partitions:
            asked.setdefault(topic.name, {}).update((item.partition_index, item.offset) for item in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(
                name=name, partitions=[_delete(uses, name, number, offset) for number, offset in partitions.items()]
            )
            for name, partitions in asked.items()
        ]
    )


def _delete(uses: LogFamily, name: str, number: int, offset: int) -> DeleteRecordsResponsePartition:
    answer = DeleteRecordsResponsePartition(partition_index=number, low_watermark=-1)
    known = uses.view.topics.get(name)
    try:
        if known is None or not 0 <= number < len(known.partitions):
            raise UnknownTopicOrPartitionError
        if not known.log_config.delete:
            raise PolicyViolationError
        partition = known.partitions[number]
        log = partition.leader_log()
        before = partition.high_watermark if offset == _HIGH_WATERMARK else offset
        if not 0 <= before <= partition.high_watermark:
            raise OffsetOutOfRangeError
        delete_records(log, before)
        answer.low_watermark = log.log_start_offset
    except KafkaError as error:
        answer.error_code = error.code
    return answer
