"""Serdes: Java's bytes, both ways, and the errors for wrong values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jesenska.pipeline.streams import (
    Serde,
    Serdes,
    SerializationError,
    SessionWindow,
    SettingError,
    TimeWindow,
    TopologyError,
    Windowed,
)
from jesenska.pipeline.streams.engine.change_serde import ChangeSerde
from jesenska.pipeline.streams.engine.joins.foreign_keys import (
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
)
from jesenska.pipeline.streams.records import Change
from jesenska.pipeline.streams.serdes.registry_frame import (
    framed,
    read_message_indexes,
    unframed,
    write_message_indexes,
)
from jesenska.pipeline.streams.serdes.serdes import serde_named

fastavro = pytest.importorskip("fastavro", reason="needs the extra streams")
descriptor_pb2: Any = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs the extra streams")

ALL = (Serdes.string(), Serdes.bytes(), Serdes.int(), Serdes.long(), Serdes.double(), Serdes.json())
_json = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**53), 2**53)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        # Results of Kafka's Java serializers.
        (Serdes.string(), "žluť", "žluť".encode()),
        (Serdes.int(), -2, b"\xff\xff\xff\xfe"),
        (Serdes.long(), 258, b"\0\0\0\0\0\0\x01\x02"),
        (Serdes.double(), 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (Serdes.bytes(), b"\0x", b"\0x"),
        (Serdes.json(), {"a": [1, None, "ž"]}, '{"a":[1,null,"ž"]}'.encode()),
        (Serdes.time_windowed(Serdes.string(), 10), Windowed("k", TimeWindow(5, 15)), b"k" + (5).to_bytes(8, "big")),
        (
            Serdes.session_windowed(Serdes.string()),
            Windowed("k", SessionWindow(5, 7)),
            b"k" + (7).to_bytes(8, "big") + (5).to_bytes(8, "big"),
        ),
    ],
    ids=repr,
)
def test_the_bytes_are_javas(serde: Serde, value: Any, data: bytes) -> None:
    assert serde.serialize("t", value) == data
    assert serde.deserialize("t", data) == value


@pytest.mark.parametrize("serde", ALL, ids=repr)
def test_none_has_no_bytes(serde: Serde) -> None:
    assert serde.serialize("t", None) is None
    assert serde.deserialize("t", None) is None


@given(some.text())
def test_every_text_comes_back_or_is_refused(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(SerializationError):
            Serdes.string().serialize("t", text)
    else:
        assert Serdes.string().deserialize("t", Serdes.string().serialize("t", text)) == text


@given(some.integers(-(2**80), 2**80))
def test_every_integer_comes_back_or_is_refused(number: int) -> None:
    for serde, bits in ((Serdes.int(), 31), (Serdes.long(), 63)):
        if -(2**bits) <= number < 2**bits:
            assert serde.deserialize("t", serde.serialize("t", number)) == number
        else:
            with pytest.raises(SerializationError, match="does not fit into"):
                serde.serialize("t", number)


@given(some.floats())
def test_every_double_comes_back(number: float) -> None:
    back = Serdes.double().deserialize("t", Serdes.double().serialize("t", number))
    assert back == number or (math.isnan(back) and math.isnan(number))


@given(_json)
def test_every_json_value_comes_back(value: Any) -> None:
    serde = Serdes.json()
    assert value is None or serde.deserialize("t", serde.serialize("t", value)) == value


@given(some.binary())
def test_bytes_that_nobody_wrote_are_read_or_refused_and_never_worse(data: bytes) -> None:
    inner = (*ALL, Serdes.time_windowed(Serdes.string(), 10), Serdes.session_windowed(Serdes.long()))
    avro = Serdes.avro(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]},
        schema_id=1,
    )
    for serde in (*inner, avro, Serdes.protobuf(descriptor_pb2.FileDescriptorProto, schema_id=1)):
        for attempt in (data, b"\0\0\0\0\x01" + data):
            try:
                serde.deserialize("t", attempt)
            except SerializationError as error:
                assert "cannot be read as" in str(error)


@pytest.mark.parametrize(
    ("serde", "value", "sentence"),
    [
        (
            Serdes.string(),
            5,
            "5 cannot be written to orders as string: it is int and not str; give a serde that fits the values",
        ),
        (Serdes.long(), True, "True cannot be written to orders as long: it is bool and not int"),
        (Serdes.bytes(), "x", "'x' cannot be written to orders as bytes: it is str and not bytes"),
        (Serdes.json(), {1, 2}, "JSON has null, booleans, finite numbers"),
        (Serdes.json(), float("nan"), "JSON has null, booleans, finite numbers"),
        (Serdes.double(), 10**400, "it is larger than any double"),
        (Serdes.time_windowed(Serdes.string(), 10), "k", "not the key of a windowed table"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_topic_and_remedy(serde: Serde, value: Any, sentence: str) -> None:
    with pytest.raises(SerializationError) as refused:
        serde.serialize("orders", value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("serde", "data", "sentence"),
    [
        (Serdes.string(), b"\xff", "b'\\xff' in orders cannot be read as string: byte 0 is not UTF-8"),
        (Serdes.int(), b"12345", "it has 5 bytes and not 4; use the serde with which it was written"),
        (Serdes.json(), b"{", "cannot be read as json"),
        (Serdes.session_windowed(Serdes.string()), b"short", "fewer than the window takes"),
    ],
)
def test_bytes_that_do_not_fit_are_refused_with_topic_and_remedy(serde: Serde, data: bytes, sentence: str) -> None:
    with pytest.raises(SerializationError) as refused:
        serde.deserialize("orders", data)
    assert sentence in str(refused.value)


def test_two_functions_make_a_serde() -> None:
    serde = Serde.of(lambda value: value.hex().encode(), lambda data: bytes.fromhex(data.decode()), "hex")
    assert serde.deserialize("t", serde.serialize("t", b"\x01")) == b"\x01"
    with pytest.raises(SerializationError, match="cannot be read as hex: its function raised ValueError"):
        serde.deserialize("t", b"zz")


def test_settings_name_serdes_as_kafka_does_or_shortly() -> None:
    assert serde_named("default.key.serde", "org.apache.kafka.common.serialization.Serdes$LongSerde") is Serdes.long()
    assert serde_named("default.key.serde", "json") is Serdes.json()
    with pytest.raises(SettingError, match=r"default\.key\.serde is 'nonsense', which names no serde: give one of"):
        serde_named("default.key.serde", "nonsense")


@given(some.text(some.characters(exclude_categories=["Cs"])), some.integers(0, 2**62), some.integers(0, 2**61))
def test_windowed_keys_come_back(key: str, start: int, length: int) -> None:
    time = Serdes.time_windowed(Serdes.string(), length)
    window = Windowed(key, TimeWindow(start, start + length))
    assert time.deserialize("t", time.serialize("t", window)) == window
    session = Serdes.session_windowed(Serdes.string())
    sessions = Windowed(key, SessionWindow(start, start + length))
    assert session.deserialize("t", session.serialize("t", sessions)) == sessions


# A schema registry's frame


@given(
    some.integers(0, 2**32 - 1),
    some.binary(),
    some.lists(some.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple),
)
def test_frames_come_back(schema_id: int, payload: bytes, indexes: tuple[int, ...]) -> None:
    assert unframed(framed(schema_id, payload)) == (schema_id, payload)
    assert read_message_indexes(write_message_indexes(indexes) + payload) == (indexes, payload)


def test_message_indexes_are_those_of_the_registry() -> None:
    assert write_message_indexes((0,)) == b"\x00"
    assert write_message_indexes((1,)) == b"\x02\x02"
    assert write_message_indexes((2, 0, 100)) == b"\x06\x04\x00\xc8\x01"
    for data in (b"", b"\x80", b"\xff\xff\xff\xff\xff\xff", b"\xfe\xff\x0f", b"\x04\x02"):
        with pytest.raises(SerializationError):
            read_message_indexes(data)


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
OLD_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
GROWN = {**ORDER, "fields": [*OLD_ORDER["fields"], {"name": "amount", "type": "long", "default": 1}]}


def test_avro_is_framed_and_read_again() -> None:
    serde = Serdes.avro(ORDER, schema_id=258)
    data = serde.serialize("t", {"id": "a", "amount": -1})
    assert data == b"\0\0\0\x01\x02" + b"\x02a" + b"\x01"
    assert serde.deserialize("t", data) == {"id": "a", "amount": -1}


def test_avro_of_an_older_schema_is_resolved() -> None:
    old = Serdes.avro(OLD_ORDER, schema_id=7).serialize("t", {"id": "a"})
    assert Serdes.avro(GROWN, schema_id=8, schemas={7: OLD_ORDER}).deserialize("t", old) == {"id": "a", "amount": 1}
    with pytest.raises(
        SerializationError,
        match=r"it was written with schema 7, which is not known; give Serdes\.avro schemas=\{7: …\}",
    ):
        Serdes.avro(GROWN, schema_id=8).deserialize("t", old)


def test_avro_asks_for_ids_and_schemas_by_functions() -> None:
    asked: list[Any] = []

    def schema_id(topic: str, schema: Any) -> int:
        asked.append(topic)
        return 5

    serde = Serdes.avro(ORDER, schema_id=schema_id, schemas=lambda number: OLD_ORDER if number == 9 else None)
    data = [serde.serialize(topic, {"id": "a", "amount": 1}) for topic in ("one", "one", "two")]
    assert asked == ["one", "two"]
    assert serde.deserialize("one", data[0]) == {"id": "a", "amount": 1}
    with pytest.raises(SerializationError, match="schema 3"):
        serde.deserialize("one", b"\0\0\0\0\x03\x02a")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"id": "a"}, "it does not fit the schema"),
        ({"id": "a", "amount": 1, "more": 2}, "it does not fit the schema"),
        (5, "it does not fit the schema"),
    ],
)
def test_a_value_that_does_not_fit_its_avro_schema_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(SerializationError, match=sentence):
        Serdes.avro(ORDER, schema_id=1).serialize("t", value)


def test_avro_without_an_id_reads_only() -> None:
    with pytest.raises(SerializationError, match=r"give Serdes\.avro a schema_id"):
        Serdes.avro(ORDER).serialize("t", {"id": "a", "amount": 1})
    with pytest.raises(TopologyError, match="the Avro schema cannot be used"):
        Serdes.avro({"type": "nonsense"})


def test_protobuf_is_framed_and_read_again() -> None:
    message = descriptor_pb2.FileDescriptorProto(name="a")
    serde = Serdes.protobuf(descriptor_pb2.FileDescriptorProto, schema_id=3)
    data = serde.serialize("t", message)
    # FileDescriptorProto is the second message of its file.
    assert data == b"\0\0\0\0\x03" + b"\x02\x02" + b"\x0a\x01a"
    assert serde.deserialize("t", data) == message


def test_a_nested_protobuf_message_says_where_it_stands() -> None:
    nested = descriptor_pb2.DescriptorProto.ExtensionRange
    serde = Serdes.protobuf(nested, schema_id=3)
    data = serde.serialize("t", nested(start=1))
    assert data is not None and data[5:8] == b"\x04\x04\x00"  # two of them: the file's third message, its first
    with pytest.raises(SerializationError, match=r"it is the message \[2, 0\] of its file and not \[1\]"):
        Serdes.protobuf(descriptor_pb2.FileDescriptorProto, schema_id=3).deserialize("t", data)


def test_protobuf_takes_messages_of_its_class_only() -> None:
    with pytest.raises(SerializationError, match="it is dict and not FileDescriptorProto"):
        Serdes.protobuf(descriptor_pb2.FileDescriptorProto, schema_id=3).serialize("t", {})
    with pytest.raises(TopologyError, match=r"Serdes\.protobuf takes the class of a message"):
        Serdes.protobuf({})


@pytest.mark.parametrize(
    ("name", "make"),
    [("fastavro", lambda: Serdes.avro(ORDER)), ("google.protobuf.message", lambda: Serdes.protobuf(int))],
)
def test_a_library_that_is_missing_is_named_with_what_installs_it(
    name: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TopologyError, match=r'which is not installed: pip install "jesenska\[streams\]"'):
        make()


# Of internal topics


@given(
    some.none() | some.text(some.characters(exclude_categories=["Cs"])),
    some.none() | some.text(some.characters(exclude_categories=["Cs"])),
)
def test_changes_come_back(new: str | None, old: str | None) -> None:
    serde = ChangeSerde(Serdes.string())
    if new is None and old is None:
        with pytest.raises(SerializationError):
            serde.serialize("t", Change(new, old))
    else:
        assert serde.deserialize("t", serde.serialize("t", Change(new, old))) == Change(new, old)


@given(
    some.text(some.characters(exclude_categories=["Cs"])),
    some.sampled_from(Instruction),
    some.none() | some.binary(min_size=16, max_size=16),
)
def test_subscriptions_and_answers_come_back(key: str, instruction: Instruction, hash_: bytes | None) -> None:
    subscriptions, answers = SubscriptionSerde(Serdes.string()), ResponseSerde(Serdes.string())
    subscription = Subscription(key, instruction, hash_)
    assert subscriptions.deserialize("t", subscriptions.serialize("t", subscription)) == subscription
    for value in (None, "", key):
        assert answers.deserialize("t", answers.serialize("t", Response(value, hash_))) == Response(value, hash_)
