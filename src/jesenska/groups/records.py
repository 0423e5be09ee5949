"""Encodes and decodes the records of `__consumer_offsets`, which store groups and their committed offsets, in Apache
Kafka's format.

  key                                                value                                    null value
  OffsetCommitKey     v0, v1  group topic partition  OffsetCommitValue    v0-v4  offset …     the offset is deleted
  GroupMetadataKey    v2      group                  GroupMetadataValue   v0-v4  members …    the group is removed

A key begins with its version (INT16), which is also the kind of the record; a value begins with its version. Records
are written in the versions of Apache Kafka 3.9 (key 1 and 2, value 3), so that Apache Kafka 3.9 can read them. All
versions can be read. Keys of the newer protocols (3 and later) are ignored."""

from __future__ import annotations

import uuid
from typing import NamedTuple, TypeVar

from jesenska.base.errors import CorruptMessageError
from jesenska.coordination.shard import KeyValue
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.wire.codec import MalformedMessageError, decode, encode
from jesenska.wire.language import BYTES, INT32, INT64, STRING, UUID, Array, Message, Struct, field

T = TypeVar("T", bound=Message)

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_KEY_WRITTEN = 1
_VALUE_WRITTEN = 3


class OffsetCommitKey(Message, versions=(0, 1)):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=4, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions=(2, 2)):
    group: str = field(STRING)


class GroupMetadataValueMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: memoryview | bytes = field(BYTES)
    assignment: memoryview | bytes = field(BYTES)


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable=0)
    leader: str | None = field(STRING, nullable=0)
    current_state_timestamp: int = field(INT64, since=2, default=-1, ignorable=True)
    members: list[GroupMetadataValueMember] = field(Array(GroupMetadataValueMember))


class OffsetRecord(NamedTuple):
    """The decoded record of a committed offset. `value` is None if the offset is deleted."""

    group: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """The decoded record of a group. `value` is None if the group is removed."""

    group: str
    value: GroupMetadataValue | None


def _versioned(version: int, message: Message) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(message, version)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return _versioned(_OFFSET_KEY_WRITTEN, OffsetCommitKey(group=group, topic=topic, partition=partition))


def offset_record(group: str, topic: str, partition: int, value: OffsetCommitValue | None) -> KeyValue:
    """Returns the encoded record of a committed offset, or its tombstone. A commit with a retention time (from an old
    client) is written in version 1."""
    if value is None:
        return KeyValue(offset_key(group, topic, partition), None)
    version = 1 if value.expire_timestamp >= 0 else _VALUE_WRITTEN
    return KeyValue(offset_key(group, topic, partition), _versioned(version, value))


def group_record(group: str, value: GroupMetadataValue | None) -> KeyValue:
    """Returns the encoded record of a group, or its tombstone."""
    key = _versioned(_GROUP_KEY, GroupMetadataKey(group=group))
    return KeyValue(key, None if value is None else _versioned(_VALUE_WRITTEN, value))


def encode_record(record: OffsetRecord | GroupRecord) -> KeyValue:
    """Returns the encoded record of an offset or a group."""
    if isinstance(record, OffsetRecord):
        return offset_record(record.group, record.topic, record.partition, record.value)
    return group_record(record.group, record.value)


def read_record(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """Decodes a record. Returns None for records that do not belong to the classic protocol. Raises
    CorruptMessageError for bytes that are not a record."""
    if key is None or len(key) < 2:
        raise CorruptMessageError(f"a record of {OFFSETS_TOPIC} has no key")
    version = int.from_bytes(key[:2], "big", signed=True)
    try:
        if version in _OFFSET_KEYS:
            at = decode(OffsetCommitKey, version, key[2:])
            return OffsetRecord(at.group, at.topic, at.partition, _value(OffsetCommitValue, value))
        if version == _GROUP_KEY:
            return GroupRecord(decode(GroupMetadataKey, version, key[2:]).group, _value(GroupMetadataValue, value))
    except MalformedMessageError as error:
        raise CorruptMessageError(f"a record of {OFFSETS_TOPIC} cannot be read: {error}") from error
    return None


def _value(kind: type[T], value: bytes | None) -> T | None:
    if value is None:
        return None
    version = int.from_bytes(value[:2], "big", signed=True)
    low, high = kind.versions
    if not low <= version <= high:
        raise CorruptMessageError(f"{kind.__name__} has the version {version}, known are {low} to {high}")
    found: T = decode(kind, version, value[2:])
    return found
