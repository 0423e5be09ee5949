from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jesenska.base.errors import UnsupportedVersionError
from jesenska.wire.codec import MalformedMessageError, decode, encode, encode_parts, source_of
from jesenska.wire.language import INT16, INT32, RECORDS, STRING, Array, Message, Struct, field
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestReplicaState
from jesenska.wire.messages.k03_metadata import MetadataRequest
from jesenska.wire.registry import APIS
from tests.profiles import examples
from tests.units.wire.strategies import messages

EVERY_VERSION = [
    pytest.param(kind, version, id=f"{kind.__name__}-{version}")
    for api in APIS.values()
    for kind in (api.request, api.response)
    for version in range(kind.versions[0], kind.versions[1] + 1)
]


def _plain(value: Any) -> Any:
    """Replaces views by bytes, so that decoded values compare with encoded ones."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Struct):
        return {item.name: _plain(getattr(value, item.name)) for item in value.fields}
    return value


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@settings(
    max_examples=examples(0.15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_message_and_version_comes_back_as_it_was(kind: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(kind, version))
    encoded = encode(message, version)
    assert _plain(decode(kind, version, encoded)) == _plain(message)


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@settings(max_examples=examples(0.1), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_message_that_is_cut_or_mutated_raises_only_malformed_message_error(
    kind: type[Message], version: int, data: st.DataObject
) -> None:
    encoded = bytearray(encode(data.draw(messages(kind, version)), version))
    if encoded:
        for _ in range(data.draw(st.integers(0, 4))):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
        encoded = encoded[: data.draw(st.integers(0, len(encoded)))]
    try:
        decode(kind, version, encoded)
    except MalformedMessageError:
        pass


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@given(noise=st.binary(max_size=200))
@settings(max_examples=examples(0.1))
def test_random_bytes_raise_only_malformed_message_error(kind: type[Message], version: int, noise: bytes) -> None:
    try:
        decode(kind, version, noise)
    except MalformedMessageError:
        pass


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_allocated() -> None:
    lying = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedMessageError, match="claims 2147483647 elements"):
        decode(MetadataRequest, 1, lying)


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_negative_length_other_than_null_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode(ProduceRequest, 3, length.to_bytes(2, "big", signed=True) + bytes(10))


def test_bytes_behind_a_message_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="left over"):
        decode(MetadataRequest, 0, encode(MetadataRequest(), 0) + b"\0")


def test_null_where_no_version_allows_it_is_refused_on_both_sides() -> None:
    with pytest.raises(MalformedMessageError, match="topics must not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(UnsupportedVersionError, match="topics is null"):
        encode(MetadataRequest(topics=None), 0)


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(UnsupportedVersionError, match="transactional_id is set, but version 2"):
        encode(ProduceRequest(transactional_id="t"), 2)
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)


def test_unknown_tagged_fields_are_skipped() -> None:
    class Before(Message, versions=(0, 0), flexible=0):
        name: str = field(STRING)

    class After(Message, versions=(0, 0), flexible=0):
        name: str = field(STRING)
        extra: int = field(INT32, tag=3, default=-1)
        other: str = field(STRING, tag=7)

    encoded = encode(After(name="n", extra=5, other="o"), 0)
    assert decode(Before, 0, encoded).name == "n"
    assert decode(After, 0, encoded) == After(name="n", extra=5, other="o")


def test_a_tagged_field_with_its_default_takes_no_bytes() -> None:
    assert len(encode(FetchRequest(replica_state=FetchRequestReplicaState(replica_id=3)), 15)) > len(
        encode(FetchRequest(), 15)
    )
    assert decode(FetchRequest, 15, encode(FetchRequest(), 15)).replica_state == FetchRequestReplicaState()


def test_records_are_handed_on_and_never_copied() -> None:
    records = bytearray(1000)
    request = ProduceRequest(
        acks=1,
        topic_data=[ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(index=0, records=records)])],
    )
    assert any(part is records for part in encode_parts(request, 9))
    received = memoryview(bytearray(encode(request, 9)))
    view = decode(ProduceRequest, 9, received).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is received.obj


def test_the_generated_source_is_there_to_read() -> None:
    class Point(Struct):
        x: int = field(INT16)

    class Points(Message, versions=(0, 0)):
        points: list[Point] = field(Array(Point))
        data: memoryview = field(RECORDS, nullable=0)

    text = source_of(Points, 0)
    assert "def decode(view, position, limit, room=" in text
    assert "def encode(message, out, parts):" in text
