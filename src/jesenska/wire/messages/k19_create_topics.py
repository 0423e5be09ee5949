"""CreateTopics (key 19): creates topics.

Versions: 1 adds error messages and validate_only. From 4 on -1 asks for the default number of partitions or replicas
(KIP-464). 5 uses the compact encoding and returns the topic's settings, 6 may be refused by a quota, 7 returns topic
ids."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    REQUEST,
    RESPONSE,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class CreateTopicsRequestAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(Array(INT32))


class CreateTopicsRequestConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class CreateTopicsRequestTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreateTopicsRequestAssignment] = field(Array(CreateTopicsRequestAssignment))
    configs: list[CreateTopicsRequestConfig] = field(Array(CreateTopicsRequestConfig))


class CreateTopicsRequest(Message, key=19, kind=REQUEST, versions=(0, 7), flexible=5):
    topics: list[CreateTopicsRequestTopic] = field(Array(CreateTopicsRequestTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOLEAN, since=1)


class CreateTopicsResponseConfig(Struct):
    name: str = field(STRING, since=5)
    value: str | None = field(STRING, since=5, nullable=5)
    read_only: bool = field(BOOLEAN, since=5)
    config_source: int = field(INT8, since=5, default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN, since=5)


class CreateTopicsResponseTopic(Struct):
    name: str = field(STRING)
    topic_id: uuid.UUID = field(UUID, since=7, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=1, nullable=0, ignorable=True)
    topic_config_error_code: int = field(INT16, since=5, tag=0, ignorable=True)
    num_partitions: int = field(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = field(INT16, since=5, default=-1, ignorable=True)
    configs: list[CreateTopicsResponseConfig] | None = field(
        Array(CreateTopicsResponseConfig), since=5, nullable=5, ignorable=True
    )


class CreateTopicsResponse(Message, key=19, kind=RESPONSE, versions=(0, 7), flexible=5):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[CreateTopicsResponseTopic] = field(Array(CreateTopicsResponseTopic))
