"""Kafka Streams' record cache: a table forwards only the last update of each key in a micro-batch.

With `statestore.cache.max.bytes` above 0, the updates of a table with a store are held back until the end of the
micro-batch, which corresponds to a commit in Kafka Streams. Then each key's last update is forwarded, with its
timestamp and its headers:

    order        by the last update of each key; a table that is computed from other tables comes after these
    old value    the store's value before the micro-batch
    left out     a key that has no value and had none before the micro-batch

The store itself has every update immediately, so a join finds each update. The size of the cache does not matter: the
cache always contains the updates of one micro-batch. Nothing is held back by tables without a store, by `suppress`,
and by windows that forward their results when they close."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.dsl.windows import EmitStrategy
from jesenska.pipeline.streams.plan import CogroupMerge, Plan, SessionAggregate, Suppress, Table, WindowedAggregate
from jesenska.pipeline.streams.records import Change, Record, RecordMetadata
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams_on_spark.stores.state_file import StateTable


def cached_tables(plan: Plan, config: StreamsConfig) -> dict[str, str]:
    """Returns the names of the processors whose updates are held back, with the names of their stores."""
    if not config.caches:
        return {}
    found = {}
    for node in plan:
        if (
            isinstance(node, Table)
            and node.materialized
            and node.store is not None
            and not isinstance(node, CogroupMerge | Suppress)
        ):
            on_close = (
                isinstance(node, WindowedAggregate | SessionAggregate) and node.emit is EmitStrategy.ON_WINDOW_CLOSE
            )
            if not on_close:
                found[node.name] = node.store.name
    return found


@dataclass(frozen=True, slots=True)
class _Held:
    node: str
    record: Record
    metadata: RecordMetadata | None


class RecordCache:
    """The updates of one store that are held back until the end of the micro-batch."""

    def __init__(self, store: Any, table: StateTable) -> None:
        self._store = store
        self._table = table
        self._held: dict[tuple[bytes, int, int], _Held] = {}

    def hold(self, node: str, record: Record, metadata: RecordMetadata | None) -> None:
        where = self._where(record.key)
        self._held.pop(where, None)
        self._held[where] = _Held(node, record, metadata)

    def flush(
        self, sends_old: Callable[[str], bool], forward: Callable[[str, Record, RecordMetadata | None], None]
    ) -> None:
        """Forwards the updates that are held back. The cache is empty afterwards."""
        held, self._held = self._held, {}
        for where, one in held.items():
            new, record = one.record.value.new, one.record
            before = self._table.before(*where) if new is None or sends_old(one.node) else None
            if new is None and before is None:
                continue
            old = None
            if before is not None and sends_old(one.node):
                old = self._store._value_of(before)
                old = old.value if self._store.spec.timestamped and old is not None else old
            forward(one.node, Record(record.key, Change(new, old), record.timestamp, record.headers), one.metadata)

    def _where(self, key: Any) -> tuple[bytes, int, int]:
        """Returns the position of the key's row in the store's table: its columns a, n and m (state_stores.py)."""
        match self._store.spec.kind:
            case "window":
                return self._store._key_bytes(key.key), key.window.start, 0
            case "session":
                return self._store._key_bytes(key.key), key.window.end, key.window.start
        return self._store._key_bytes(key), 0, 0
