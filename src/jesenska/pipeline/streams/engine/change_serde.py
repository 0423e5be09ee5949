"""The bytes of a table's change in an internal topic, as Kafka Streams writes them since 3.5. A change has a new
value, an old value, or both:

new value | 0x01           only the new value
old value | 0x00           only the old value
length of the new value, a zigzag varint | new value | old value | 0x02
"""

from __future__ import annotations

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.records import Change
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.varints import read_varint, varint


class ChangeSerde(Serde):
    name = "change"

    def __init__(self, inner: Serde) -> None:
        self._inner = inner

    def to_bytes(self, value: Change) -> bytes:
        new = None if value.new is None else self._inner.to_bytes(value.new)
        old = None if value.old is None else self._inner.to_bytes(value.old)
        if new is not None and old is not None:
            return varint(len(new)) + new + old + b"\x02"
        if new is not None:
            return new + b"\x01"
        if old is not None:
            return old + b"\x00"
        raise SerializationError("both values of the change are None; a change has at least one.")

    def from_bytes(self, data: bytes) -> Change:
        kind, rest = data[-1], data[:-1]
        if kind == 2:
            size, at = read_varint(rest, 0, "the length of its new value does")
            return Change(self._inner.from_bytes(rest[at : at + size]), self._inner.from_bytes(rest[at + size :]))
        one = self._inner.from_bytes(rest)
        return Change(one, None) if kind == 1 else Change(None, one)
