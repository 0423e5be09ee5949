"""The direct path's cache of a store during a micro-batch, which also serializes and deserializes the values.

Each key of a micro-batch is read once, and all changes are written at the end of the micro-batch. Immutable values
stay in memory between records. Other values are deserialized again for each record, as in the engine, because a
function may change its argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes
from jesenska.pipeline.streams_on_spark.stores.state_file import StateTable, rows_of

#: Serdes whose values are immutable and always have the same bytes.
PLAIN = tuple(type(serde) for serde in (Serdes.string(), Serdes.bytes(), Serdes.long(), Serdes.double()))


class StoreKeys:
    """The keys of a store that the micro-batch uses. For each key's bytes it has the bytes of the value (None: no
    value), the value itself if it is immutable, and the timestamp."""

    def __init__(self, table: StateTable, key: Serde, value: Serde, topic: str, keeps: bool) -> None:
        self._table = table
        self.keeps = keeps
        self.is_plain = isinstance(value, PLAIN)
        self.as_read = _READ_AS.get(value.name, _the_same) if self.is_plain else _nothing
        self.write_key, self.write_value = encoder(key, topic), encoder(value, topic)
        self.read: Callable[[bytes], Any] = lambda data: value.deserialize(topic, data)
        self.known: dict[Any, tuple[bytes | None, Any, int]] = {}
        self._seen: dict[Any, tuple[bytes | None, Any, int]] = {}  # as they are in the store

    def load(self, where: Any) -> tuple[bytes | None, Any, int]:
        found = self._table.get(where)
        if found is None:
            return None, None, -1
        data, at = found
        return data, self.read(data) if self.is_plain else None, at

    def was_there(self, where: Any) -> bool:
        """Returns True if the key had a value before the micro-batch."""
        return self._table.get(where) is not None

    def look_up(self, where: Any) -> tuple[bytes | None, Any, int]:
        """Returns the entry of a key, and caches it as unchanged."""
        found = self.known[where] = self._seen[where] = self.load(where)
        return found

    def keep(self) -> None:
        """Writes all changed entries to the store."""
        changed = sorted(where for where, entry in self.known.items() if self._seen.get(where) is not entry)
        before = rows_of(self._table, changed)
        entries = [self.known[where] for where in changed]
        self._table.put_many(
            before._replace(value=[data for data, _, _ in entries], at=[at for _, _, at in entries]), before
        )


def _the_same(value: Any) -> Any:
    return value


def _nothing(value: Any) -> None:
    return None


#: For serdes that accept more than one type: the function that turns a value into the type that the store returns.
_READ_AS: dict[str, Callable[[Any], Any]] = {
    "double": lambda value: float(value) if isinstance(value, int) else value,
    "bytes": lambda value: None if value is None else bytes(value),
}


def decoded(serde: Serde, topic: str, column: list[bytes | None]) -> list[Any]:
    if isinstance(serde, type(Serdes.string())):
        return [None if data is None else data.decode() for data in column]
    if isinstance(serde, type(Serdes.bytes())):
        return column
    read = serde.deserialize
    return [None if data is None else read(topic, data) for data in column]


def encoder(serde: Serde, topic: str) -> Callable[[Any], bytes | None]:
    if isinstance(serde, type(Serdes.string())):
        write = serde.serialize
        return lambda value: value.encode() if type(value) is str else write(topic, value)
    write_any = serde.serialize
    return lambda value: write_any(topic, value)
