"""The state stores of a task, in memory, with Kafka Streams' meaning.

Keys and values are stored as the bytes that their serdes produce. So two keys are equal if their bytes are equal, and
keys are sorted by their bytes. If a function changes an object later, the stored value does not change. A wrong serde
raises its error at the same call as in production. A timestamped store returns ValueAndTimestamp.

A window is deleted when its start is at or below the largest stored start minus the retention. A session is deleted
when its end is at or below the largest stored end minus the retention.

Each change is passed to `log` as a record for the store's changelog topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jesenska.pipeline.streams.engine.ordered import OrderedMap
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.records import KeyValue, SessionWindow, TimeWindow, ValueAndTimestamp, Windowed
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.windowed_keys import session_store_key, window_store_key

ChangeLog = Callable[[bytes, bytes | None, int], None]
"""log(key, value, timestamp)"""

_Kept = tuple[bytes, int]  # a value and its time


class StateStore:
    """The base class of all stores: it has the name, the serdes and the changelog."""

    def __init__(
        self,
        spec: Store,
        key: Serde,
        value: Serde,
        topic: str,
        log: ChangeLog | None,
        now: Callable[[], int],
        refused: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self._key = key
        self._value = value
        self._topic = topic
        self._log = log or (lambda key, value, timestamp: None)
        self._now = now  # the timestamp of the record that is being processed
        self._refused = refused  # called for a put that is too old

    def _key_bytes(self, key: Any) -> bytes:
        data = self._key.serialize(self._topic, key)
        if data is None:
            raise StreamsError(
                f"the store {self.name} was asked about the key None: filter out records with null keys first."
            )
        return data

    def _key_of(self, data: bytes) -> Any:
        return self._key.deserialize(self._topic, data)

    def _to_keep(self, value: Any) -> _Kept | None:
        """Returns the bytes and the timestamp of a value, or None for None. In a timestamped store the value contains
        its timestamp. In other stores the timestamp is that of the record that is being processed."""
        timestamp = self._now()
        if self.spec.timestamped and value is not None:
            if not isinstance(value, tuple) or len(value) != 2:
                raise StreamsError(
                    f"the store {self.name} is timestamped and was given {value!r}: put ValueAndTimestamp(value, "
                    f"timestamp)."
                )
            value, timestamp = value
        data = self._value.serialize(self._topic, value)
        return None if data is None else (data, timestamp)

    def _value_of(self, kept: _Kept | None) -> Any:
        if kept is None:
            return None
        value = self._value.deserialize(self._topic, kept[0])
        return ValueAndTimestamp(value, kept[1]) if self.spec.timestamped else value


class KeyValueStore(StateStore):
    """A store with the latest value of each key."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._map: OrderedMap[_Kept] = OrderedMap()

    def get(self, key: Any) -> Any:
        """Returns the value of the key, or None if the key has no value."""
        return self._value_of(self._map.get(self._key_bytes(key)))

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of the key. None deletes the key."""
        self._put(self._key_bytes(key), self._to_keep(value))

    def _put(self, key: bytes, kept: _Kept | None) -> None:
        if kept is None:
            self._map.remove(key)
            self._log(key, None, self._now())
        else:
            self._map.put(key, kept)
            self._log(key, kept[0], kept[1])

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Sets the value of the key if the key has no value. Returns the value before the call."""
        had = self.get(key)
        if had is None:
            self.put(key, value)
        return had

    def put_all(self, pairs: Any) -> None:
        for key, value in pairs:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Deletes the key. Returns the value before the call."""
        had = self.get(key)
        self.put(key, None)
        return had

    def all(self) -> Iterator[KeyValue]:
        """Returns an iterator over all keys with their values, sorted by the keys' bytes."""
        return self._pairs(None, None)

    def reverse_all(self) -> Iterator[KeyValue]:
        return iter(list(self.all())[::-1])

    def range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        """Returns an iterator over the keys from `first` to `last`, both included, with their values. None means no
        limit on that side."""
        return self._pairs(
            None if first is None else self._key_bytes(first), None if last is None else self._key_bytes(last) + b"\x00"
        )

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        return iter(list(self.range(first, last))[::-1])

    def prefix_scan(self, prefix: Any, serde: Serde) -> Iterator[KeyValue]:
        """Returns an iterator over the keys whose bytes begin with the prefix's bytes, with their values. `serde`
        serializes the prefix."""
        data = serde.serialize(self._topic, prefix) or b""
        return (
            KeyValue(self._key_of(key), self._value_of(kept))
            for key, kept in self._map.items(data)
            if key.startswith(data)
        )

    def _pairs(self, lowest: bytes | None, above: bytes | None) -> Iterator[KeyValue]:
        for key, kept in self._map.items(lowest, above):
            yield KeyValue(self._key_of(key), self._value_of(kept))

    def approximate_num_entries(self) -> int:
        return len(self._map)


class WindowStore(StateStore):
    """A store that has a value for each key and window. A window is identified by its start."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._by_time: OrderedMap[OrderedMap[_Kept]] = OrderedMap()
        self._observed_ms = -1
        self._sequence = 0
        assert self.spec.retention_ms is not None
        self._retention_ms = self.spec.retention_ms
        self._kept_for_emission = False
        self._size_ms = self.spec.window_size_ms or 0

    @property
    def _expired_ms(self) -> int:
        """Returns a time in ms: windows that begin at or before it have expired."""
        return -(2**63) if self._kept_for_emission else self._observed_ms - self._retention_ms

    def keep_until_emitted(self) -> None:
        """Keeps windows after their retention until `emitted` says that they are no longer needed."""
        self._kept_for_emission = True

    def emitted(self, up_to_ms: int) -> None:
        """Allows windows that begin at or before this time to be deleted, after their retention."""
        self._remove_below(min(up_to_ms, self._observed_ms - self._retention_ms) + 1)

    def put(self, key: Any, value: Any, window_start_ms: int) -> None:
        """Sets the value of a key in the window that begins at `window_start_ms`. The value None deletes the entry. An
        expired window is not stored, but its record is still written to the changelog, as in Kafka Streams."""
        data, kept = self._key_bytes(key), self._to_keep(value)
        self._observed_ms = max(self._observed_ms, window_start_ms)
        is_refused = window_start_ms <= self._expired_ms
        if is_refused:
            self._refused(f"the window at {window_start_ms} is older than the store {self.name} keeps")
        if self.spec.retain_duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        sequence = self._sequence if self.spec.retain_duplicates else 0
        # In a store with duplicates, None deletes no value.
        if not is_refused and (kept is not None or not self.spec.retain_duplicates):
            self._remove_below(self._expired_ms + 1)
            self._keep(window_start_ms, data, sequence, kept)
        logged = window_store_key(data, window_start_ms, sequence)
        if kept is None:
            self._log(logged, None, self._now())
        else:
            self._log(logged, *kept)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Returns the value in the window that begins at `time_from`, or None. With `time_to`, returns an iterator
        over pairs of start and value of the windows that begin from `time_from` to `time_to`."""
        data = self._key_bytes(key)
        if time_to is not None:
            return ((start, self._value_of(kept)) for start, _, kept in self._windows(time_from, time_to, data, data))
        return next((self._value_of(kept) for _, _, kept in self._windows(time_from, time_from, data, data)), None)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> Iterator[tuple[int, Any]]:
        return iter(list(self.fetch(key, time_from, time_to))[::-1])

    def fetch_range(self, first: Any, last: Any, time_from: int, time_to: int) -> Iterator[KeyValue]:
        """Returns an iterator over the windowed keys from `first` to `last` (None: no limit), with their values."""
        low = None if first is None else self._key_bytes(first)
        high = None if last is None else self._key_bytes(last)
        return self._pairs(self._windows(time_from, time_to, low, high))

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[KeyValue]:
        """Returns an iterator over all windowed keys of windows that begin from `time_from` to `time_to`, with their
        values."""
        return self._pairs(self._windows(time_from, time_to, None, None))

    def all(self) -> Iterator[KeyValue]:
        """Returns an iterator over all windowed keys with their values, sorted by the start of the window, then by the
        key's bytes."""
        return self.fetch_all(0, 2**63 - 1)

    # The representation in memory

    def _keep(self, start: int, data: bytes, sequence: int, kept: _Kept | None) -> None:
        window = self._by_time.get(start)
        if kept is None:
            if window is not None:
                window.remove((data, 0))
                if not len(window):
                    self._by_time.remove(start)
        else:
            if window is None:
                window = OrderedMap()
                self._by_time.put(start, window)
            window.put((data, sequence), kept)

    def _remove_below(self, start: int) -> None:
        self._by_time.remove_below(start)

    def _windows(
        self, time_from: int, time_to: int, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[int, bytes, _Kept]]:
        for start, window in self._by_time.items(max(time_from, self._expired_ms + 1), time_to + 1):
            for (data, _), kept in window.items(
                None if low is None else (low, -1), None if high is None else (high, 1 << 31)
            ):
                yield start, data, kept

    def _pairs(self, windows: Iterator[tuple[int, bytes, _Kept]]) -> Iterator[KeyValue]:
        for start, data, kept in windows:
            window = TimeWindow(start, min(start + self._size_ms, 2**63 - 1))
            yield KeyValue(Windowed(self._key_of(data), window), self._value_of(kept))


class SessionStore(StateStore):
    """A store that has a value for each key and session."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._by_end: OrderedMap[_Kept] = OrderedMap()  # (end, key, start)
        self._observed_ms = -1
        assert self.spec.retention_ms is not None
        self._retention_ms = self.spec.retention_ms
        self._kept_for_emission = False

    @property
    def _expired_ms(self) -> int:
        """Returns a time in ms: sessions that end at or before it have expired."""
        return -(2**63) if self._kept_for_emission else self._observed_ms - self._retention_ms

    def keep_until_emitted(self) -> None:
        """Keeps sessions after their retention until `emitted` says that they are no longer needed."""
        self._kept_for_emission = True

    def emitted(self, up_to_ms: int) -> None:
        """Allows sessions that end at or before this time to be deleted, after their retention."""
        self._by_end.remove_below((min(up_to_ms, self._observed_ms - self._retention_ms) + 1, b"", 0))

    def put(self, session: Windowed, value: Any) -> None:
        """Sets the value of a session. None deletes the session. An expired session is not stored, but its record is
        still written to the changelog, as in Kafka Streams."""
        data, kept = self._key_bytes(session.key), self._to_keep(value)
        window = SessionWindow(session.window.start, session.window.end)
        self._observed_ms = max(self._observed_ms, window.end)
        where = (window.end, data, window.start)
        if window.end <= self._expired_ms:
            self._refused(f"the session that ends at {window.end} is older than the store {self.name} keeps")
        else:
            self._by_end.remove_below((self._expired_ms + 1, b"", 0))
            if kept is None:
                self._by_end.remove(where)
            else:
                self._by_end.put(where, kept)
        logged = session_store_key(data, window)
        if kept is None:
            self._log(logged, None, self._now())
        else:
            self._log(logged, *kept)

    def remove(self, session: Windowed) -> None:
        self.put(session, None)

    def find_sessions(self, key: Any, earliest_end_ms: int, latest_start_ms: int) -> Iterator[KeyValue]:
        """Yields the key's sessions that end at or after `earliest_end_ms` and start at or before `latest_start_ms`.
        Sessions whose retention has passed are left out, even if they are still stored until they are emitted: such a
        session cannot grow."""
        data = self._key_bytes(key)
        for found, window, kept in self._sessions(max(earliest_end_ms, self._observed_ms - self._retention_ms + 1)):
            if found == data and window.start <= latest_start_ms:
                yield KeyValue(Windowed(self._key_of(found), window), self._value_of(kept))

    def sessions_ending(self, earliest_end_ms: int, latest_end_ms: int) -> Iterator[KeyValue]:
        """Yields the sessions of all keys that end from `earliest_end_ms` to `latest_end_ms`."""
        for found, window, kept in self._sessions(earliest_end_ms):
            if window.end > latest_end_ms:
                break
            yield KeyValue(Windowed(self._key_of(found), window), self._value_of(kept))

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any:
        """Returns the value of the session with exactly this start and end, or None."""
        if end_ms <= self._expired_ms:
            return None
        return self._value_of(self._by_end.get((end_ms, self._key_bytes(key), start_ms)))

    def fetch(self, key: Any, last: Any = None) -> Iterator[KeyValue]:
        """Yields the sessions of a key. With `last`, yields the sessions of all keys from `key` to `last`."""
        low = self._key_bytes(key)
        high = low if last is None else self._key_bytes(last)
        for found, window, kept in self._sessions(0):
            if low <= found <= high:
                yield KeyValue(Windowed(self._key_of(found), window), self._value_of(kept))

    def all(self) -> Iterator[KeyValue]:
        """Yields all sessions, sorted by their end, then by the key's bytes, then by their start."""
        for found, window, kept in self._sessions(0):
            yield KeyValue(Windowed(self._key_of(found), window), self._value_of(kept))

    def _sessions(self, earliest_end_ms: int) -> Iterator[tuple[bytes, SessionWindow, _Kept]]:
        lowest = max(earliest_end_ms, self._expired_ms + 1)
        for (end, data, start), kept in self._by_end.items((lowest, b"", 0)):
            yield data, SessionWindow(start, end), kept
