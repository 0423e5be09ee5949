"""ZooKeeper's frames in a stream of bytes. A frame is a length of four bytes (INT, big-endian), then that many bytes.

Only bytes that have arrived are stored: a large length in an incomplete frame allocates no memory."""

from __future__ import annotations

import struct

from jesenska.metadata.zookeeper.messages import MessageError

_LENGTH = struct.Struct(">i")
LENGTH_BYTES = _LENGTH.size


class Frames:
    """Splits a stream of bytes into frames: `feed` adds bytes as they arrive, `next` returns the next complete
    frame."""

    __slots__ = ("_data", "_position", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._data = bytearray()
        self._position = 0
        #: The longest frame that is accepted, in bytes. It may be changed.
        self.max_bytes = max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        if self._position == len(self._data):
            self._data, self._position = bytearray(data), 0
            return
        if self._position:
            del self._data[: self._position]
            self._position = 0
        self._data += data

    def first(self) -> bytes | None:
        """Returns the first four bytes that were not consumed yet, or None if fewer have arrived."""
        found = bytes(self._data[self._position : self._position + LENGTH_BYTES])
        return found if len(found) == LENGTH_BYTES else None

    def next(self) -> bytes | None:
        """Returns the content of the next frame, or None while the frame is incomplete. Raises MessageError if the
        frame's length is negative or above the limit."""
        begin = self._position + LENGTH_BYTES
        if len(self._data) < begin:
            return None
        (size,) = _LENGTH.unpack_from(self._data, self._position)
        if not 0 <= size <= self.max_bytes:
            raise MessageError(f"a frame of {size} bytes is not allowed (limit {self.max_bytes})")
        if len(self._data) < begin + size:
            return None
        self._position = begin + size
        return bytes(self._data[begin : begin + size])


def framed(payload: bytes | bytearray) -> bytes:
    """Returns a frame: the payload with its length before it."""
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload
