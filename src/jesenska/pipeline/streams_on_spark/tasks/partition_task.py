"""Processes one micro-batch of one partition with the engine (the test driver's processors) and a state file.

A task processes the partitions with one number, such as partition 0, of all topics that the sub-topology reads.
Records are processed one by one, as in the test driver. Each micro-batch has a new task: the processors' `init` is
called at its beginning and `close` at its end. The state file stores everything that a later task needs: the stores,
and these facts in one JSON text:

    stream_time        the largest timestamp of the task
    partition_times    the largest timestamp of each topic
    stores             for each store, the numbers that it needs in addition to its rows (state_stores.py)
    operators          for each operator, the numbers that it must remember (engine/operator.py)
    punctuations       [kind, processor, interval, next time] of each scheduled punctuation

A processor of the user's program schedules its punctuations in `init`, in each task. A punctuation that is in the
stored list continues at its next time. A punctuation that is not in the list was cancelled earlier, and is cancelled
again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from jesenska.pipeline.streams.engine.operator import Operator
from jesenska.pipeline.streams.engine.queues import Punctuations, RawRecord
from jesenska.pipeline.streams.engine.task import Task
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.lowering import lower
from jesenska.pipeline.streams.plan import Plan, Table
from jesenska.pipeline.streams.processor_topology import ProcessorTopology, SinkNode
from jesenska.pipeline.streams.records import Headers, Record, RecordMetadata
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology, changelog_topic
from jesenska.pipeline.streams_on_spark.stores.record_cache import RecordCache, cached_tables
from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile
from jesenska.pipeline.streams_on_spark.stores.state_stores import Tables, make_store, remember, remembered

logger = logging.getLogger(__name__)

FACTS = "facts"


def facts_in(file: HasMeta) -> dict[str, Any]:
    """Returns the facts that the previous micro-batch has stored in addition to the stores' rows. Returns an empty
    dict before the first micro-batch."""
    found: dict[str, Any] = json.loads(file.meta(FACTS) or "{}")
    return found


#: The largest number of dropped records that a micro-batch logs one by one.
_LOGGED_MAX = 5


class HasMeta(Protocol):
    """A state file, opened for writing or only for reading."""

    def meta(self, name: str) -> str | None: ...


class Output(NamedTuple):
    """A record to write. If `partition` is None, the key chooses the partition."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Work:
    """The topology and settings that the tasks of a sub-topology need to process its partitions. `partitions` contains
    the number of partitions of each topic that the sub-topology writes; it is passed to partitioners of the user's
    program."""

    number: int
    plan: Plan
    processors: ProcessorTopology
    names: tuple[str, ...]
    config: StreamsConfig
    partitions: Mapping[str, int]

    @classmethod
    def of(cls, topology: Topology, number: int, config: StreamsConfig, partitions: Mapping[str, int]) -> Work:
        """Returns the work of the sub-topology with this number in the topology's description."""
        processors, defaults = lower(topology.plan)
        defaults.key, defaults.value = config.key_serde, config.value_serde
        return cls(number, topology.plan, processors, tuple(processors.sub_topologies()[number]), config, partitions)


def process(
    work: Work,
    partition: int,
    version: int,
    records: Iterable[RawRecord],
    directory: Path,
    now_ms: int,
    global_stores: Mapping[str, Any] | None = None,
) -> list[Output]:
    """Processes the records of micro-batch `version` with the sub-topology. The records of each topic are in the order
    of their offsets. Returns the records to write. The state is stored when the function returns."""
    with StateFile(directory / f"{partition}.state", version) as file:
        task = PartitionTask(work, partition, file, now_ms, global_stores or {})
        task.restore(file.meta(FACTS))
        for record in records:
            task.enqueue(record)
        while task.has_records():
            task.process_next()
        task.punctuate_wall_clock(now_ms)
        task.flush_caches()
        task.close()
        task.tell_dropped()
        file.set_meta(FACTS, task.facts())
        return task.outputs


@contextmanager
def dry_task(work: Work) -> Iterator[PartitionTask]:
    """Gives the `with` block a task that processes no records. Its processors are made and closed, so that exceptions
    of the user's code are raised."""
    with TemporaryDirectory() as directory, StateFile(Path(directory) / "dry", 0) as file:
        task = PartitionTask(work, 0, file, 0, dict.fromkeys(work.processors.global_stores))
        task.close()
        yield task


class PartitionTask(Task):
    """The engine's task, with its stores in a state file."""

    def __init__(self, work: Work, partition: int, file: Tables, now_ms: int, global_stores: Mapping[str, Any]) -> None:
        self.outputs: list[Output] = []
        self._work = work
        self._chosen: int | None = None
        self._cached: dict[str, str] = {}
        super().__init__(
            work.processors,
            list(work.names),
            work.config,
            self._collect,
            lambda name, task: make_store(
                work.processors.stores[name], work.plan, file, task, changelog_topic(work.config.application_id, name)
            ),
            dict(global_stores),
            now_ms,
            f"{work.number}_{partition}",
        )

        self._cached = {
            name: store for name, store in cached_tables(work.plan, work.config).items() if name in self.processors
        }
        self._caches = {store: RecordCache(self.stores[store], file.table(store)) for store in self._cached.values()}
        self._flushed: str | None = None  # the processor whose updates are handed on

    def forward(self, parent: str, record: Record, child: str | None = None) -> None:
        """Forwards the record. If the parent is a table with a record cache, the update is held back instead."""
        store = self._cached.get(parent)
        if store is None or parent == self._flushed:
            super().forward(parent, record, child)
        else:
            self._caches[store].hold(parent, record, self.metadata)

    def flush_caches(self) -> None:
        """Forwards the updates that the record caches hold back."""
        for name, store in self._cached.items():
            self._flushed = name
            self._caches[store].flush(self._sends_old, self._forward_update)
        self._flushed = None

    def _sends_old(self, name: str) -> bool:
        table = self._work.plan[name]
        return isinstance(table, Table) and table.sends_old_values

    def _forward_update(self, name: str, update: Record, metadata: RecordMetadata | None) -> None:
        self._flushed, self.metadata = name, metadata
        try:
            self.forward(name, update)
        finally:
            self.metadata = None

    def _collect(self, topic: str, record: Record) -> None:
        self.outputs.append(Output(topic, self._chosen, record.key, record.value, record.timestamp, record.headers))

    def _write(self, sink: SinkNode, record: Record) -> None:
        if sink.partitioner is not None:
            self._chosen = self._ask(sink, record)
        try:
            super()._write(sink, record)
        finally:
            self._chosen = None

    def _ask(self, sink: SinkNode, record: Record) -> int | None:
        """Returns the partition that the user's partitioner chooses for the record, or None for the default choice."""
        topic = sink.topic if sink.topic_extractor is None else sink.topic_extractor.call(record.key, record.value)
        assert topic is not None and sink.partitioner is not None
        topic = self.decorated(topic)
        count = self._work.partitions.get(topic)
        if count is None:
            raise StreamsError(
                f"{sink.made_at}: a partitioner is asked about {topic}, whose partitions were not known when the "
                f"application started: create the topic first."
            )
        chosen = sink.partitioner(topic, record.key, record.value, count)
        if chosen is not None and not 0 <= chosen < count:
            raise StreamsError(
                f"{sink.made_at}: the partitioner gave partition {chosen} of {topic}, which has {count}: give a "
                f"number from 0 to {count - 1}."
            )
        return chosen

    def drop(self, reason: str) -> None:
        """Counts a dropped record. Only the first few dropped records are logged, since a micro-batch may drop
        many."""
        if self.dropped_records < _LOGGED_MAX:
            super().drop(reason)
        else:
            self.dropped_records += 1

    def tell_dropped(self) -> None:
        if self.dropped_records > _LOGGED_MAX:
            logger.warning(
                "%d more records were dropped in this micro-batch of task %s.",
                self.dropped_records - _LOGGED_MAX,
                self.task_id,
            )

    # Facts for later micro-batches

    def facts(self) -> str:
        """Returns the facts for the next micro-batch as JSON text."""
        operators = {name: one.remembered() for name, one in self.processors.items() if isinstance(one, Operator)}
        facts = {
            "stream_time": self.stream_time_ms,
            "partition_times": {topic: queue._partition_time_ms for topic, queue in self._queues.items()}
            | self._times_of_others,
            "stores": {name: values for name, store in self.stores.items() if (values := remembered(store))},
            "operators": {name: values for name, values in operators.items() if values},
            "punctuations": [
                [kind, one.node, one.interval_ms, one.at_ms]
                for kind, all_ in self._kinds()
                for one in all_._scheduled
                if not one.cancelled
            ],
        }
        return json.dumps(facts, separators=(",", ":"))

    def restore(self, text: str | None) -> None:
        """Restores the facts that an earlier micro-batch has stored. `text` is None before the first micro-batch. Must
        be called before the first record."""
        self._times_of_others: dict[str, int] = {}
        if text is None:
            return
        facts = json.loads(text)
        self.stream_time_ms = facts["stream_time"]
        self._times_of_others = facts["partition_times"]
        for name, values in facts["stores"].items():
            remember(self.stores[name], values)
        for name, values in facts["operators"].items():
            operator = self.processors[name]
            assert isinstance(operator, Operator)
            operator.remember(values)
        if "punctuations" not in facts:  # the state was restored: they start from scratch
            return
        before = list(facts["punctuations"])
        for kind, scheduled in self._kinds():
            for one in list(scheduled._scheduled):
                known = next((entry for entry in before if entry[:3] == [kind, one.node, one.interval_ms]), None)
                if known is None:
                    one.cancel()
                else:
                    before.remove(known)
                    one.at_ms = known[3]
            scheduled._scheduled.sort(key=lambda one: one.at_ms)

    def enqueue(self, raw: RawRecord) -> None:
        if raw.topic not in self._queues:
            source = self.source_of(raw.topic)
            assert source is not None
            queue = self._queues[raw.topic] = self._queue_of(source)
            queue._partition_time_ms = self._times_of_others.pop(raw.topic, -1)
        super().enqueue(raw)

    def _kinds(self) -> tuple[tuple[str, Punctuations], ...]:
        return ("stream_time", self._stream_time), ("wall_clock", self._wall_clock)

    @property
    def asks_for_the_clock(self) -> bool:
        """Returns True if a processor has scheduled a punctuation on wall-clock time."""
        return bool(self._wall_clock._scheduled)
