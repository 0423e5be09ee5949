"""ZooKeeper's messages: reading returns what was written, and no bytes raise anything but MessageError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.metadata.tree_operations import OPEN_ACL, Acl, Stat
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    LAYOUT,
    MULTI_READ_TYPES,
    MULTI_TYPES,
    REQUESTS,
    RESPONSES,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    Message,
    MessageError,
    OpCode,
    PathRequest,
    Reader,
    ReplyHeader,
    RequestHeader,
    SetWatches,
    SubRequest,
    SubResponse,
)
from tests.profiles import examples

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=20)
VALUES: dict[object, st.SearchStrategy[Any]] = {
    messages._BOOL: st.booleans(),
    messages._INT32: INT,
    messages._INT64: LONG,
    messages._BUFFER: st.binary(max_size=50),
    messages._DATA: st.none() | st.binary(max_size=50),
    messages._STRING: TEXT,
    messages._STRINGS: st.lists(TEXT, max_size=4).map(tuple),
    messages._PAIRS: st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    messages._ACLS: st.lists(st.builds(Acl, INT, TEXT, TEXT), max_size=3).map(tuple),
    messages._STAT_FIELDS: st.builds(Stat, LONG, LONG, LONG, LONG, INT, INT, INT, LONG, INT, INT, LONG),
}


def of(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.tuples(*[VALUES[field] for field in LAYOUT[kind]]).map(lambda values: kind(*values))


MESSAGES = st.one_of([of(kind) for kind in LAYOUT])
MULTIS = st.lists(
    st.sampled_from(sorted(MULTI_TYPES | MULTI_READ_TYPES)).flatmap(
        lambda code: st.builds(SubRequest, st.just(code), of(REQUESTS[code]))
    ),
    max_size=4,
)
ANSWERS = st.lists(
    st.one_of(
        st.sampled_from(sorted(MULTI_TYPES | MULTI_READ_TYPES)).flatmap(
            lambda code: st.builds(SubResponse, st.just(code), st.just(0), of(RESPONSES[code]))
        ),
        st.builds(SubResponse, st.just(OpCode.ERROR), INT, st.none()),
    ),
    max_size=4,
)


@given(message=MESSAGES)
def test_what_is_written_is_read_as_it_was(message: Message) -> None:
    reader = Reader(messages.write(bytearray(), message))
    assert messages.read(type(message), reader) == message
    reader.end()


@given(operations=MULTIS, answers=ANSWERS)
def test_multis_and_their_answers_are_read_as_they_were(
    operations: list[SubRequest], answers: list[SubResponse]
) -> None:
    reader = Reader(messages.write_multi(bytearray(), operations))
    assert messages.read_multi(reader, MULTI_TYPES | MULTI_READ_TYPES) == tuple(operations)
    reader.end()
    reader = Reader(messages.write_multi_response(bytearray(), answers))
    assert messages.read_multi_response(reader) == tuple(answers)
    reader.end()


def read_as_everything(data: bytes) -> None:
    for kind in LAYOUT:
        try:
            messages.read(kind, Reader(data))
        except MessageError:
            pass
    for reading in (
        lambda: messages.read_multi(Reader(data), MULTI_TYPES),
        lambda: messages.read_multi_response(Reader(data)),
        lambda: messages.read_connect(data),
        lambda: messages.read_connected(data),
    ):
        try:
            reading()
        except MessageError:
            pass


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    read_as_everything(data)


@settings(max_examples=examples(3))
@given(message=MESSAGES, place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_a_damaged_message_is_a_message_or_an_error(message: Message, place: int, byte: int, cut: int) -> None:
    data = messages.write(bytearray(), message)
    if data:
        data[place % len(data)] = byte
    read_as_everything(bytes(data[: cut % (len(data) + 1)]))


def test_bytes_are_those_of_the_protocol() -> None:
    """Written down by hand from the protocol's description."""
    assert (
        messages.write(bytearray(), ConnectRequest(0, 7, 30_000, 0, bytes(16))).hex()
        == "00000000000000000000000700007530000000000000000000000010" + "00" * 16
    )
    assert messages.write(
        bytearray(), RequestHeader(1, OpCode.CREATE), CreateRequest("/a", b"x", OPEN_ACL, 3)
    ).hex() == ("0000000100000001000000022f610000000178000000010000001f00000005776f726c6400000006616e796f6e6500000003")
    assert messages.write(bytearray(), ReplyHeader(-1, -1, 0)).hex() == "ffffffffffffffffffffffff00000000"
    assert messages.write_multi(bytearray(), []).hex() == "ffffffff01ffffffff"


def test_the_connect_messages_are_read_with_and_without_the_read_only_byte() -> None:
    request = ConnectRequest(0, 7, 30_000, 5, bytes(16))
    data = messages.write(bytearray(), request)
    assert messages.read_connect(data) == (request, None)
    assert messages.read_connect(data + b"\x00") == (request, False)
    assert messages.read_connect(data + b"\x01") == (request, True)
    for behind in (b"\x02", b"\x00\x00"):
        with pytest.raises(MessageError):
            messages.read_connect(data + behind)
    response = ConnectResponse(0, 4000, 5, bytes(16))
    data = messages.write(bytearray(), response)
    assert messages.read_connected(data) == messages.read_connected(data + b"\x01") == response


def test_null_is_read_as_empty_but_for_a_nodes_data() -> None:
    null = b"\xff\xff\xff\xff"
    assert messages.read(CreateRequest, Reader(null + null + null + bytes(4))) == CreateRequest("", None, (), 0)


@pytest.mark.parametrize("count", ["7fffffff", "00000002", "fffffffe", "80000000"])
def test_a_count_or_length_that_the_frame_cannot_hold_is_refused(count: str) -> None:
    with pytest.raises(MessageError):
        messages.read(SetWatches, Reader(bytes(8) + bytes.fromhex(count) + bytes(4)))
    with pytest.raises(MessageError):
        messages.read(PathRequest, Reader(bytes.fromhex(count) + b"/"))


def test_a_multi_holds_no_multi() -> None:
    data = messages.write(bytearray(), messages.MultiHeader(OpCode.MULTI, False, -1))
    with pytest.raises(MessageError):
        messages.read_multi(Reader(data), MULTI_TYPES)
