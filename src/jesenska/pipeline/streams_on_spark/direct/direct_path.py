"""The direct path: processes a sub-topology of simple steps without the engine. Each step is one Python function.

The engine makes a Record object for every step and supports punctuations. A sub-topology with only the following steps
needs neither, and its result on the direct path is the same as with the engine:

    named topics, whose records keep their timestamps
    filter, map, select_key, map_values, flat_map, flat_map_values, peek, foreach, branch, merge, repartition
    count, reduce, aggregate of a grouped stream (without windows), tables from topics, to_stream
    joins of a stream with a table that has a store of its own
    sinks to named topics, with the default partitioner

If several topics are read, the record with the smallest timestamp is processed next, as in the engine.

A step is called with the row's number, the key, the key's bytes as they were read (None once the key has changed), the
value and the timestamp. Headers follow from the row's number, for all rows at once. If a key is unchanged, the bytes
that were read are written again, provided its serde always writes equal keys with equal bytes.

Anything unusual (a function that raises, bytes that a serde cannot read, a negative timestamp) ends the direct path.
The engine then processes the micro-batch from its beginning. It raises the error, or calls the exception handler that
the settings name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.pipeline.streams.engine import stateless
from jesenska.pipeline.streams.engine.aggregates import AggregateRecords
from jesenska.pipeline.streams.engine.joins.table_lookups import LookUpTable
from jesenska.pipeline.streams.engine.queues import TopicHeap
from jesenska.pipeline.streams.engine.stateless import pair, several
from jesenska.pipeline.streams.engine.tables import ChangesToRecords, StoreGetter, TableFromRecords
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Process, TableTransformValues
from jesenska.pipeline.streams.processor_topology import ProcessorNode, SinkNode, SourceNode
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark.direct.direct_stores import PLAIN, StoreKeys, decoded, encoder
from jesenska.pipeline.streams_on_spark.stores.record_cache import cached_tables
from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile
from jesenska.pipeline.streams_on_spark.tasks.micro_batch_rows import (
    Shape,
    facts_of,
    full_name,
    keep_facts,
    milliseconds,
    written_rows,
)
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Step = Callable[[int, Any, "bytes | None", Any, int], None]
"""step(row number, key, bytes of the key if it is unchanged, value, timestamp)"""


class DirectPath:
    """Processes micro-batches of one sub-topology on the direct path. The constructor raises OtherWayError if the
    sub-topology has a step that the direct path does not support."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._shape = Shape(work)
        nodes = self._shape.nodes
        self._operators = {
            name: self._operator(name, node) for name, node in nodes.items() if isinstance(node, ProcessorNode)
        }

    def _operator(self, name: str, node: ProcessorNode) -> Any:
        if name in self._work.plan and isinstance(self._work.plan[name], Process | TableTransformValues):
            raise OtherWayError(f"{name} is a processor of the program")
        operator = node.make()
        if type(operator) not in _STEPS:
            raise OtherWayError(f"{name} is not one of the simple steps of the direct path")
        if isinstance(operator, AggregateRecords | TableFromRecords) and operator.sends_old:
            raise OtherWayError(f"{name} sends old values")
        if isinstance(operator, LookUpTable) and (
            not isinstance(operator.getter, StoreGetter) or operator.getter.store_name not in node.stores
        ):
            raise OtherWayError(f"{name} looks up a global table, or one without a store of its own")
        if any(self._work.processors.stores[store].kind != "key-value" for store in node.stores):
            raise OtherWayError(f"{name} looks up a table of windows")
        return operator

    def __str__(self) -> str:
        """Returns a description of the path for `KafkaStreams.explain`."""
        return "the direct path, a Python function for each step"

    def run(self, rows: pa.Table, partition: int, version: int, directory: Path) -> list[pa.RecordBatch]:
        """Processes the rows of one partition on the direct path. The rows of each topic are in the order of their
        offsets. Returns the rows for the sinks; the state is then stored. Raises OtherWayError if the engine must
        process the micro-batch instead; the state is then unchanged."""
        if self._shape.reads_several:
            rows = rows.sort_by([("topic", "ascending"), ("offset", "ascending")])
        with ExitStack() as stack:
            file = (
                stack.enter_context(StateFile(directory / f"{partition}.state", version))
                if self._shape.stores
                else None
            )
            try:
                run = _Run(self._work, self._shape, self._operators, file)
                run.take(rows)
                run.flush_caches()
            except Exception as error:
                logger.info(
                    "Micro-batch %d of partition %d is processed record by record in the engine: %s",
                    version,
                    partition,
                    error,
                )
                raise OtherWayError(str(error)) from error
            run.finish()
            return list(run.batches(rows))


class _Run:
    """The processing of one micro-batch of one partition."""

    def __init__(self, work: Work, shape: Shape, operators: dict[str, Any], file: StateFile | None) -> None:
        self._work = work
        self._shape = shape
        self._operators = operators
        self._file = file
        self._steps: dict[str, Step] = {}
        self._written: list[_Written] = []
        self._stores: dict[str, StoreKeys] = {}
        self._latest: dict[str, int] = {}
        self._cached = cached_tables(work.plan, work.config)
        self._held: dict[str, dict[Any, tuple[Step, tuple[Any, ...]]]] = {}  # by store and key: step and arguments
        self.dropped = 0

    def take(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        # The bytes of an unchanged key can be reused if all topics have the same key serde.
        sources = self._shape.sources
        serdes = {source.key or self._work.config.key_serde for source in sources}
        self._one_key = serdes.pop() if len(serdes) == 1 else None
        if not isinstance(self._one_key, PLAIN):
            self._one_key = None
        read = {full_name(self._work, topic): source for source in sources for topic in source.topics}
        names = rows.column("topic")
        found = [names[0].as_py()] if len(read) == 1 else sorted(pc.unique(names).to_pylist())
        queues = []
        for topic in found:
            numbers = None if len(found) == 1 else pc.indices_nonzero(pc.equal(names, topic))
            queues.append(self._queue(topic, rows if numbers is None else rows.take(numbers), numbers, read[topic]))
        if len(queues) == 1:
            for row, key, data, value, at in queues[0].records:
                queues[0].first(row, key, data, value, at)
        else:
            _in_turn(queues)

    def _queue(self, topic: str, rows: pa.Table, numbers: pa.Array | None, source: SourceNode) -> _Queue:
        times = milliseconds(rows.column("timestamp")).to_pylist()
        if min(times) < 0:
            raise StreamsError("a timestamp is negative.")
        config = self._work.config
        key_bytes = rows.column("key").to_pylist()
        keys = decoded(source.key or config.key_serde, topic, key_bytes)
        values = decoded(source.value or config.value_serde, topic, rows.column("value").to_pylist())
        known = key_bytes if self._one_key is not None else [None] * len(keys)
        self._latest[topic] = max(times)
        records = zip(
            range(len(keys)) if numbers is None else numbers.to_pylist(), keys, known, values, times, strict=True
        )
        return _Queue(self._steps_after(source.name), times, records)

    def _held_back(self, name: str) -> dict[Any, tuple[Step, tuple[Any, ...]]] | None:
        """Returns the updates of a table that a record cache (record_cache.py) holds back. Returns None if the table
        has no record cache, so its updates are forwarded at once."""
        return self._held.setdefault(self._cached[name], {}) if name in self._cached else None

    def flush_caches(self) -> None:
        """Forwards the updates that record caches have held back. At this moment the stores still have their contents
        from before the micro-batch."""
        for name, store in self._cached.items():
            if name not in self._steps or store not in self._held:
                continue
            held, table = dict(self._held[store]), self._stores[store]
            self._held[store].clear()
            for where, (then, record) in held.items():
                if record[3] is not None or table.was_there(where):
                    then(*record)

    def finish(self) -> None:
        for keys in self._stores.values():
            keys.keep()
        if self._file is not None:
            keep_facts(self._file, facts_of(self._file), self._latest)
        if self.dropped:
            logger.warning("%d records were dropped, since their key or their value is null.", self.dropped)

    def batches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yields the output records as rows, in one batch for each topic."""
        for written in self._written:
            if written.rows:
                yield written.batch(rows)

    # Steps

    def _steps_after(self, name: str) -> Step:
        """Returns one function that calls all steps after a node."""
        steps = [self.step(child) for child in self._shape.children[name]]
        if len(steps) == 1:
            return steps[0]

        def each(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            for step in steps:
                step(row, key, data, value, at)

        return each

    def step(self, name: str) -> Step:
        """Returns the function for the step of a node, including all steps after it. A node with several parents has
        one function."""
        if name not in self._steps:
            node = self._shape.nodes[name]
            if isinstance(node, SinkNode):
                self._steps[name] = self._sink(node)
            else:
                operator = self._operators[name]
                self._steps[name] = _STEPS[type(operator)](self, name, operator)
        return self._steps[name]

    def _sink(self, node: SinkNode) -> Step:
        assert node.topic is not None
        config = self._work.config
        topic = full_name(self._work, node.topic)
        key_serde, value_serde = node.key or config.key_serde, node.value or config.value_serde
        keeps = self._keeps(key_serde)
        written = _Written(topic)
        self._written.append(written)
        rows, keys, values, times = (
            written.rows.append,
            written.keys.append,
            written.values.append,
            written.times.append,
        )
        write_key, write_value = encoder(key_serde, topic), encoder(value_serde, topic)

        def write(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            values(write_value(value))
            keys(data if keeps and data is not None else write_key(key))
            rows(row)
            times(at)

        return write

    def filter(self, name: str, operator: stateless.FilterRecords) -> Step:
        predicate, negated, then = operator.predicate, operator.negated, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            if bool(predicate(key, value)) is not negated:
                then(row, key, data, value, at)

        return step

    def map(self, name: str, operator: stateless.MapRecords) -> Step:
        mapper, then = operator.mapper, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            new_key, new_value = pair(mapper(key, value))
            then(row, new_key, None, new_value, at)

        return step

    def select_key(self, name: str, operator: stateless.SelectKeys) -> Step:
        mapper, then = operator.mapper, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            then(row, mapper(key, value), None, value, at)

        return step

    def map_values(self, name: str, operator: stateless.MapRecordValues) -> Step:
        mapper, then = operator.mapper, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            then(row, key, data, mapper(key, value), at)

        return step

    def flat_map(self, name: str, operator: stateless.FlatMapRecords) -> Step:
        mapper, then = operator.mapper, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            for made in several(mapper(key, value), "pairs"):
                new_key, new_value = pair(made)
                then(row, new_key, None, new_value, at)

        return step

    def flat_map_values(self, name: str, operator: stateless.FlatMapRecordValues) -> Step:
        mapper, then = operator.mapper, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            made = mapper(key, value)
            for new_value in () if made is None else several(made, "values"):
                then(row, key, data, new_value, at)

        return step

    def peek(self, name: str, operator: stateless.PeekRecords) -> Step:
        action, then = operator.action, self._steps_after(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            action(key, value)
            then(row, key, data, value, at)

        return step

    def foreach(self, name: str, operator: stateless.ForeachRecord) -> Step:
        action = operator.action
        return lambda row, key, data, value, at: action(key, value)

    def branch(self, name: str, operator: stateless.BranchRecords) -> Step:
        steps = [self.step(child) for child in operator.children]
        chosen = list(zip(operator.predicates, steps, strict=False))
        default = steps[len(operator.predicates)] if len(steps) > len(operator.predicates) else None

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            for predicate, then in chosen:
                if predicate(key, value):
                    then(row, key, data, value, at)
                    return
            if default is not None:
                default(row, key, data, value, at)

        return step

    def go_on(self, name: str, operator: Any) -> Step:
        return self._steps_after(name)

    def drop_null_keys(self, name: str, operator: stateless.DropNullKeys) -> Step:
        then = self._steps_after(name)
        if not operator.drops:
            return then

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            if key is not None:
                then(row, key, data, value, at)

        return step

    def _keys(self, store: str) -> StoreKeys:
        """Returns the cache of the store's keys in this micro-batch. It is made at the first call."""
        assert self._file is not None
        if store not in self._stores:
            config, spec = self._work.config, self._work.processors.stores[store]
            topic = changelog_topic(config.application_id, store)
            key_serde, value_serde = spec.key or config.key_serde, spec.value or config.value_serde
            self._stores[store] = StoreKeys(
                self._file.table(store), key_serde, value_serde, topic, self._keeps(key_serde)
            )
        return self._stores[store]

    def _keeps(self, key_serde: Serde) -> bool:
        """Returns True if the serde would write an unchanged key with the same bytes with which it was read."""
        return (
            self._one_key is not None
            and type(key_serde) is type(self._one_key)
            and key_serde.name == self._one_key.name
        )

    def aggregate(self, name: str, operator: AggregateRecords) -> Step:
        store, then = self._keys(operator.store_name), self._steps_after(name)
        initializer, aggregator = operator.initializer, operator.aggregator
        known, load, keeps, write_key, write_value = (
            store.known,
            store.load,
            store.keeps,
            store.write_key,
            store.write_value,
        )
        as_read, is_plain, held = store.as_read, store.is_plain, self._held_back(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            if key is None or value is None:
                self.dropped += 1
                return
            where = data if keeps and data is not None else write_key(key)
            found = known.get(where)
            if found is None:
                found = load(where)
            old_bytes, old, old_at = found
            if old_bytes is None:
                old = initializer()
            else:
                at = max(at, old_at)
                if not is_plain:
                    old = store.read(old_bytes)
            new = aggregator(key, value, old)
            known[where] = (write_value(new), as_read(new), at)
            if held is None:
                then(row, key, data, new, at)
            else:
                held.pop(where, None)
                held[where] = then, (row, key, data, new, at)

        return step

    def table(self, name: str, operator: TableFromRecords) -> Step:
        then = self._steps_after(name)
        store = None if operator.store_name is None else self._keys(operator.store_name)
        held = self._held_back(name)

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            if key is None:
                self.dropped += 1
                return
            if store is not None:
                where = data if store.keeps and data is not None else store.write_key(key)
                store.known[where] = (store.write_value(value), store.as_read(value), at)
                if held is not None:
                    held.pop(where, None)
                    held[where] = then, (row, key, data, value, at)
                    return
            then(row, key, data, value, at)

        return step

    def look_up(self, name: str, operator: LookUpTable) -> Step:
        assert isinstance(operator.getter, StoreGetter)
        store, then = self._keys(operator.getter.store_name), self._steps_after(name)
        joiner, left = operator.joiner, operator.left
        known, look_up, keeps, write_key, is_plain = (
            store.known,
            store.look_up,
            store.keeps,
            store.write_key,
            store.is_plain,
        )

        def step(row: int, key: Any, data: bytes | None, value: Any, at: int) -> None:
            if value is None or (key is None and not left):
                self.dropped += 1
                return
            other = None
            if key is not None:
                where = data if keeps and data is not None else write_key(key)
                found = known.get(where)
                if found is None:
                    found = look_up(where)
                other_bytes, other, _ = found
                if other_bytes is not None and not is_plain:
                    other = store.read(other_bytes)
            if left or other is not None:
                then(row, key, data, joiner(key, value, other), at)

        return step


_STEPS: dict[type, Callable[[_Run, str, Any], Step]] = {
    stateless.FilterRecords: _Run.filter,
    stateless.MapRecords: _Run.map,
    stateless.SelectKeys: _Run.select_key,
    stateless.MapRecordValues: _Run.map_values,
    stateless.FlatMapRecords: _Run.flat_map,
    stateless.FlatMapRecordValues: _Run.flat_map_values,
    stateless.PeekRecords: _Run.peek,
    stateless.ForeachRecord: _Run.foreach,
    stateless.BranchRecords: _Run.branch,
    stateless.PassThrough: _Run.go_on,
    stateless.DropNullKeys: _Run.drop_null_keys,
    ChangesToRecords: _Run.go_on,
    AggregateRecords: _Run.aggregate,
    TableFromRecords: _Run.table,
    LookUpTable: _Run.look_up,
}


class _Queue:
    """The waiting records of one topic, and the function of the topic's first step. Queues are elements of the heap
    that chooses the next topic."""

    def __init__(
        self, first: Step, times: list[int], records: Iterator[tuple[int, Any, bytes | None, Any, int]]
    ) -> None:
        self.first = first
        self.records = records
        self._times = iter(times)
        self.head_timestamp = next(self._times)

    def hand_over(self) -> bool:
        """Passes the next record to the first step. Returns True if there are more records."""
        self.first(*next(self.records))
        self.head_timestamp = next(self._times, -1)
        return self.head_timestamp >= 0


def _in_turn(queues: list[_Queue]) -> None:
    heap = TopicHeap()
    for queue in queues:
        heap.push(queue)  # type: ignore[arg-type]
    while len(heap):
        queue = heap.pop()  # type: ignore[assignment]
        if queue.hand_over():
            heap.push(queue)  # type: ignore[arg-type]


class _Written:
    """The records that one sink writes, column by column."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.rows: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times: list[int] = []

    def batch(self, rows: pa.Table) -> pa.RecordBatch:
        """Returns the records as rows for the sink. Their headers are those of the input rows from which they were
        made."""
        import pyarrow as pa

        columns = [
            pa.array(self.rows, pa.int64()),
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.times, pa.int64()),
        ]
        return written_rows(rows, self.topic, *columns)
