"""ControlledShutdown (key 7): a broker that is about to stop asks the controller to elect other leaders for the
partitions that it leads. Kafka 4 has removed this API."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ControlledShutdownRequest(Message, key=7, kind=REQUEST, versions=(0, 3), flexible=3):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1, ignorable=True)


class ControlledShutdownResponseRemainingPartition(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class ControlledShutdownResponse(Message, key=7, kind=RESPONSE, versions=(0, 3), flexible=3):
    error_code: int = field(INT16)
    remaining_partitions: list[ControlledShutdownResponseRemainingPartition] = field(
        Array(ControlledShutdownResponseRemainingPartition)
    )
