"""DeleteRecords (key 21), versions 0-2.

    0      raises the log start offset; -1 stands for the high watermark
    2      compact

Records before the offset are gone for readers at once; segments that lie wholly before it are deleted with the next retention check. A topic
whose cleanup.policy has no `delete` answers POLICY_VIOLATION, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import KafkaError, OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError
from jesenska.broker.dispatch import Context, Outcome, handles
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.server import Broker

_HIGH_WATERMARK = -1


@handles(DeleteRecordsRequest, 0, 2)
def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> Outcome:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        known = broker.view.topics.get(topic.name)
        answers = []
        for asked in topic.partitions:
            answer = DeleteRecordsResponsePartition(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                if known is None or not 0 <= asked.partition_index < len(known.partitions):
                    raise UnknownTopicOrPartitionError
                if not known.log_config.delete:
                    raise PolicyViolationError
                partition = known.partitions[asked.partition_index]
                log = partition.leader_log()
                offset = partition.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
                if not 0 <= offset <= partition.high_watermark:
                    raise OffsetOutOfRangeError
                log.delete_records(offset)
                answer.low_watermark = log.log_start_offset
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(DeleteRecordsResponseTopic(name=topic.name, partitions=answers))
    return response
