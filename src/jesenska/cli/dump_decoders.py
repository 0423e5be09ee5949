"""How kafka-dump-log writes keys and values, by the decoder that was asked for.

    --key-decoder-class, --value-decoder-class   StringDecoder (the default), IntegerDecoder, LongDecoder, by their
                                                 names alone or with Kafka's packages
    --offsets-decoder                            the records of __consumer_offsets as JSON, as Apache Kafka's tool
                                                 writes them

Left out: DefaultDecoder (Kafka's prints a Java object's address), classes of one's own, the records of the newer group
protocols (they are named by their number and skipped, as Kafka skips what it does not know), and the decoders of other
internal topics.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from jesenska.base.errors import CorruptMessageError, JesenskaError
from jesenska.base.identifiers import NO_UUID, uuid_to_text
from jesenska.groups.records import GroupMetadataValue, GroupRecord, OffsetCommitValue, OffsetRecord, read_record
from jesenska.records.record import Record
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.consumer_protocol import decode_assignment_message, decode_subscription
from jesenska.wire.language import Array, Struct

_PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.")
_CONSUMERS = "consumer"


class Shown(NamedTuple):
    """A record's key and value as text; None is left out of the line."""

    key: str | None
    value: str | None


Decoder = Callable[[Record], Shown]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _number(size: int) -> Callable[[bytes], str]:
    def text(data: bytes) -> str:
        if len(data) < size:
            raise JesenskaError(f"{len(data)} bytes are no number of {size} bytes, which the decoder expects: name another decoder.")
        return str(int.from_bytes(data[:size], "big", signed=True))

    return text


_DECODERS: dict[str, Callable[[bytes], str]] = {"StringDecoder": _text, "IntegerDecoder": _number(4), "LongDecoder": _number(8)}


def _decoder(name: str) -> Callable[[bytes], str]:
    short = name
    for package in _PACKAGES:
        short = short.removeprefix(package)
    found = _DECODERS.get(short)
    if found is None:
        raise JesenskaError(f"The decoder {name} is a Java class, which cannot be loaded here: {', '.join(_DECODERS)} are built in.")
    return found


def by_class(key_class: str, value_class: str) -> Decoder:
    """Keys and values by decoders of Kafka's; JesenskaError for a class that is not built in."""
    key, value = _decoder(key_class), _decoder(value_class)

    def shown(record: Record) -> Shown:
        return Shown(None if record.key is None else key(record.key), None if record.value is None else value(record.value))

    return shown


# --- __consumer_offsets ----------------------------------------------------------------------------------------------


def offsets(record: Record) -> Shown:
    """A committed offset or a group as JSON; a tombstone's value is `<DELETE>`. What cannot be read is told in the
    key's place."""
    try:
        found = read_record(record.key, record.value)
    except CorruptMessageError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)
    key = record.key or b""
    kind = int.from_bytes(key[:2], "big", signed=True)
    if found is None:
        return Shown(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
    version = 0 if record.value is None else int.from_bytes(record.value[:2], "big", signed=True)
    return Shown(_json({"type": str(kind), "data": key_fields(found)}), "<DELETE>" if found.value is None else _json(_versioned(found.value, version)))


def key_fields(found: OffsetRecord | GroupRecord) -> dict[str, Any]:
    """The fields of a record's key."""
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
    """What a consumer wrote, in its own version; the bytes where it cannot be read."""
    try:
        return fields_of(decode(data), int.from_bytes(data[:2], "big"))
    except MalformedMessageError:
        return base64.b64encode(data).decode("ascii")


def fields_of(message: Struct, version: int) -> dict[str, Any]:
    """A message's fields by the protocol's names, those that the version has; a tagged one that has its default is
    left out, as it is on the disk."""
    found = {}
    for item in message.fields:
        value = getattr(message, item.name)
        if item.present(version) and not (item.tag is not None and value in (item.default, NO_UUID)):
            found[_camel(item.name)] = _value(value, item.type, version)
    return found


def _value(value: Any, kind: object, version: int) -> Any:
    if isinstance(kind, Array) and value is not None:
        return [fields_of(item, version) if isinstance(item, Struct) else item for item in value]
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode("ascii")
    return value if value is None or isinstance(value, int | str) else uuid_to_text(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
