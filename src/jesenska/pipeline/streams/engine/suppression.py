"""The processor for `suppress`. It holds back the updates of a table in a buffer, which contains only the last update
of each key.

The time of an update is its timestamp. For final results it is the end of the update's window. Later updates of a key
replace the update in the buffer, but not its time. Updates are forwarded in the order of their times. An update is
forwarded when stream time (the largest timestamp that this operator has seen) reaches the time of the update plus the
waiting time. It is forwarded earlier if the buffer is full and is allowed to emit early.

A forwarded update has the timestamp, topic, partition and offset of the key's last update. Before an update is
forwarded, a lookup in the table finds the value that the key had before its first update in the buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.engine.operator import Operator, OperatorContext
from jesenska.pipeline.streams.engine.ordered import OrderedMap
from jesenska.pipeline.streams.engine.tables import ValueGetter
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Suppress
from jesenska.pipeline.streams.records import Change, Headers, Record, RecordMetadata, ValueAndTimestamp
from jesenska.pipeline.streams.serdes.serde import Serde


@dataclass(slots=True)
class _Held:
    prior: bytes | None  # the value before the first update that is held
    old: bytes | None
    new: bytes | None
    timestamp: int
    headers: Headers
    metadata: RecordMetadata | None

    @property
    def size_bytes(self) -> int:
        """Returns the size of the update in bytes as Kafka Streams counts it: the values that differ, the topic,
        partition and offset, and the headers."""
        values = len(self.prior or b"") + len(self.new or b"")
        if self.old is not None and self.old != self.prior:
            values += len(self.old)
        origin = 16 + (len(self.metadata.topic) if self.metadata is not None else 0) + 4
        return values + origin + sum(len(name) + len(value or b"") for name, value in self.headers)


class SuppressBuffer:
    """The updates that are held back, sorted by (time, key bytes). `_times` contains the time of the update by key
    bytes."""

    def __init__(self, key: Serde, value: Serde, topic: str) -> None:
        self._key, self._value, self._topic = key, value, topic
        self._held: OrderedMap[_Held] = OrderedMap()
        self._times: dict[bytes, int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._times)

    def first_time(self) -> int | None:
        first = self._held.first()
        return None if first is None else first[0]

    def put(self, time: int, record: Record, metadata: RecordMetadata | None) -> None:
        key = self._key.serialize(self._topic, record.key) or b""
        change: Change = record.value
        old, new = (self._value.serialize(self._topic, value) for value in (change.old, change.new))
        where = (self._times.setdefault(key, time), key)
        before = self._held.get(where)
        held = _Held(old if before is None else before.prior, old, new, record.timestamp, record.headers, metadata)
        self.size_bytes += held.size_bytes - before.size_bytes if before is not None else held.size_bytes + 8 + len(key)
        self._held.put(where, held)

    def peek(self) -> tuple[Record, RecordMetadata | None]:
        """Returns the first update without removing it, and its topic, partition and offset."""
        time, key = self._held.first()
        held = self._held.get((time, key))
        assert held is not None
        new, old = (self._value.deserialize(self._topic, data) for data in (held.new, held.old))
        return Record(
            self._key.deserialize(self._topic, key), Change(new, old), held.timestamp, held.headers
        ), held.metadata

    def remove_first(self) -> None:
        time, key = self._held.first()
        held = self._held.remove((time, key))
        assert held is not None
        del self._times[key]
        self.size_bytes -= held.size_bytes + 8 + len(key)

    def prior(self, key: Any) -> tuple[bool, Any]:
        """Returns True and the value before the key's first update in the buffer. Returns False and None if the buffer
        has no update of the key."""
        data = self._key.serialize(self._topic, key) or b""
        if data not in self._times:
            return False, None
        held = self._held.get((self._times[data], data))
        assert held is not None
        return True, self._value.deserialize(self._topic, held.prior)


class SuppressUpdates(Operator):
    remembers = ("_stream_time_ms",)

    def __init__(self, node: Suppress) -> None:
        assert node.store is not None
        self._name = node.name
        self._store_name = node.store.name
        self._wait_ms = node.wait_ms
        self._final = node.final
        self._limits = node.suppressed.buffer
        self._stream_time_ms = -1

    def init(self, context: Any) -> None:
        super().init(context)
        self._buffer: SuppressBuffer = context.get_state_store(self._store_name)

    def process(self, record: Record) -> None:
        self._stream_time_ms = max(self._stream_time_ms, record.timestamp)
        time = record.key.window.end if self._final else record.timestamp
        self._buffer.put(time, record, self.context.record_metadata)
        expired_ms = self._stream_time_ms - self._wait_ms
        self._let_go_while(lambda: (first := self._buffer.first_time()) is not None and first <= expired_ms)
        if not self._too_large():
            return
        if not self._limits.emit_early_when_full:
            raise StreamsError(
                f"the buffer of {self._name} holds {len(self._buffer)} records and {self._buffer.size_bytes} bytes, "
                f"more than it may: "
                "raise max_records or max_bytes, or let it emit early."
            )
        self._let_go_while(self._too_large)

    def _too_large(self) -> bool:
        most_records, most_bytes = self._limits.max_records, self._limits.max_bytes
        return (most_records is not None and len(self._buffer) > most_records) or (
            most_bytes is not None and self._buffer.size_bytes > most_bytes
        )

    def _let_go_while(self, condition: Callable[[], bool]) -> None:
        while len(self._buffer) and condition():
            record, metadata = self._buffer.peek()
            if record.value.new is not None or not self._final:
                before = self.context.exchange_metadata(metadata)
                try:
                    self.context.forward(record)
                finally:
                    self.context.exchange_metadata(before)
            self._buffer.remove_first()


class SuppressedGetter(ValueGetter):
    """Looks up the value of the last update that was forwarded. Updates in the buffer are not visible."""

    def __init__(self, parent: ValueGetter, store_name: str) -> None:
        self._parent = parent
        self._store_name = store_name

    def init(self, context: OperatorContext) -> None:
        self._parent.init(context)
        self._buffer: SuppressBuffer = context.get_state_store(self._store_name)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        is_held, value = self._buffer.prior(key)
        if is_held:
            return None if value is None else ValueAndTimestamp(value, -1)
        return self._parent.get(key)
