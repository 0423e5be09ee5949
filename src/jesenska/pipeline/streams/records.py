"""The types of data in a topology: records, changes of tables, windowed keys, and the position of a record in its
topic.

Record     a key and a value with a timestamp in milliseconds since 1970 and headers
Change     the value of a record that leaves a table: the new value and, if a later node needs it, the old value.
           None means no value: a new value of None deletes the key
Windowed   the key of a windowed table: the key itself and the window
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A key and a value with a timestamp and headers. Records do not change: `with_value` and the other methods return
    new records."""

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
    """A key and a value. Functions of the user that return pairs may return any tuple of two."""

    key: Any
    value: Any

    @classmethod
    def pair(cls, key: Any, value: Any) -> KeyValue:
        return cls(key, value)


class ValueAndTimestamp(NamedTuple):
    """The entry of a key in a table's store: the value and its timestamp in milliseconds since 1970."""

    value: Any
    timestamp: int


class Change(NamedTuple):
    """A change of one key of a table: the new value and the old value. `old` is None if the table does not send old
    values."""

    new: Any
    old: Any


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A window of time from `start` to `end`, both in milliseconds since 1970."""

    start: int
    end: int


class TimeWindow(Window):
    """A window of fixed length. `start` is part of the window; `end` is part of it only for sliding windows."""

    __slots__ = ()


class SessionWindow(Window):
    """A session window. `start` and `end` are the timestamps of its first and last record; both are part of the
    session."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Windowed:
    """The key of a windowed table: the record's key and the window."""

    key: Any
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class RecordMetadata(NamedTuple):
    """The topic, partition and offset from which the current record was read."""

    topic: str
    partition: int
    offset: int
