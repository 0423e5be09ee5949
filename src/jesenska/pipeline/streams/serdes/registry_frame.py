"""The frame that serializers of a schema registry put around a value:

    magic, 1 byte, 0 | id of the schema, 4 bytes, big-endian | … the value
    with Protobuf, the message indexes are between the id and the value: the position of the message type in the
    schema's file

Message indexes are a count and as many positions, as zigzag varints. The first position is that of a message type in
the file, the second that of a nested type within it, and so on. The first message type of a file, [0], is written as
the single byte 0."""

from __future__ import annotations

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.serdes.varints import read_varint, varint

MAGIC = 0
_HEAD_BYTES = 5
#: The largest accepted count of message indexes. Messages are not nested deeper in practice, so a larger count means
#: that the bytes are no frame.
MESSAGE_INDEXES_MAX = 64


def framed(schema_id: int, value: bytes) -> bytes:
    """Returns the value with the frame before it."""
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big") + value


def unframed(data: bytes) -> tuple[int, bytes]:
    """Returns the schema's id from the frame, and the bytes after the frame."""
    if len(data) < _HEAD_BYTES or data[0] != MAGIC:
        raise SerializationError(
            "it does not begin with the frame of a schema registry (a byte 0 and an id of 4 bytes); name the serde "
            "that wrote it."
        )
    return int.from_bytes(data[1:_HEAD_BYTES], "big"), data[_HEAD_BYTES:]


def write_message_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\x00"
    return b"".join(varint(number) for number in (len(indexes), *indexes))


def read_message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Returns the message indexes, and the bytes after them."""
    count, at = read_varint(data, 0, "its message indexes do")
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= MESSAGE_INDEXES_MAX:
        raise SerializationError(f"its message indexes are {count}; use the serde with which it was written.")
    indexes = []
    for _ in range(count):
        index, at = read_varint(data, at, "its message indexes do")
        indexes.append(index)
    return tuple(indexes), data[at:]
