"""Zigzag varints of 32 bits, in the format of Kafka's ByteUtils: seven bits per byte, the lowest bits first."""

from __future__ import annotations

from jesenska.pipeline.streams.errors import SerializationError

_BYTES_MAX = 5


def varint(number: int) -> bytes:
    """Returns the number as the bytes of a varint."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def read_varint(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Reads a varint at the position `at`. Returns the number, and the position after it. Raises SerializationError if
    the varint does not end; `what` begins the message."""
    number = 0
    for place in range(_BYTES_MAX):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
    raise SerializationError(f"{what} not end; use the serde with which it was written.")
