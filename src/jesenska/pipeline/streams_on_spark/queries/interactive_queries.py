"""Read-only stores for interactive queries: the results of `KafkaStreams.store`. They contain the state after the last
micro-batches. They can be read while the application runs and after its end, and cannot be changed.

    counts = streams.store("counts")
    counts.get("kafka")                 # the value, or None
    counts.range("a", "m"), counts.all()
    counts.all(limit=100)               # the first hundred

Each partition of a sub-topology has a part of the store. A call reads all parts, partition by partition. So keys are
sorted only within a partition, as in Kafka Streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.plan import Plan, Store
from jesenska.pipeline.streams.records import KeyValue
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark.stores.state_file import ReadOnlyStateFile
from jesenska.pipeline.streams_on_spark.stores.state_stores import make_store, remember
from jesenska.pipeline.streams_on_spark.tasks.partition_task import FACTS

T = TypeVar("T")
Stores = Callable[[], Iterator[Any]]
"""yields the parts of a store; each part must be used before the next one is taken"""


class _Asked:
    """Takes the place of the task in a store that is only read."""

    timestamp = -1

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config

    def key_serde(self, serde: Serde | None) -> Serde:
        return serde or self._config.key_serde

    def value_serde(self, serde: Serde | None) -> Serde:
        return serde or self._config.value_serde

    def drop(self, reason: str) -> None:
        """Does nothing: a read-only store drops no records."""


def parts_of(spec: Store, plan: Plan, config: StreamsConfig, directory: Path) -> Iterator[Any]:
    """Yields the part of the store in each partition, with its contents after the last micro-batch."""
    for path in sorted(directory.glob("*.state"), key=lambda path: int(path.stem)):
        file = ReadOnlyStateFile(path)
        try:
            if spec.name not in file._names:
                continue  # no record of this partition has reached the store
            store = make_store(spec, plan, file, _Asked(config), changelog_topic(config.application_id, spec.name))
            facts = json.loads(file.meta(FACTS) or "{}").get("stores", {})
            if spec.name in facts:
                remember(store, facts[spec.name])
            yield store
        finally:
            file.close()


def read_only_store(
    spec: Store, parts: Stores, timestamped: bool
) -> ReadOnlyKeyValueStore | ReadOnlyWindowStore | ReadOnlySessionStore:
    """Returns the read-only store for a store of this kind. Raises StreamsError if this kind of store cannot be
    queried."""
    if timestamped and not spec.timestamped:
        raise StreamsError(f"the store {spec.name} has no timestamps: ask for it without timestamped=True.")
    plain = spec.timestamped and not timestamped
    match spec.kind:
        case "key-value":
            return ReadOnlyKeyValueStore(parts, plain)
        case "window":
            return ReadOnlyWindowStore(parts, plain)
        case "session":
            return ReadOnlySessionStore(parts, plain)
    raise StreamsError(
        f"the store {spec.name} belongs to an operation ({spec.kind}) and cannot be queried: query a store that "
        "the program names with store=…."
    )


class _ReadOnly(SaysOurName):
    """The base class of the read-only stores. In its methods, `limit` is the largest number of records to return."""

    def __init__(self, parts: Stores, plain: bool) -> None:
        self._parts = parts
        self._plain = plain

    def _value(self, value: Any) -> Any:
        return value.value if self._plain and value is not None else value

    def _first(self, ask: Callable[[Any], Any]) -> Any:
        for store in self._parts():
            found = ask(store)
            if found is not None:
                return self._value(found)
        return None

    def _pairs(self, ask: Callable[[Any], Any], limit: int | None = None) -> list[KeyValue]:
        pairs = (KeyValue(key, self._value(value)) for store in self._parts() for key, value in ask(store))
        with closing(pairs):
            return list(islice(pairs, limit))


class ReadOnlyKeyValueStore(_ReadOnly):
    """A read-only store with the latest value of each key."""

    def get(self, key: Any) -> Any:
        """Returns the value of the key, or None if the key has no value."""
        return self._first(lambda store: store.get(key))

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[KeyValue]:
        """Returns the keys from `first` to `last`, both included, with their values. None means no limit on that
        side."""
        return self._pairs(lambda store: store.range(first, last), limit)

    def all(self, *, limit: int | None = None) -> list[KeyValue]:
        return self._pairs(lambda store: store.all(), limit)

    def approximate_num_entries(self) -> int:
        return sum(store.approximate_num_entries() for store in self._parts())


class ReadOnlyWindowStore(_ReadOnly):
    """A read-only store whose values have a key and the start of a window."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        "get": "fetch(key, start)",
        "range": "fetch(key, from, to) or fetch_all(from, to)",
    }

    def fetch(self, key: Any, time_from: int, time_to: int | None = None, *, limit: int | None = None) -> Any:
        """Returns the value in the window that begins at `time_from`, or None. With `time_to`, returns pairs of start
        and value of the windows that begin from `time_from` to `time_to`."""
        if time_to is None:
            return self._first(lambda store: store.fetch(key, time_from))
        return [tuple(pair) for pair in self._pairs(lambda store: store.fetch(key, time_from, time_to), limit)]

    def fetch_all(self, time_from: int, time_to: int, *, limit: int | None = None) -> list[KeyValue]:
        """Returns all windowed keys of windows that begin from `time_from` to `time_to`, with their values."""
        return self._pairs(lambda store: store.fetch_all(time_from, time_to), limit)

    def all(self, *, limit: int | None = None) -> list[KeyValue]:
        return self._pairs(lambda store: store.all(), limit)


class ReadOnlySessionStore(_ReadOnly):
    """A read-only store whose values have a key and a session."""

    _INSTEAD: ClassVar[dict[str, str]] = {"get": "fetch(key)", "range": "fetch(first, last)"}

    def fetch(self, key: Any, last: Any = None, *, limit: int | None = None) -> list[KeyValue]:
        """Returns the sessions of a key. With `last`, returns the sessions of all keys from `key` to `last`."""
        return self._pairs(lambda store: store.fetch(key, last), limit)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any:
        """Returns the value of the session with exactly this start and end, or None."""
        return self._first(lambda store: store.fetch_session(key, start_ms, end_ms))

    def all(self, *, limit: int | None = None) -> list[KeyValue]:
        return self._pairs(lambda store: store.all(), limit)
