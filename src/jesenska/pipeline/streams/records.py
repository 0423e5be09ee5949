"""The data of a topology: records, and for tables changes; windowed keys; the place where a record was read.

Record     key, value, timestamp in milliseconds since 1970, headers; processors get and forward it
Change     the value of a record that leaves a table: the new value and, if a later node needs it, the old one.
           None means no value: a new value of None deletes the key
Windowed   the key of a windowed table: the key itself and the window
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A key and a value with their time. Records are values: `with_value` and its kin give new ones."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, headers)


class KeyValue(NamedTuple):
    """A key and a value. Functions that give pairs may give any tuple of two."""

    key: Any
    value: Any

    @classmethod
    def pair(cls, key: Any, value: Any) -> KeyValue:
        return cls(key, value)


class ValueAndTimestamp(NamedTuple):
    """A key's entry in a table's store: the value, and the value's time."""

    value: Any
    timestamp: int


class Change(NamedTuple):
    """A change of a key of a table. `old` is None where the table does not send old values."""

    new: Any
    old: Any


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A window from `start` to `end`, both in milliseconds since 1970."""

    start: int
    end: int


class TimeWindow(Window):
    """A window of fixed length: `start` is in it; `end` is not, but for sliding windows, where it is."""

    __slots__ = ()


class SessionWindow(Window):
    """A session: the times of its first and of its last record, both in it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Windowed:
    """The key of a windowed table."""

    key: Any
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class RecordMetadata(NamedTuple):
    """The place where the current record was read."""

    topic: str
    partition: int
    offset: int
