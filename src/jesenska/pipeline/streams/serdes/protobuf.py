"""Protobuf messages in a schema registry's frame, for Serdes.protobuf.

    message    the class of the message, as protoc generates it
    schema_id  the id of the file's schema in the registry: a number, or a function of topic and message class that
               returns it. It is needed for writing; without it messages can only be read

A message that is read must be of the class `message`: the message indexes in the frame identify the message type
within its file. The schema's id is ignored in reading, since Protobuf can read messages of older and newer versions of
a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.serdes.registry_frame import (
    framed,
    read_message_indexes,
    unframed,
    write_message_indexes,
)
from jesenska.pipeline.streams.serdes.serde import Serde

SchemaId = int | Callable[[str, Any], int] | None


class ProtobufSerde(Serde):
    name = "protobuf"

    def __init__(self, message: Any, *, schema_id: SchemaId = None) -> None:
        try:
            from google.protobuf.message import DecodeError, Message
        except ImportError as error:
            raise refused(
                'Serdes.protobuf needs the library protobuf, which is not installed: pip install "jesenska[streams]".'
            ) from error
        if not isinstance(message, type) or not issubclass(message, Message):
            raise refused(f"Serdes.protobuf takes the class of a message that protoc has made, and not {message!r}.")
        self.message = cast("Any", message)
        self._id = schema_id
        self._topic = ""
        self._indexes = _indexes_of(self.message.DESCRIPTOR)
        self._decode_error: type[Exception] = DecodeError

    def serialize(self, topic: str, value: Any) -> bytes | None:
        self._topic = topic
        return super().serialize(topic, value)

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, self.message):
            raise SerializationError(
                f"it is {type(value).__name__} and not {self.message.__name__}; make a message of that class."
            )
        if self._id is None:
            raise SerializationError("the id of its schema is not known; give Serdes.protobuf a schema_id.")
        schema_id = self._id if isinstance(self._id, int) else self._id(self._topic, self.message)
        return framed(schema_id, write_message_indexes(self._indexes) + value.SerializeToString())

    def from_bytes(self, data: bytes) -> Any:
        _, rest = unframed(data)
        indexes, payload = read_message_indexes(rest)
        if indexes != self._indexes:
            raise SerializationError(
                f"it is the message {list(indexes)} of its file and not {list(self._indexes)}; name the class of "
                f"that message."
            )
        message = self.message()
        try:
            message.ParseFromString(payload)
        except self._decode_error as error:
            raise SerializationError(
                f"it is not a {self.message.__name__} ({error}); name the class of the message that wrote it."
            ) from error
        return message


def _indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Returns the message indexes of a message type: its position among the types of each nesting level, from the
    outermost level inwards."""
    indexes: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = list(descriptor.file.message_types_by_name.values()) if outer is None else list(outer.nested_types)
        indexes.insert(0, [sibling.full_name for sibling in siblings].index(descriptor.full_name))
        descriptor = outer
    return tuple(indexes)
