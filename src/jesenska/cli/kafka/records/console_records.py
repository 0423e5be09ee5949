"""Formats records as lines of text, for kafka-console-consumer. The output is that of Kafka's default formatter, field
by field.

    CreateTime:1500000000000 <TAB> Partition:0 <TAB> Offset:7 <TAB> h1:v1,h2:null <TAB> key <TAB> value <NEWLINE>

Each field is turned on by a property (print.timestamp, print.partition, print.offset, print.delivery, print.epoch,
print.headers, print.key, print.value); by default only the value is printed. key.separator is printed between fields,
line.separator at the end, headers.separator between headers, null.literal for null. Bytes are printed unchanged,
unless one of Kafka's deserializers is named."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from struct import pack, unpack
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.table import value_text
from jesenska.records.header import TimestampType
from jesenska.records.record import Record

_DEFAULTS = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}
#: The names of all properties that control how records are printed.
PROPERTIES = tuple(_DEFAULTS)
#: Prefixes of properties for deserializers. Such properties are accepted without effect, since the built-in
#: deserializers have no properties.
_OF_DESERIALIZERS = ("key.deserializer.", "value.deserializer.", "headers.deserializer.")
_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: b"CreateTime", TimestampType.LOG_APPEND_TIME: b"LogAppendTime"}
_PACKAGE = "org.apache.kafka.common.serialization."

Deserializer = Callable[[bytes], bytes]


def _number(size: int) -> Deserializer:
    def text(data: bytes) -> bytes:
        if len(data) != size:
            raise JesenskaError(f"{len(data)} bytes are not a number of {size} bytes, which the deserializer expects.")
        return b"%d" % int.from_bytes(data, "big", signed=True)

    return text


def _double(data: bytes) -> bytes:
    if len(data) != 8:
        raise JesenskaError(f"{len(data)} bytes are not a number of 8 bytes, which the deserializer expects.")
    return (value_text(unpack(">d", data)[0]) or "").encode()


def _float(data: bytes) -> bytes:
    """Formats a float as Java does: with the smallest number of digits that distinguishes it from the neighbouring
    floats."""
    if len(data) != 4:
        raise JesenskaError(f"{len(data)} bytes are not a number of 4 bytes, which the deserializer expects.")
    number = unpack(">f", data)[0]
    for digits in range(1, 10):
        short = float(f"{number:.{digits}g}")
        try:
            same = pack(">f", short) == data
        except OverflowError:  # rounded to more than the largest number
            continue
        if same:
            number = short
            break
    return (value_text(number) or "").encode()


def _boolean(data: bytes) -> bytes:
    if data not in (b"\x00", b"\x01"):
        raise JesenskaError("The bytes are not a boolean (one byte, 0 or 1), which the deserializer expects.")
    return b"true" if data == b"\x01" else b"false"


def _void(data: bytes) -> bytes:
    raise JesenskaError("Data should be null for a VoidDeserializer.")


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError:
        raise JesenskaError("The bytes are not the text of a UUID, which the deserializer expects.") from None


_DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": lambda data: data.decode(errors="replace").encode(),
    "ByteArrayDeserializer": lambda data: data,
    "BytesDeserializer": lambda data: data,
    "ShortDeserializer": _number(2),
    "IntegerDeserializer": _number(4),
    "LongDeserializer": _number(8),
    "FloatDeserializer": _float,
    "DoubleDeserializer": _double,
    "BooleanDeserializer": _boolean,
    "VoidDeserializer": _void,
    "UUIDDeserializer": _uuid,
}


def _deserializer(name: str) -> Deserializer | None:
    if not name:
        return None
    found = _DESERIALIZERS.get(name.removeprefix(_PACKAGE))
    if found is None:
        raise JesenskaError(
            f"The deserializer {name} is a Java class, which cannot be loaded here; "
            f"{', '.join(sorted(_DESERIALIZERS))} are built in."
        )
    return found


class RecordFormatter:
    """Formats the records of a partition as lines."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = _DEFAULTS | dict(properties)
        self.unknown = sorted(
            name for name in properties if name not in _DEFAULTS and not name.startswith(_OF_DESERIALIZERS)
        )
        wanted = {name: settings[name].strip().lower() == "true" for name in _DEFAULTS if name.startswith("print.")}
        self._fields = [name.removeprefix("print.") for name, wants in wanted.items() if wants]
        self._separator = settings["key.separator"].encode()
        self._line_end = settings["line.separator"].encode()
        self._headers_separator = settings["headers.separator"].encode()
        self._null = settings["null.literal"].encode()
        self._key = _deserializer(settings["key.deserializer"])
        self._value = _deserializer(settings["value.deserializer"])
        self._headers = _deserializer(settings["headers.deserializer"])
        self._values_only = self._fields == ["value"] and self._value is None

    def lines(self, partition: TopicPartition, records: Iterable[Record]) -> bytes:
        """Returns the lines for these records. Raises JesenskaError if a deserializer cannot read a record."""
        end = self._line_end
        if self._values_only:
            null = self._null
            return b"".join([(null if record.value is None else record.value) + end for record in records])
        separator = self._separator
        return b"".join(
            [
                separator.join([self._field(name, partition, record) for name in self._fields]) + end
                for record in records
            ]
        )

    def _field(self, name: str, partition: TopicPartition, record: Record) -> bytes:
        match name:
            case "timestamp":
                if record.timestamp_ms < 0:
                    return b"NO_TIMESTAMP"
                return b"%s:%d" % (_TIMESTAMP_TYPES[record.timestamp_type], record.timestamp_ms)
            case "partition":
                return b"Partition:%d" % partition.partition
            case "offset":
                return b"Offset:%d" % record.offset
            case "delivery":
                return b"Delivery:NOT_PRESENT"
            case "epoch":
                return b"Epoch:NOT_PRESENT"
            case "headers":
                if not record.headers:
                    return b"NO_HEADERS"
                return self._headers_separator.join(
                    [key.encode() + b":" + self._text(value, self._headers) for key, value in record.headers]
                )
            case "key":
                return self._text(record.key, self._key)
            case _:
                return self._text(record.value, self._value)

    def _text(self, data: bytes | None, deserializer: Deserializer | None) -> bytes:
        if data is None:
            return self._null
        return data if deserializer is None else deserializer(data)


class LoggingFormatter(RecordFormatter):
    """Formats records like RecordFormatter. It also prints a line with timestamp, key and value of each record on
    stderr. (Kafka's LoggingMessageFormatter writes that line to its log.)"""

    def lines(self, partition: TopicPartition, records: Iterable[Record]) -> bytes:
        kept = list(records)
        text = super().lines(partition, kept)
        for record in kept:
            time = (
                f"{_TIMESTAMP_TYPES[record.timestamp_type].decode()}:{record.timestamp_ms}, "
                if record.timestamp_ms >= 0
                else ""
            )
            print(f"{time}key:{_logged(record.key)}, value:{_logged(record.value)}", file=sys.stderr, flush=True)
        return text


def _logged(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="replace")


class NothingFormatter:
    """Prints nothing, for performance tests (Kafka's NoOpMessageFormatter)."""

    unknown: tuple[str, ...] = ()

    def lines(self, partition: TopicPartition, records: Iterable[Record]) -> bytes:
        return b""


class JsonFormatter:
    """Formats each record as a JSON document on its own line; bytes that are not UTF-8 are written as {"base64":
    "..."}."""

    unknown: tuple[str, ...] = ()

    def lines(self, partition: TopicPartition, records: Iterable[Record]) -> bytes:
        return b"".join([self._line(partition, record) for record in records])

    def _line(self, partition: TopicPartition, record: Record) -> bytes:
        document = {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": _TIMESTAMP_TYPES[record.timestamp_type].decode(),
            "headers": [{"key": name, "value": _json(value)} for name, value in record.headers],
            "key": _json(record.key),
            "value": _json(record.value),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
