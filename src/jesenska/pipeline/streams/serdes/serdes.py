"""The serdes of the API. They convert keys and values to bytes in topics and stores, and back:

    Serdes.string()      UTF-8
    Serdes.bytes()       bytes, unchanged
    Serdes.int()         4 bytes, big-endian, signed         (Java's IntegerSerializer)
    Serdes.long()        8 bytes, big-endian, signed         (Java's LongSerializer)
    Serdes.double()      8 bytes, IEEE 754, big-endian       (Java's DoubleSerializer)
    Serdes.json()        JSON in UTF-8: null, booleans, numbers, strings, lists, dicts
    Serdes.dataclass(C)  objects of a dataclass as JSON, with checked fields      (dataclass_json.py)
    Serdes.avro(...)     a schema registry's frame around Avro      (avro.py; needs fastavro)
    Serdes.protobuf(...) a schema registry's frame around Protobuf  (protobuf.py; needs protobuf)
    Serdes.time_windowed(inner, size) and Serdes.session_windowed(inner)   keys of windowed tables (windowed_keys.py)

Every serde writes None as a null, not as bytes, and reads a null as None. Data that does not fit raises
SerializationError: bytes of the wrong length, text that is not UTF-8, or a value of another type. An int is accepted
as a double; a bool is accepted only as JSON. A user's own serde is a subclass of `Serde`, or made by
`Serde.of(serialize, deserialize)`."""

from __future__ import annotations

import json
import struct
from typing import Any, ClassVar

from jesenska.pipeline.streams.durations import Duration, milliseconds
from jesenska.pipeline.streams.errors import SerializationError, SettingError
from jesenska.pipeline.streams.kafka_names import SaysOurNames
from jesenska.pipeline.streams.serdes.avro import AvroSerde
from jesenska.pipeline.streams.serdes.dataclass_json import DataclassSerde
from jesenska.pipeline.streams.serdes.protobuf import ProtobufSerde
from jesenska.pipeline.streams.serdes.serde import Serde, wrong_type
from jesenska.pipeline.streams.serdes.windowed_keys import SessionWindowedSerde, TimeWindowedSerde


class _StringSerde(Serde):
    name = "string"

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise wrong_type(value, "str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(
                "it holds half a surrogate pair, which UTF-8 cannot say; mend the text."
            ) from error

    def from_bytes(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SerializationError(
                f"byte {error.start} is not UTF-8; use the serde with which it was written."
            ) from error


class _BytesSerde(Serde):
    name = "bytes"

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong_type(value, "bytes")
        return bytes(value)

    def from_bytes(self, data: bytes) -> bytes:
        return data


class _IntegerSerde(Serde):
    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self._size_bytes = size_bytes

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(value, "int")
        try:
            return value.to_bytes(self._size_bytes, "big", signed=True)
        except OverflowError as error:
            raise SerializationError(f"it does not fit into {self._size_bytes} bytes; use a larger type.") from error

    def from_bytes(self, data: bytes) -> int:
        if len(data) != self._size_bytes:
            raise SerializationError(
                f"it has {len(data)} bytes and not {self._size_bytes}; use the serde with which it was written."
            )
        return int.from_bytes(data, "big", signed=True)


class _DoubleSerde(Serde):
    name = "double"

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong_type(value, "float")
        try:
            return struct.pack(">d", value)
        except (OverflowError, struct.error) as error:
            raise SerializationError("it is larger than any double; use another type.") from error

    def from_bytes(self, data: bytes) -> float:
        if len(data) != 8:
            raise SerializationError(f"it has {len(data)} bytes and not 8; use the serde with which it was written.")
        number: float = struct.unpack(">d", data)[0]
        return number


class _JsonSerde(Serde):
    name = "json"

    def to_bytes(self, value: Any) -> bytes:
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"{error}; JSON has null, booleans, finite numbers, strings, lists and dicts."
            ) from error

    def from_bytes(self, data: bytes) -> Any:
        try:
            return json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"{error}; use the serde with which it was written.") from error


_STRING, _BYTES, _DOUBLE, _JSON = _StringSerde(), _BytesSerde(), _DoubleSerde(), _JsonSerde()
_INT, _LONG = _IntegerSerde("int", 4), _IntegerSerde("long", 8)


class Serdes(metaclass=SaysOurNames):
    """The serdes that are part of the API."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        "Integer": "Serdes.int()",
        "ByteArray": "Serdes.bytes()",
        "ByteBuffer": "Serdes.bytes()",
        "serdeFrom": "Serde.of(…)",
    }

    @staticmethod
    def string() -> Serde:
        return _STRING

    @staticmethod
    def bytes() -> Serde:
        return _BYTES

    @staticmethod
    def int() -> Serde:
        return _INT

    @staticmethod
    def long() -> Serde:
        return _LONG

    @staticmethod
    def double() -> Serde:
        return _DOUBLE

    @staticmethod
    def json() -> Serde:
        return _JSON

    @staticmethod
    def dataclass(kind: Any) -> Serde:
        """Returns the serde for objects of the dataclass `kind` as JSON. The module dataclass_json.py lists the
        possible types of fields."""
        return DataclassSerde(kind)

    @staticmethod
    def avro(schema: Any, *, schema_id: Any = None, schemas: Any = None) -> Serde:
        """Returns the serde for Avro values in a schema registry's frame. The module avro.py explains the
        arguments."""
        return AvroSerde(schema, schema_id=schema_id, schemas=schemas)

    @staticmethod
    def protobuf(message: Any, *, schema_id: Any = None) -> Serde:
        """Returns the serde for Protobuf messages in a schema registry's frame. The module protobuf.py explains the
        arguments."""
        return ProtobufSerde(message, schema_id=schema_id)

    @staticmethod
    def time_windowed(inner: Serde, size: Duration) -> Serde:
        """Returns the serde for keys of time windows. The bytes contain the inner key and the window's start; `size`
        is needed to compute the end."""
        return TimeWindowedSerde(inner, milliseconds("the size of the windows", size))

    @staticmethod
    def session_windowed(inner: Serde) -> Serde:
        """Returns the serde for keys of session windows. The bytes contain the inner key, the session's end and its
        start."""
        return SessionWindowedSerde(inner)


_BY_NAME = {
    "string": _STRING,
    "bytes": _BYTES,
    "bytearray": _BYTES,
    "int": _INT,
    "integer": _INT,
    "long": _LONG,
    "double": _DOUBLE,
    "json": _JSON,
}
_JAVAS = "org.apache.kafka.common.serialization.Serdes$"


def serde_named(setting: str, given: Any) -> Serde:
    """Returns the serde that a setting names: a Serde object, a short name (string, long, json), or the name of a
    Kafka serde class. Raises SettingError for other values."""
    if isinstance(given, Serde):
        return given
    text = str(given)
    short = text.removeprefix(_JAVAS).removesuffix("Serde") if text.startswith(_JAVAS) else text
    found = _BY_NAME.get(short.lower())
    if found is None:
        raise SettingError(
            f"{setting} is {text!r}, which names no serde: give one of {', '.join(sorted(_BY_NAME))}, or an object "
            f"such as Serdes.json()."
        )
    return found
