"""CreatePartitions (key 37): raises the number of partitions of topics.

Versions: 2 uses the compact encoding, 3 may be refused by a quota."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class CreatePartitionsRequestAssignment(Struct):
    broker_ids: list[int] = field(Array(INT32))


class CreatePartitionsRequestTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsRequestAssignment] | None = field(
        Array(CreatePartitionsRequestAssignment), nullable=0
    )


class CreatePartitionsRequest(Message, key=37, kind=REQUEST, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsRequestTopic] = field(Array(CreatePartitionsRequestTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOLEAN)


class CreatePartitionsResponseResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)


class CreatePartitionsResponse(Message, key=37, kind=RESPONSE, versions=(0, 3), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsResponseResult] = field(Array(CreatePartitionsResponseResult))
