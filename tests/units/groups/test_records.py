"""Records of groups and offsets as each release of Apache Kafka writes them, byte by byte."""

from __future__ import annotations

import struct
import uuid

import pytest

from jesenska.base.errors import CorruptMessageError
from jesenska.groups.records import (
    GroupMetadataValue,
    GroupMetadataValueMember,
    GroupRecord,
    OffsetCommitValue,
    OffsetRecord,
    read_record,
)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_groups_record_says_what_its_version_has_and_of_the_rest_that_nobody_knows(version: int) -> None:
    instance = _string("i") if version >= 3 else b""
    rebalance_timeout = struct.pack(">i", 30_000) if version >= 1 else b""
    since = struct.pack(">q", 1_600_000_000_000) if version >= 2 else b""
    member = (
        _string("m")
        + instance
        + _string("c")
        + _string("/h")
        + rebalance_timeout
        + struct.pack(">i", 10_000)
        + _bytes(b"sub")
        + _bytes(b"assigned")
    )
    value = (
        struct.pack(">h", version)
        + _string("consumer")
        + struct.pack(">i", 7)
        + _string("range")
        + _string("m")
        + since
        + struct.pack(">i", 1)
        + member
    )
    assert read_record(struct.pack(">h", 2) + _string("g"), value) == GroupRecord(
        "g",
        GroupMetadataValue(
            protocol_type="consumer",
            generation=7,
            protocol="range",
            leader="m",
            current_state_timestamp=1_600_000_000_000 if version >= 2 else -1,
            members=[
                GroupMetadataValueMember(
                    member_id="m",
                    group_instance_id="i" if version >= 3 else None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=30_000 if version >= 1 else -1,
                    session_timeout=10_000,
                    subscription=b"sub",
                    assignment=b"assigned",
                )
            ],
        ),
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("key_version", [0, 1])
def test_an_offsets_record_says_what_its_version_has_and_of_the_rest_that_nobody_knows(
    version: int, key_version: int
) -> None:
    key = struct.pack(">h", key_version) + _string("g") + _string("t") + struct.pack(">i", 3)
    leader_epoch = struct.pack(">i", 5) if version >= 3 else b""
    expires = struct.pack(">q", 9_000) if version == 1 else b""
    value = struct.pack(">hq", version, 42) + leader_epoch + _string("note") + struct.pack(">q", 8_000) + expires
    expected = OffsetCommitValue(
        offset=42,
        leader_epoch=5 if version >= 3 else -1,
        metadata="note",
        commit_timestamp=8_000,
        expire_timestamp=9_000 if version == 1 else -1,
    )
    assert read_record(key, value) == OffsetRecord("g", "t", 3, expected)
    assert read_record(key, None) == OffsetRecord("g", "t", 3, None)


@pytest.mark.parametrize("topic_id", [None, uuid.UUID(int=7)])
def test_an_offsets_record_of_version_4_may_name_the_topics_id(topic_id: uuid.UUID | None) -> None:
    key = struct.pack(">h", 1) + _string("g") + _string("t") + struct.pack(">i", 3)
    tags = b"\0" if topic_id is None else b"\1\0\x10" + topic_id.bytes
    value = struct.pack(">hqi", 4, 42, 5) + b"\5note" + struct.pack(">q", 8_000) + tags
    expected = OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=8_000)
    if topic_id is not None:
        expected.topic_id = topic_id
    assert read_record(key, value) == OffsetRecord("g", "t", 3, expected)


def test_keys_of_later_releases_are_left_alone() -> None:
    assert read_record(b"\0\3abc", b"") is None
    assert read_record(b"\0\3", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (b"\0\1\0", b""),
        (b"\0\2\0\1g", b"\0\5"),
        (b"\0\2\0\1g", b"\0\0\0"),
        (b"\0\2\0\1g", b""),
    ],
)
def test_bytes_that_say_nothing_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        read_record(key, value)
