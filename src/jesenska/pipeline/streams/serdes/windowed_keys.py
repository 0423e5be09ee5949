"""The keys of windowed tables as bytes, in Kafka Streams' formats.

    in topics    time window    key | start, 8 bytes            the size is an argument of the serde
                 session        key | end, 8 bytes | start, 8 bytes
    in stores    window store   key | start, 8 bytes | sequence number, 4 bytes
                 session store  key | end, 8 bytes | start, 8 bytes

Numbers are big-endian and signed.
"""

from __future__ import annotations

import struct
from typing import Any

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.records import SessionWindow, TimeWindow, Windowed
from jesenska.pipeline.streams.serdes.serde import Serde

_LONG_MAX = 2**63 - 1


class _WindowedSerde(Serde):
    def __init__(self, inner: Serde) -> None:
        self.inner = inner

    def _key(self, value: Any) -> bytes:
        if not isinstance(value, Windowed):
            raise SerializationError(
                f"it is {type(value).__name__} and not the key of a windowed table; use the serde of its own type."
            )
        if value.key is None:
            raise SerializationError("the key in the window is None; a key of a windowed table is never None.")
        return self.inner.to_bytes(value.key)

    def _split(self, data: bytes, tail_bytes: int) -> tuple[Any, bytes]:
        if len(data) < tail_bytes:
            raise SerializationError(
                f"it has {len(data)} bytes, fewer than the window takes; use the serde with which it was written."
            )
        return self.inner.from_bytes(data[:-tail_bytes]), data[-tail_bytes:]


class TimeWindowedSerde(_WindowedSerde):
    """The serde for keys of time windows and sliding windows of `size_ms`."""

    name = "time_windowed"

    def __init__(self, inner: Serde, size_ms: int) -> None:
        super().__init__(inner)
        self.size_ms = size_ms

    def to_bytes(self, value: Any) -> bytes:
        return self._key(value) + struct.pack(">q", value.window.start)

    def from_bytes(self, data: bytes) -> Windowed:
        key, tail = self._split(data, 8)
        start: int = struct.unpack(">q", tail)[0]
        return Windowed(key, TimeWindow(start, min(start + self.size_ms, _LONG_MAX)))

    def __repr__(self) -> str:
        return f"Serdes.time_windowed({self.inner!r}, {self.size_ms})"


class SessionWindowedSerde(_WindowedSerde):
    """The serde for keys of session windows."""

    name = "session_windowed"

    def to_bytes(self, value: Any) -> bytes:
        return self._key(value) + struct.pack(">qq", value.window.end, value.window.start)

    def from_bytes(self, data: bytes) -> Windowed:
        key, tail = self._split(data, 16)
        end, start = struct.unpack(">qq", tail)
        return Windowed(key, SessionWindow(start, end))

    def __repr__(self) -> str:
        return f"Serdes.session_windowed({self.inner!r})"


def window_store_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    """Returns the key of a window in the store's changelog topic: key, start and sequence number."""
    return key + struct.pack(">qi", start, sequence)


def session_store_key(key: bytes, window: SessionWindow) -> bytes:
    """Returns the key of a session in the store's changelog topic: key, end and start."""
    return key + struct.pack(">qq", window.end, window.start)
