"""OffsetForLeaderEpoch (key 23), versions 0-4. Each line is what a version adds:

    1      the leader epoch of the offset, in the answer
    2      the leader epoch that the client knows, in the request
    3      the follower's broker id, in the request
    4      compact encoding

For a requested leader epoch, the answer is the largest epoch in this log up to the requested epoch, with the end
offset of that epoch. The end offset of the current epoch is the log end offset. Consumers use the answer to detect
that the log was truncated (KIP-320)."""

from __future__ import annotations

from jesenska.base.errors import KafkaError, UnknownTopicOrPartitionError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)


@handles(OffsetForLeaderEpochRequest, LogFamily)
def handle(uses: LogFamily, request: OffsetForLeaderEpochRequest, context: Context) -> Outcome:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        known = uses.view.topics.get(topic.topic)
        answers = []
        for asked in topic.partitions:
            answer = OffsetForLeaderEpochResponsePartition(partition=asked.partition)
            answers.append(answer)
            try:
                if known is None or not 0 <= asked.partition < len(known.partitions):
                    raise UnknownTopicOrPartitionError
                partition = known.partitions[asked.partition]
                log = partition.leader_log(asked.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=answers))
    return response
