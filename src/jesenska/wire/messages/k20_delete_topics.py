"""DeleteTopics (key 20): deletes topics.

Versions: 3 adds the error TOPIC_DELETION_DISABLED, 4 the compact encoding, 5 error messages. 6 names topics by name or
by id."""

from __future__ import annotations

import uuid

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, UUID, Array, Message, Struct, field


class DeleteTopicsRequestTopic(Struct):
    name: str | None = field(STRING, since=6, nullable=6, default=None)
    topic_id: uuid.UUID = field(UUID, since=6)


class DeleteTopicsRequest(Message, key=20, kind=REQUEST, versions=(0, 6), flexible=4):
    topics: list[DeleteTopicsRequestTopic] = field(Array(DeleteTopicsRequestTopic), since=6)
    topic_names: list[str] = field(Array(STRING), until=5, ignorable=True)
    timeout_ms: int = field(INT32)


class DeleteTopicsResponseTopic(Struct):
    name: str | None = field(STRING, nullable=6)
    topic_id: uuid.UUID = field(UUID, since=6, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)


class DeleteTopicsResponse(Message, key=20, kind=RESPONSE, versions=(0, 6), flexible=4):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    responses: list[DeleteTopicsResponseTopic] = field(Array(DeleteTopicsResponseTopic))
