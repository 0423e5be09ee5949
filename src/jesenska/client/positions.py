"""The position of a consumer in a partition, and the check that the log still contains the records that were read
(KIP-320).

A position is an offset with the leader epoch of the record before it. A new leader is asked for the end of that epoch
in its log: an end below the offset means that the log was truncated. A leader that does not know the epoch has a
different log. Brokers before 2.3 (OffsetForLeaderEpoch below version 3) are not asked, since they answer only other
brokers.

After the check `client.consumer` moves the position if necessary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, UnsupportedVersionError, error_name
from jesenska.base.identifiers import TopicPartition
from jesenska.net.channel import Channel
from jesenska.records.header import NO_LEADER_EPOCH
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)

_CONSUMER = -1
_ANSWERS_CONSUMERS = 3


class Position(NamedTuple):
    """The offset of the next record, and the leader epoch of the record before it (-1: not known)."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


class LogTruncationError(OffsetOutOfRangeError):
    """Raised if records that the consumer has read, up to `position`, were truncated from the log, and
    auto.offset.reset is none. `diverges_at` is the position where the logs diverge, or None if the leader does not
    know it."""

    def __init__(self, topic_partition: TopicPartition, position: Position, diverges_at: Position | None) -> None:
        where = (
            f"is another one from offset {diverges_at.offset} on"
            if diverges_at
            else f"knows nothing of leader epoch {position.leader_epoch}"
        )
        super().__init__(
            f"{topic_partition} was read up to offset {position.offset}, but its log {where}, and auto.offset.reset "
            f"is none."
        )
        self.topic_partition = topic_partition
        self.position = position
        self.diverges_at = diverges_at


class EpochEnds(NamedTuple):
    """The result of `epoch_ends`, by partition. `ends` has the largest leader epoch in the leader's log that is not
    above the requested one, with its end offset; None if there is no such epoch. `errors` has the errors of the other
    partitions."""

    ends: dict[TopicPartition, Position | None]
    errors: dict[TopicPartition, KafkaError]


async def epoch_ends(
    channel: Channel, positions: Mapping[TopicPartition, tuple[Position, int]], timeout_seconds: float
) -> EpochEnds | None:
    """Asks a leader for the end offsets of the leader epochs of these positions. Each position is given with the
    leader epoch in which the broker leads. Returns None if the broker is too old to answer consumers."""
    try:
        if channel.version_for(OffsetForLeaderEpochRequest) < _ANSWERS_CONSUMERS:
            return None
    except UnsupportedVersionError:
        return None
    topics: dict[str, OffsetForLeaderEpochRequestTopic] = {}
    for key, (position, current_leader_epoch) in positions.items():
        topic = topics.setdefault(key.topic, OffsetForLeaderEpochRequestTopic(topic=key.topic))
        topic.partitions.append(
            OffsetForLeaderEpochRequestPartition(
                partition=key.partition, current_leader_epoch=current_leader_epoch, leader_epoch=position.leader_epoch
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))
    answer = await channel.request(request, OffsetForLeaderEpochResponse, timeout_seconds=timeout_seconds)
    found = EpochEnds({}, {})
    for answered in answer.topics:
        for item in answered.partitions:
            key = TopicPartition(answered.topic, item.partition)
            if item.error_code != ErrorCode.NONE:
                found.errors[key] = KafkaError.of(
                    item.error_code,
                    f"{key}: the broker answers {error_name(item.error_code)} to a look-up of a leader epoch.",
                )
            else:
                is_known = item.leader_epoch >= 0 and item.end_offset >= 0
                found.ends[key] = Position(item.end_offset, item.leader_epoch) if is_known else None
    return found
