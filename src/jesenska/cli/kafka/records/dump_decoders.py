"""The decoders of kafka-dump-log, which format keys and values.

    --key-decoder-class, --value-decoder-class   StringDecoder (the default), IntegerDecoder, LongDecoder, by their
                                                 class names, with or without Kafka's packages
    --offsets-decoder                            the records of __consumer_offsets as JSON, as Apache Kafka's tool
                                                 writes them
    --transaction-log-decoder                    the records of __transaction_state, as JSON
    --share-group-state-decoder                  the records of __share_group_state, as JSON
    --cluster-metadata-decoder                   the records of __cluster_metadata, in segments and checkpoints

Not supported: DefaultDecoder (Kafka's prints a Java object's address), custom classes, and the decoder of
__remote_log_metadata. Records of the newer group protocols are named by their number and skipped, as Kafka skips
unknown records."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from jesenska.base.errors import CorruptMessageError, JesenskaError
from jesenska.base.identifiers import NO_UUID, uuid_to_text
from jesenska.cli.kafka.records.dump_records import SHARE_GROUPS, TRANSACTIONS, Kinds
from jesenska.groups.records import GroupMetadataValue, GroupRecord, OffsetCommitValue, OffsetRecord
from jesenska.groups.records import read_record as read_group_record
from jesenska.interchange.raft.records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    read_control,
    read_record,
)
from jesenska.records.record import Record
from jesenska.wire.codec import MalformedMessageError, decode
from jesenska.wire.consumer_protocol import decode_assignment_message, decode_subscription
from jesenska.wire.language import Message, Struct

_PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.")
_CONSUMERS = "consumer"


class Shown(NamedTuple):
    """A record's key and value as text. A field that is None is left out of the output line."""

    key: str | None
    value: str | None


Decoder = Callable[[Record], Shown]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _number(size: int) -> Callable[[bytes], str]:
    def text(data: bytes) -> str:
        if len(data) < size:
            raise JesenskaError(
                f"{len(data)} bytes are not a number of {size} bytes, which the decoder expects: name another decoder."
            )
        return str(int.from_bytes(data[:size], "big", signed=True))

    return text


_DECODERS: dict[str, Callable[[bytes], str]] = {
    "StringDecoder": _text,
    "IntegerDecoder": _number(4),
    "LongDecoder": _number(8),
}


def _decoder(name: str) -> Callable[[bytes], str]:
    short = name
    for package in _PACKAGES:
        short = short.removeprefix(package)
    found = _DECODERS.get(short)
    if found is None:
        raise JesenskaError(
            f"The decoder {name} is a Java class, which cannot be loaded here: {', '.join(_DECODERS)} are built in."
        )
    return found


def by_class(key_class: str, value_class: str) -> Decoder:
    """Returns a decoder of keys and values that is made of two of Kafka's decoder classes. Raises JesenskaError for a
    class that is not built in."""
    key, value = _decoder(key_class), _decoder(value_class)

    def shown(record: Record) -> Shown:
        return Shown(
            None if record.key is None else key(record.key), None if record.value is None else value(record.value)
        )

    return shown


# --- __consumer_offsets ----------------------------------------------------------------------------------------------


def offsets(record: Record) -> Shown:
    """Formats a record of __consumer_offsets (a committed offset or a group) as JSON. A tombstone's value is
    `<DELETE>`. For a record that cannot be read, the key is the error."""
    try:
        found = read_group_record(record.key, record.value)
    except CorruptMessageError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)
    key = record.key or b""
    kind = int.from_bytes(key[:2], "big", signed=True)
    if found is None:
        return Shown(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
    version = 0 if record.value is None else int.from_bytes(record.value[:2], "big", signed=True)
    return Shown(
        _json({"type": str(kind), "data": key_fields(found)}),
        "<DELETE>" if found.value is None else _json(_versioned(found.value, version)),
    )


def key_fields(found: OffsetRecord | GroupRecord) -> dict[str, Any]:
    """Returns the fields of the record's key."""
    if isinstance(found, OffsetRecord):
        return {"group": found.group, "topic": found.topic, "partition": found.partition}
    return {"group": found.group}


def _versioned(value: OffsetCommitValue | GroupMetadataValue, version: int) -> dict[str, Any]:
    fields = fields_of(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == _CONSUMERS:
        for member, shown in zip(value.members, fields["members"], strict=True):
            shown["subscription"] = _inside(decode_subscription, bytes(member.subscription))
            shown["assignment"] = _inside(decode_assignment_message, bytes(member.assignment))
    return {"version": str(version), "data": fields}


def _inside(decode: Callable[[bytes], Struct], data: bytes) -> Any:
    """Returns the fields of a message of the consumer protocol. The message begins with its version. If the message
    cannot be read, returns its bytes in base64."""
    try:
        return fields_of(decode(data), int.from_bytes(data[:2], "big"))
    except MalformedMessageError:
        return base64.b64encode(data).decode("ascii")


def fields_of(message: Struct, version: int) -> dict[str, Any]:
    """Returns the fields that a message has in this version, under their names in Kafka's protocol. A tagged field
    with its default value is left out, because it is not written to the disk."""
    found = {}
    for item in message.fields:
        value = getattr(message, item.name)
        if item.present(version) and not (
            item.tag is not None and (value in (item.default, NO_UUID) if not item.makes_default else not value)
        ):
            found[_camel(item.name)] = _value(value, version)
    return found


def _value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_value(item, version) for item in value]
    if isinstance(value, Struct):
        return fields_of(value, version)
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode("ascii")
    return value if value is None or isinstance(value, int | str | float) else uuid_to_text(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json(value: Any) -> str:
    """Returns a value as JSON in the format of Kafka's tools: floating-point numbers are written as in Java."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, float):
        return java_double(value)
    return json.dumps(value, ensure_ascii=False)


def java_double(value: float) -> str:
    """Formats a number as Java's Double.toString does: from ten million on, and below a thousandth, it has an
    exponent."""
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else f'"{"-" if value < 0 else ""}Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    whole, _, fraction = digits.partition(".")
    every = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + (len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1))
    every = every.rstrip("0") or "0"
    return f"{sign}{every[0]}.{every[1:] or '0'}E{power}"


# --- other internal topics -------------------------------------------------------------------------------------------


def transactions(record: Record) -> Shown:
    """Formats a record of __transaction_state as JSON. The form is that of `offsets`: a tombstone's value is
    `<DELETE>`."""
    return _of_kinds(record, TRANSACTIONS)


def share_groups(record: Record) -> Shown:
    """Formats a record of __share_group_state as JSON. The form is that of `offsets`: a tombstone's value is
    `<DELETE>`."""
    return _of_kinds(record, SHARE_GROUPS)


def _of_kinds(record: Record, kinds: Kinds) -> Shown:
    key, value = record.key or b"", record.value
    kind = int.from_bytes(key[:2], "big", signed=True)
    if (found := kinds.get(kind)) is None or len(key) < 2:
        return Shown(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
    key_of, value_of = found
    try:
        shown_key = _json({"type": str(kind), "data": fields_of(decode(key_of, 0, key[2:]), 0)})
        if value is None:
            return Shown(shown_key, "<DELETE>")
        version = int.from_bytes(value[:2], "big", signed=True)
        if not value_of.versions[0] <= version <= value_of.versions[1]:
            return Shown(
                f"Error at offset {record.offset}, skipping. {value_of.__name__} has the version {version}, which is "
                f"not known",
                None,
            )
        return Shown(
            shown_key,
            _json({"version": str(version), "data": fields_of(decode(value_of, version, value[2:]), version)}),
        )
    except MalformedMessageError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)


def cluster_metadata(record: Record) -> Shown:
    """Formats a record of the KRaft metadata log as JSON. Records of this log have no key."""
    try:
        found = read_record(record.value)
    except CorruptMessageError as error:
        return Shown(None, f"Error at {record.offset}, skipping. {error}")
    document = {
        "type": _constant(type(found.message).__name__),
        "version": found.version,
        "data": fields_of(found.message, found.version),
    }
    return Shown(None, _json(document))


def control(record: Record) -> str | None:
    """Formats a control record of the KRaft metadata log. Returns None for a control record of a type that does not
    occur in this log."""
    found = read_control(record)
    if found is None:
        return None
    return f"{_CONTROL_NAMES[type(found.message)]} {_json(fields_of(found.message, found.version))}"


_CONTROL_NAMES: dict[type[Message], str] = {
    LeaderChangeMessage: "LeaderChange:",
    SnapshotHeaderRecord: "SnapshotHeader",
    SnapshotFooterRecord: "SnapshotFooter",
    KRaftVersionRecord: "KRaftVersion",
    VotersRecord: "KRaftVoters",
}


def _constant(name: str) -> str:
    """Converts a class name to a constant's name, for example TopicRecord to TOPIC_RECORD."""
    return "".join(
        f"_{letter}" if letter.isupper() and number else letter for number, letter in enumerate(name)
    ).upper()
