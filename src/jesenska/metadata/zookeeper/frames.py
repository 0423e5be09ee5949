"""ZooKeeper's frames in a stream of bytes: four bytes of length (INT, big-endian), then that many bytes.

Incomplete frames are kept as they arrived: a length alone allocates no memory."""

from __future__ import annotations

import struct

from jesenska.metadata.zookeeper.messages import MessageError

_LENGTH = struct.Struct(">i")
LENGTH_BYTES = _LENGTH.size


class Frames:
    """Takes bytes as they arrive (`feed`), returns frames (`next`)."""

    __slots__ = ("_data", "_max_bytes", "_position")

    def __init__(self, max_bytes: int) -> None:
        self._data = bytearray()
        self._position = 0
        self._max_bytes = max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        if self._position == len(self._data):
            self._data, self._position = bytearray(data), 0
            return
        if self._position:
            del self._data[: self._position]
            self._position = 0
        self._data += data

    def first(self) -> bytes | None:
        """Returns the first four bytes that have not been taken, once they are there."""
        found = bytes(self._data[self._position : self._position + LENGTH_BYTES])
        return found if len(found) == LENGTH_BYTES else None

    def next(self) -> bytes | None:
        """Returns the next frame's bytes, None while it is not whole; MessageError for a length that is not
        allowed."""
        begin = self._position + LENGTH_BYTES
        if len(self._data) < begin:
            return None
        (size,) = _LENGTH.unpack_from(self._data, self._position)
        if not 0 <= size <= self._max_bytes:
            raise MessageError(f"a frame of {size} bytes is not allowed (limit {self._max_bytes})")
        if len(self._data) < begin + size:
            return None
        self._position = begin + size
        return bytes(self._data[begin : begin + size])


def framed(payload: bytes | bytearray) -> bytes:
    """Returns the payload with its length in front."""
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
