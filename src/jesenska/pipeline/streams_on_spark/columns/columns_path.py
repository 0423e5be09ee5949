"""The columns path: processes a sub-topology with Arrow columns instead of single records.

Each step processes all records of the micro-batch at once. Expressions are evaluated for whole columns. If an
operation has a Python function, only this function is called for each record (functions.py). The path supports:

    named topics, whose records keep their timestamps
    filter, map, select_key, map_values, flat_map, flat_map_values, branch, merge, repartition
    count, reduce, aggregate of a grouped stream, also over tumbling and hopping windows
    tables from topics and from streams; filter and map_values of a table if the result has no store; to_stream
    joins of a stream with a table that has a store of its own
    joins of two streams
    sinks to named topics, with the default partitioner

The result is the same as with the engine: the same records in the same order, and the same bytes in the stores. `peek`
and `foreach` are not supported, since their functions would be called in another order than in the engine.

Anything unusual (a function that raises, an aggregate of None, bytes that a serde cannot read, a negative timestamp)
ends the columns path. The micro-batch is then processed on the direct path or with the engine, which report the cause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams import plan as nodes
from jesenska.pipeline.streams.dsl.functions import Function, Role
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.processor_topology import ProcessorNode, SinkNode, SourceNode
from jesenska.pipeline.streams_on_spark.columns import column_serdes, steps, tables
from jesenska.pipeline.streams_on_spark.columns.aggregates import aggregate
from jesenska.pipeline.streams_on_spark.columns.interleaving import turns
from jesenska.pipeline.streams_on_spark.columns.outer_joins import join_outer
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records, merged
from jesenska.pipeline.streams_on_spark.columns.steps import MicroBatch, Step, table_of
from jesenska.pipeline.streams_on_spark.columns.stream_joins import join_facts, join_streams, keep_for_join
from jesenska.pipeline.streams_on_spark.columns.windows import aggregate_windows, windows_facts
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

logger = logging.getLogger(__name__)


class ColumnsPath:
    """Processes micro-batches of one sub-topology on the columns path. The constructor raises OtherWayError, with the
    reason, if a step is not supported."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._shape = Shape(work)
        made = _steps(work)
        self._steps: dict[str, Step] = {}
        for name, node in self._shape.nodes.items():
            if isinstance(node, ProcessorNode):
                if name not in made:
                    raise OtherWayError(f"{name} has no form for columns")
                self._steps[name] = made[name]()
        self._parents = {
            name: [parent for parent, children in self._shape.children.items() if name in children]
            for name in self._shape.nodes
        }
        self.has_state = bool(self._shape.stores)
        self._facts = [
            fact for node in work.plan if node.name in self._steps for fact in (*windows_facts(node), *join_facts(node))
        ]
        joins = [node for node in work.plan if isinstance(node, nodes.StreamTableJoin) and node.name in self._steps]
        self._looked_up = frozenset(tables.looked_up_store(work.plan, join) for join in joins)
        self._is_ordered = bool(joins) or any(len(parents) > 1 for parents in self._parents.values())

    def __str__(self) -> str:
        """Returns a description of the path for `KafkaStreams.explain`."""
        called = [
            node.name
            for node in self._work.plan
            if node.name in self._steps and any(map(_is_called, functions_of(node)))
        ]
        return "as columns, each step for all records of a micro-batch at once" + (
            f", Python functions for each record: {', '.join(called)}" if called else ""
        )

    def run(self, rows: pa.Table, partition: int, version: int, directory: Path) -> list[pa.RecordBatch]:
        """Processes the rows of one partition on the columns path. The rows of each topic are in the order of their
        offsets. Returns the rows for the sinks; the state is then stored. Raises OtherWayError if another path must
        process the micro-batch; the state is then unchanged."""
        if self._shape.reads_several:
            rows = rows.sort_by([("topic", "ascending"), ("offset", "ascending")])
        with ExitStack() as stack:
            file = stack.enter_context(StateFile(directory / f"{partition}.state", version)) if self.has_state else None
            try:
                return self._processed(rows, file)
            except Exception as error:
                logger.info(
                    "Micro-batch %d of partition %d is not processed in columns, but on another path: %s",
                    version,
                    partition,
                    error,
                )
                raise OtherWayError(str(error)) from error

    def _processed(self, rows: pa.Table, file: StateFile | None) -> list[pa.RecordBatch]:
        if file is not None:
            for store in self._shape.stores:
                table_of(file, self._work.processors.stores[store])
        batch = MicroBatch(
            file, {} if file is None else facts_of(file), self._looked_up, self._work.config.caches, len(rows)
        )
        for kind, name, known in self._facts:
            batch.facts[kind].setdefault(name, list(known))
        leaving, latest = self._read(rows)
        written = []
        for name, node in self._shape.nodes.items():
            if isinstance(node, SourceNode):
                continue
            coming = [leaving[parent, name] for parent in self._parents[name] if len(leaving.get((parent, name), ()))]
            if not coming:
                continue
            records = merged(coming)
            if isinstance(node, SinkNode):
                written.append(self._written(node, records, rows))
            else:
                self._hand_on(name, self._steps[name](batch, records), leaving)
        for table, new, before in batch.writes:
            table.put_many(new, before)
        for table, start in batch.expired:
            table.remove_below(start)
        for segments, some, retention_ms, start in batch.segments:
            segments.add(some, retention_ms)
            segments.remove_below(start)
        for fact, later in batch.later:
            fact[:] = later
        if file is not None:
            keep_facts(file, batch.facts, latest)
        if batch.dropped:
            logger.warning(
                "%d records were dropped, since their key or their value is null, or their window is closed.",
                batch.dropped,
            )
        return written

    def _hand_on(self, name: str, made: steps.Leaving, leaving: dict[tuple[str, str], Records]) -> None:
        """Passes the output of a node to its children."""
        children = self._shape.children[name]
        parts = made if isinstance(made, list) else [made] * len(children)
        for number, (child, part) in enumerate(zip(children, parts, strict=True)):
            if part is not None:
                leaving[name, child] = part.for_child(number) if self._is_ordered and len(children) > 1 else part

    def _read(self, rows: pa.Table) -> tuple[dict[tuple[str, str], Records], dict[str, int]]:
        """Returns the output records of the source nodes, and the largest timestamp of each topic."""
        sources = {full_name(self._work, topic): source for source in self._shape.sources for topic in source.topics}
        names = rows.column("topic").combine_chunks()
        found = [names[0].as_py()] if len(sources) == 1 else sorted(pc.unique(names).to_pylist())
        every = np.arange(len(rows))
        places = [
            every if len(found) == 1 else every[pc.equal(names, topic).to_numpy(zero_copy_only=False)]
            for topic in found
        ]
        times = milliseconds(rows.column("timestamp"))
        if times.null_count or pc.min(times).as_py() < 0:
            raise StreamsError("a timestamp is negative.")
        at = times.to_numpy()
        orders = turns([at[some] for some in places]) if self._is_ordered else None
        made: dict[str, list[Records]] = {}
        latest = {}
        for number, topic in enumerate(found):
            latest[topic] = int(at[places[number]].max())
            records = self._decoded(sources[topic], topic, rows, places[number], at)
            made.setdefault(sources[topic].name, []).append(
                records if orders is None else records.ordered(orders[number])
            )
        leaving: dict[tuple[str, str], Records] = {}
        for name, several in made.items():
            self._hand_on(name, merged(several), leaving)
        return leaving, latest

    def _decoded(self, source: SourceNode, topic: str, rows: pa.Table, places: Any, at: Any) -> Records:
        config = self._work.config
        columns = [rows.column(name).slice(int(places[0]), len(places)).combine_chunks() for name in ("key", "value")]
        key, value = source.key or config.key_serde, source.value or config.value_serde
        return Records(
            places, column_serdes.read(key, topic, columns[0]), column_serdes.read(value, topic, columns[1]), at[places]
        )

    def _written(self, node: SinkNode, records: Records, rows: pa.Table) -> pa.RecordBatch:
        assert node.topic is not None
        config, topic = self._work.config, full_name(self._work, node.topic)
        keys = column_serdes.write(node.key or config.key_serde, topic, records.keys)
        values = column_serdes.write(node.value or config.value_serde, topic, records.values)
        return written_rows(
            rows, topic, pa.array(records.rows, pa.int64()), keys, values, pa.array(records.times, pa.int64())
        )


def functions_of(node: nodes.Node) -> Iterator[Function]:
    """Yields the functions of an operation that are called for records."""
    for field in fields(node):
        given = getattr(node, field.name)
        for one in given if isinstance(given, tuple) else (given,):
            if isinstance(one, Function) and one.role is not Role.INITIALIZER:
                yield one


def _is_called(function: Function) -> bool:
    return function.expression is None


def _steps(work: Work) -> dict[str, Callable[[], Step]]:
    """Returns, for each supported processor, a function that makes its step. The functions are listed by the
    processor's name."""
    found: dict[str, Callable[[], Step]] = {}
    for node in work.plan:
        match node:
            case nodes.Repartition():
                found[node.filter_name] = partial(steps.drop_null_keys, node)
            case nodes.BranchChild() | nodes.Merge() | nodes.ToStream():
                found[node.name] = lambda: steps.go_on
            case nodes.TableSource() | nodes.ToTable():
                found[node.name] = partial(tables.table_from_records, work, node)
            case nodes.StreamTableJoin():
                found[node.name] = partial(tables.join_table, work, node)
            case nodes.StreamStreamJoin():
                for is_this in (True, False):
                    windowed, join = (
                        (node.this_windowed_name, node.this_join_name)
                        if is_this
                        else (node.other_windowed_name, node.other_join_name)
                    )
                    found[windowed] = partial(keep_for_join, work, node, is_this)
                    found[join] = partial(join_streams if node.kind == "inner" else join_outer, work, node, is_this)
                found[node.name] = lambda: steps.go_on
            case nodes.WindowedAggregate():
                found[node.name] = partial(aggregate_windows, work, node)
            case nodes.StreamAggregate():
                found[node.name] = partial(aggregate, work, node)
            case _ if type(node) in _MADE_OF_THE_NODE:
                found[node.name] = partial(_MADE_OF_THE_NODE[type(node)], node)
    return found


#: The functions that make a step from its plan node only, by the type of the node.
_MADE_OF_THE_NODE: dict[type[nodes.Node], Callable[[Any], Step]] = {
    nodes.Filter: steps.filter_records,
    nodes.Map: steps.map_records,
    nodes.SelectKey: steps.select_key,
    nodes.MapValues: steps.map_values,
    nodes.FlatMap: steps.flat_map,
    nodes.FlatMapValues: steps.flat_map_values,
    nodes.Branch: steps.branch,
    nodes.TableFilter: tables.filter_table,
    nodes.TableMapValues: tables.map_table_values,
}
