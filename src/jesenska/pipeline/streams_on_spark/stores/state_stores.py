"""The engine's stores with their data in a state file (state_file.py) instead of memory. Their behaviour is defined in
`pipeline/streams/engine`. This module defines the contents of the columns a, n and m, and the order in which rows are
read:

    store          a                              n            m          order
    key-value      key                            0            0          a
    window         key                            start        sequence   n, a, m
    session        key                            end          start      n, a, m
    suppress       key                            time         0          n, a, m
    outer join     key                            timestamp    is left    n, m, a
    subscription   foreign key and primary key    0            0          a
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Protocol

from jesenska.pipeline.streams.engine.joins.foreign_keys import Subscription, SubscriptionSerde, SubscriptionStore
from jesenska.pipeline.streams.engine.joins.stream_joins import OuterJoinStore
from jesenska.pipeline.streams.engine.stores import KeyValueStore, SessionStore, WindowStore
from jesenska.pipeline.streams.engine.suppression import SuppressBuffer, _Held
from jesenska.pipeline.streams.plan import ForeignKeyJoin, Plan, Store, StreamStreamJoin
from jesenska.pipeline.streams.records import KeyValue, RecordMetadata, SessionWindow, Windowed
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams_on_spark.stores.state_file import HIGHEST, LOWEST, Row, StateTable
from jesenska.pipeline.streams_on_spark.stores.state_segments import StateSegments

_Kept = tuple[bytes, int]


class Tables(Protocol):
    """The interface of a state file, which may be open for writing or only for reading."""

    def table(self, name: str, order: str = "") -> StateTable: ...

    def segments(self, name: str) -> StateSegments | None: ...


class Owner(Protocol):
    """The task to which a store belongs, or a reader of the store."""

    timestamp: int

    def key_serde(self, serde: Serde | None) -> Serde: ...

    def value_serde(self, serde: Serde | None) -> Serde: ...

    def drop(self, reason: str) -> None: ...


def make_store(spec: Store, plan: Plan, file: Tables, owner: Owner, topic: str) -> Any:
    """Returns the store that `spec` describes, with its rows in the file."""
    key, value = owner.key_serde(spec.key), owner.value_serde(spec.value)
    arguments: tuple[Any, ...] = (spec, key, value, topic, None, lambda: owner.timestamp, owner.drop)
    match spec.kind:
        case "key-value":
            return KeyValueStoreInFile(file.table(spec.name), *arguments)
        case "window":
            segments = file.segments(spec.name) if spec.retain_duplicates else None
            return WindowStoreInFile(file.table(spec.name, "n, a, m"), segments, *arguments)
        case "session":
            return SessionStoreInFile(file.table(spec.name, "n, a, m"), *arguments)
        case "buffer":
            return SuppressBufferInFile(file.table(spec.name, "n, a, m"), key, value, topic)
        case "outer-join":
            join = next(node for node in plan if isinstance(node, StreamStreamJoin) and node.outer_store is spec)
            sides = {True: owner.value_serde(join.this_store.value), False: owner.value_serde(join.other_store.value)}
            return OuterJoinStoreInFile(file.table(spec.name, "n, m, a"), key, sides)
        case "subscription":
            foreign = next(
                node for node in plan if isinstance(node, ForeignKeyJoin) and node.subscription_store is spec
            )
            return SubscriptionStoreInFile(
                file.table(spec.name), owner.key_serde(foreign.foreign_key_serde), owner.key_serde(foreign.left_key)
            )
    raise AssertionError(f"no store of the kind {spec.kind}")


def remembered(store: Any) -> list[int]:
    """Returns the numbers that a store needs in addition to its rows, such as the largest window start that it has
    seen."""
    match store:
        case WindowStoreInFile():
            return [store._observed_ms, store._sequence]
        case SessionStoreInFile():
            return [store._observed_ms]
        case SuppressBufferInFile():
            return [store.size_bytes, len(store)]
    return []


def remember(store: Any, values: list[int]) -> None:
    """Restores the numbers that `remembered` returned."""
    match store:
        case WindowStoreInFile():
            store._observed_ms, store._sequence = values
        case SessionStoreInFile():
            store._observed_ms = values[0]
        case SuppressBufferInFile():
            store.size_bytes, store.index.count = values


class _ByKey:
    """The rows of a key-value store, with the interface of the in-memory store's map from keys to values and
    timestamps."""

    def __init__(self, table: StateTable) -> None:
        self._table = table

    def get(self, key: bytes) -> _Kept | None:
        return self._table.get(key)

    def put(self, key: bytes, kept: _Kept) -> None:
        self._table.put(key, 0, 0, *kept)

    def remove(self, key: bytes) -> None:
        self._table.remove(key)

    def items(self, lowest: bytes | None = None, above: bytes | None = None) -> Iterator[tuple[bytes, _Kept]]:
        for key in self._table.keys(lowest, above):
            kept = self._table.get(key)
            if kept is not None:
                yield key, kept

    def __len__(self) -> int:
        return len(self._table)


class KeyValueStoreInFile(KeyValueStore):
    def __init__(self, table: StateTable, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._map = _ByKey(table)  # type: ignore[assignment]


class WindowStoreInFile(WindowStore):
    """A window store in a state file. `segments` contain rows that the columns path (columns_path.py) has stored many
    at once. They are read together with the rows of the table."""

    def __init__(self, table: StateTable, segments: StateSegments | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._table = table
        self._segments = segments
        self._in_segments: dict[bytes, list[Row]] | None = None  # by key, read when it is first asked for

    def _keep(self, start: int, data: bytes, sequence: int, kept: _Kept | None) -> None:
        if kept is None:
            self._table.remove(data, start, 0)
        else:
            self._table.put(data, start, sequence, *kept)

    def _remove_below(self, start: int) -> None:
        self._table.remove_below(start)
        if self._segments is not None:
            self._segments.remove_below(start)

    def _of_segments(self, time_from: int, time_to: int, low: bytes | None, high: bytes | None) -> list[Row]:
        """Returns the rows in segments that are within the given times and keys."""
        if self._segments is None:
            return []
        if self._in_segments is None:
            self._in_segments = {}
            for table in self._segments.tables(LOWEST, HIGHEST):
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    self._in_segments.setdefault(row[0], []).append(row)
        known = self._in_segments
        if low is not None and low == high:
            keys = [low] if low in known else []
        else:
            keys = [key for key in known if (low is None or low <= key) and (high is None or key <= high)]
        return [row for key in keys for row in known[key] if time_from <= row[1] <= time_to]

    def _windows(
        self, time_from: int, time_to: int, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[int, bytes, _Kept]]:
        first = max(time_from, self._expired_ms + 1)
        if low is not None and low == high:
            rows = self._table.of(low, first, time_to)
        else:
            rows = self._table.ordered(first, time_to, low, high)
        if more := self._of_segments(first, time_to, low, high):
            rows = sorted([*rows, *more], key=itemgetter(1, 0, 2))
        return ((start, data, (value, at)) for data, start, _, value, at in rows)


class _Sessions:
    """The rows of a session store, with the interface of the in-memory store's map. The map's key is (end, key,
    start)."""

    def __init__(self, table: StateTable) -> None:
        self._table = table

    def get(self, where: tuple[int, bytes, int]) -> _Kept | None:
        end, data, start = where
        return self._table.get(data, end, start)

    def put(self, where: tuple[int, bytes, int], kept: _Kept) -> None:
        end, data, start = where
        self._table.put(data, end, start, *kept)

    def remove(self, where: tuple[int, bytes, int]) -> None:
        end, data, start = where
        self._table.remove(data, end, start)

    def remove_below(self, above: tuple[int, bytes, int]) -> None:
        self._table.remove_below(above[0])

    def items(self, lowest: tuple[int, bytes, int]) -> Iterator[tuple[tuple[int, bytes, int], _Kept]]:
        return (((end, data, start), (value, at)) for data, end, start, value, at in self._table.ordered(lowest[0]))


class SessionStoreInFile(SessionStore):
    def __init__(self, table: StateTable, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._table = table
        self._by_end = _Sessions(table)  # type: ignore[assignment]

    def find_sessions(self, key: Any, earliest_end_ms: int, latest_start_ms: int) -> Iterator[KeyValue]:
        for data, end, start, value, at in self._table.of(
            self._key_bytes(key), max(earliest_end_ms, self._expired_ms + 1)
        ):
            if start <= latest_start_ms:
                yield KeyValue(Windowed(self._key_of(data), SessionWindow(start, end)), self._value_of((value, at)))


# --- suppress --------------------------------------------------------------------------------------------------------


def packed_parts(parts: Iterable[bytes | None]) -> bytes:
    """Returns the parts joined to one bytes object. The length of each part is written before the part; the length is
    -1 for None."""
    return b"".join(struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in parts)


def parts_in(data: bytes) -> Iterator[bytes | None]:
    """Yields the parts that `packed_parts` has joined."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0:
            yield None
        else:
            yield data[at : at + size]
            at += size


def _held_bytes(held: _Held) -> bytes:
    metadata = held.metadata
    origin = (
        None if metadata is None else struct.pack(">iq", metadata.partition, metadata.offset) + metadata.topic.encode()
    )
    headers = [part for name, value in held.headers for part in (name.encode(), value)]
    return packed_parts([held.prior, held.old, held.new, origin, *headers])


def _held(data: bytes, at: int) -> _Held:
    prior, old, new, origin, *headers = parts_in(data)
    metadata = None
    if origin is not None:
        partition, offset = struct.unpack_from(">iq", origin)
        metadata = RecordMetadata(origin[12:].decode(), partition, offset)
    pairs = tuple(((name or b"").decode(), value) for name, value in zip(headers[::2], headers[1::2], strict=True))
    return _Held(prior, old, new, at, pairs, metadata)


class _HeldByTime:
    """The rows of a suppress buffer, with the interface of the in-memory buffer's map from (time, key) to the held
    update."""

    def __init__(self, table: StateTable, times: _Times) -> None:
        self._table = table
        self._times = times

    def first(self) -> tuple[int, bytes] | None:
        row = self._table.first()
        return None if row is None else (row[1], row[0])

    def get(self, where: tuple[int, bytes]) -> _Held | None:
        found = self._table.get(where[1], where[0])
        return None if found is None else _held(*found)

    def put(self, where: tuple[int, bytes], held: _Held) -> None:
        if self._table.get(where[1], where[0]) is None:
            self._times.count += 1
        self._table.put(where[1], where[0], 0, _held_bytes(held), held.timestamp)

    def remove(self, where: tuple[int, bytes]) -> _Held | None:
        held = self.get(where)
        self._table.remove(where[1], where[0])
        return held


class _Times:
    """The time of each key in a suppress buffer, with the interface of the in-memory buffer's index. It reads the rows
    of the table."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self.count = 0

    def _time(self, key: bytes) -> int | None:
        rows = self._table.of(key)
        return rows[0][1] if rows else None

    def setdefault(self, key: bytes, time: int) -> int:
        found = self._time(key)
        return time if found is None else found

    def __contains__(self, key: bytes) -> bool:
        return self._time(key) is not None

    def __getitem__(self, key: bytes) -> int:
        found = self._time(key)
        if found is None:
            raise KeyError(key)
        return found

    def __delitem__(self, key: bytes) -> None:
        """Only reduces the count of entries. The key's row was removed from the table before."""
        self.count -= 1

    def __len__(self) -> int:
        return self.count


class SuppressBufferInFile(SuppressBuffer):
    def __init__(self, table: StateTable, key: Serde, value: Serde, topic: str) -> None:
        super().__init__(key, value, topic)
        self.index = _Times(table)
        self._times = self.index  # type: ignore[assignment]
        self._held = _HeldByTime(table, self.index)  # type: ignore[assignment]


# --- joins -----------------------------------------------------------------------------------------------------------


class _Waiting:
    """The records of an outer join that have no partner yet, with the interface of the in-memory map. The map's key is
    (timestamp, is left, key); the entry contains the key and the values."""

    def __init__(self, table: StateTable, key: Serde, values: dict[bool, Serde]) -> None:
        self._table = table
        self._key = key
        self._values = values

    def get(self, where: tuple[int, bool, bytes]) -> tuple[Any, list[Any]] | None:
        at, is_left, data = where
        found = self._table.get(data, at, is_left)
        return None if found is None else self._read(data, is_left, found[0])

    def put(self, where: tuple[int, bool, bytes], waiting: tuple[Any, list[Any]]) -> None:
        at, is_left, data = where
        values = packed_parts(self._values[is_left].serialize("", value) for value in waiting[1])
        self._table.put(data, at, int(is_left), values, at)

    def remove(self, where: tuple[int, bool, bytes]) -> None:
        at, is_left, data = where
        self._table.remove(data, at, int(is_left))

    def items(self) -> Iterator[tuple[tuple[int, bool, bytes], tuple[Any, list[Any]]]]:
        for data, at, is_left, value, _ in self._table.ordered():
            yield (at, bool(is_left), data), self._read(data, bool(is_left), value)

    def _read(self, data: bytes, is_left: bool, value: bytes) -> tuple[Any, list[Any]]:
        return self._key.deserialize("", data), [
            self._values[is_left].deserialize("", part) for part in parts_in(value)
        ]

    def __len__(self) -> int:
        return len(self._table)


class OuterJoinStoreInFile(OuterJoinStore):
    def __init__(self, table: StateTable, key: Serde, values: dict[bool, Serde]) -> None:
        super().__init__(key)
        self._map = _Waiting(table, key, values)  # type: ignore[assignment]


class _Subscriptions:
    """The subscriptions of a foreign-key join, with the interface of the in-memory map. Subscriptions are read by a
    prefix of their key."""

    def __init__(self, table: StateTable, primary_key: Serde) -> None:
        self._table = table
        self._serde = SubscriptionSerde(primary_key)

    def put(self, where: bytes, subscription: Subscription) -> None:
        self._table.put(where, 0, 0, self._serde.to_bytes(subscription), 0)

    def remove(self, where: bytes) -> None:
        self._table.remove(where)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, Subscription]]:
        for where in self._table.keys(prefix, _after(prefix)):
            found = self._table.get(where)
            if found is not None:
                yield where, self._serde.from_bytes(found[0])

    def __len__(self) -> int:
        return len(self._table)


def _after(prefix: bytes) -> bytes | None:
    """Returns the smallest key that is larger than all keys with the prefix. Returns None if there is no such key."""
    short = prefix.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


class SubscriptionStoreInFile(SubscriptionStore):
    def __init__(self, table: StateTable, foreign_key: Serde, primary_key: Serde) -> None:
        super().__init__(foreign_key, primary_key)
        self._map = _Subscriptions(table, primary_key)  # type: ignore[assignment]
