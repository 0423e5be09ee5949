"""Descriptions of topologies (tests/units/pipeline/streams/topology_spec.py), run micro-batch by micro-batch without
Spark and without a broker: topics are lists, and the tasks' own functions process the records between two offsets.

Each micro-batch is processed by two sides, which get the same records and must have the same results:

    state files     as in Spark's tasks: a micro-batch has a task of its own, whose state is in a file
    kept tasks      a task of the engine that lives as long as the application, as in Kafka Streams, with its stores in
                    memory; the test driver is one such task

So a difference between them is a mistake. An outcome that differs from the test driver's alone follows from the order
in which the records came.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, cast

from jesenska.client.partitioner import partition_of_key
from jesenska.pipeline.streams import Record, StreamsConfig, StreamsError, Topology, TopologyTestDriver
from jesenska.pipeline.streams.engine.queues import RawRecord, ReadRecord
from jesenska.pipeline.streams.engine.task import Task
from jesenska.pipeline.streams.processor_topology import SourceNode
from jesenska.pipeline.streams_on_spark.changelogs import changes, logged_stores
from jesenska.pipeline.streams_on_spark.cutting import (
    SubTopology,
    cut,
    in_order,
    partitions_of_internal_topics,
    tasks_of,
)
from jesenska.pipeline.streams_on_spark.paths import Way, ways_of
from jesenska.pipeline.streams_on_spark.queries.interactive_queries import parts_of
from jesenska.pipeline.streams_on_spark.tasks.global_tables import GlobalTables
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Output, PartitionTask, Work, process
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError
from tests.units.pipeline.streams.interpreted import Interpreter, failure, is_table, piped, rows, shown_description
from tests.units.pipeline.streams.topology_spec import Json
from tests.units.pipeline.streams_on_spark.test_direct_path import rows as source_rows

Place = tuple[str, int]
"""topic, partition"""
Changelogs = dict[tuple[str, int, bytes], tuple[bytes | None, int]]
"""(store, partition, key) -> value and timestamp"""


class DifferentSidesError(AssertionError):
    """State files and kept tasks had different results for the same records. `outputs` are the records that each has
    written, if a micro-batch differs."""

    def __init__(self, text: str, outputs: Sequence[list[Output]] = ()) -> None:
        super().__init__(text)
        self.outputs = outputs


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one partition of a sub-topology."""

    version: int
    partition: int
    records: Sequence[RawRecord]
    now_ms: int


class Side(Protocol):
    """One of the two sides that process micro-batches. `order` is the order in which the last micro-batch took its
    records, if the side knows it."""

    order: list[tuple[str, int, int]]
    #: The records of the changelog topics for each key. They are compacted.
    changelogs: Changelogs

    def attempts(self) -> int:
        """The number of times that the next micro-batch is run."""
        ...

    def process(self, work: Work, batch: MicroBatch, global_stores: Mapping[str, Any]) -> list[Output]: ...

    def stores(self, work: Work) -> Iterator[tuple[str, Any]]: ...

    def oldest(self, store: str, partition: int) -> int:
        """The time limit of a store: windows that begin then, or sessions that end then, are too old for it."""
        ...


# ---- how the input is cut ----

Cuts = Callable[["Application", Sequence[Json], "Random"], None]
"""cuts(application, input, chance) sends the input and runs micro-batches until nothing is left to read"""


def record_by_record(application: Application, given: Sequence[Json], chance: Random) -> None:
    """All records are processed before the next one arrives."""
    for at, happening in enumerate(given):
        application.at = at
        application.happens(happening)
        application.run_to_end()


def in_rounds(count: int) -> Cuts:
    """Gives the input in this number of parts, as `process_available` gets it. A step of the clock ends a part."""

    def cuts(application: Application, given: Sequence[Json], chance: Random) -> None:
        size = -(-len(given) // count)
        for at, happening in enumerate(given):
            application.at = at
            if "advance_ms" in happening:
                application.run_to_end()
            application.happens(happening)
            if "advance_ms" in happening or at % size == size - 1:
                application.run_to_end()
        application.run_to_end()

    return cuts


def at_random(application: Application, given: Sequence[Json], chance: Random) -> None:
    """Runs micro-batches as the queries of `start` do: any of them at any time, with any number of records."""
    for at, happening in enumerate(given):
        application.at = at
        application.happens(happening)
        while chance.random() < 0.3:
            application.run(chance.choice(application.parts), lambda waiting: chance.randint(0, waiting))
    application.run_to_end()


@dataclass(slots=True)
class _Result:
    """The result of a micro-batch: records of each topic in order, the records that witnesses saw, the number of
    dropped records. Or an error, and then nothing else."""

    made: list[Output] = field(default_factory=list)
    error: str | None = None
    seen: Json = field(default_factory=dict)
    dropped: int = 0

    @classmethod
    def of(cls, run: Callable[[], list[Output]]) -> _Result:
        with Dropped() as dropped:
            try:
                made = run()
            except StreamsError as error:
                return cls(error=str(error))
        return cls(sorted(made, key=lambda output: output.topic), dropped=dropped.count)


Happening = Json | tuple[int, Mapping[Place, int]]
"""a record of the input or a step of the clock; or a micro-batch: the sub-topology, and where it ends"""


def as_it_was(script: Sequence[Happening]) -> Cuts:
    """Repeats the input and the micro-batches of another run."""

    def cuts(application: Application, given: Sequence[Json], chance: Random) -> None:
        by_number = {part.number: part for part in application.parts}
        for happening in script:
            if isinstance(happening, tuple):
                number, ends = happening
                application.run_to(by_number[number], ends)
            else:
                application.at = given.index(happening)
                application.happens(happening)

    return cuts


# ---- the application ----


class Application:
    """A topology on topics in memory. `partitions` is the number of partitions of the topics of its input. With
    `transactions` the output of a micro-batch ends with a control record in each partition."""

    def __init__(
        self,
        interpreter: Interpreter,
        topology: Topology,
        partitions: int,
        sides: Sequence[Side],
        transactions: bool = False,
    ) -> None:
        self.config = StreamsConfig(interpreter.settings)
        everything = cut(topology, self.config.application_id)
        self.parts = [part for part in everything if not part.is_global]
        read = {topic for part in everything for topic in part.reads}
        internal = {f"{self.config.application_id}-{topic}" for topic in topology.processors.internal_topics}
        self.counts = dict.fromkeys(read - internal, partitions) | dict.fromkeys(
            interpreter.written.keys() - read, partitions
        )
        self.counts |= partitions_of_internal_topics(topology, everything, self.config.application_id, self.counts)
        #: The records of each partition by their offsets; None for the end of a transaction.
        self.logs: dict[Place, list[RawRecord | None]] = {
            (topic, number): [] for topic, count in self.counts.items() for number in range(count)
        }
        self.written: dict[str, list[Record]] = {}
        self.works = {
            part.number: Work.of(topology, part.number, self.config, dict(self.counts)) for part in self.parts
        }
        self.now_ms = 0
        self.at = 0
        #: The events in the order of their processing, if there is one sub-topology.
        self.taken: list[Json] = []
        self._interpreter = interpreter
        self._sides = sides
        self._transactions = transactions
        self._happened: dict[tuple[str, int, int], Json] = {}
        self._known: set[tuple[str, int, int]] = set()  # the records in the global tables
        self._positions: dict[tuple[int, Place], int] = {}
        self._versions = dict.fromkeys(self.works, 0)
        self._global_topics = [topic for part in everything if part.is_global for topic in part.reads]
        self._globals = [GlobalTables(Work.of(topology, 0, self.config, {})) for _ in sides]
        self._ticking = {part.number for part in self.parts if asks_for_the_clock(self.works[part.number])}
        self.dropped = 0
        self._tick()

    # Input

    def happens(self, happening: Json) -> None:
        """Processes a record of the input, or a step of the clock."""
        if "advance_ms" in happening:
            self.now_ms += happening["advance_ms"]
            self.taken.append(happening)
            self._tick()
        else:
            topic, record = piped(happening)
            self._happened[self._append(topic, None, record)] = happening

    def _write(self, output: Output) -> tuple[str, int, int]:
        record = Record(output.key, output.value, output.timestamp, output.headers)
        self.written.setdefault(output.topic, []).append(record)
        return self._append(output.topic, output.partition, record)

    def _append(self, topic: str, partition: int | None, record: Record) -> tuple[str, int, int]:
        """Appends a record. Returns its topic, its partition and its offset."""
        count = self.counts.setdefault(topic, 1)
        if partition is None:
            partition = 0 if record.key is None else partition_of_key(record.key, count)
        log = self.logs.setdefault((topic, partition), [])
        log.append(RawRecord(topic, len(log), record.key, record.value, record.timestamp, record.headers, partition))
        return topic, partition, len(log) - 1

    # Micro-batches

    def _tick(self) -> None:
        """Runs micro-batches without records for queries that use the clock."""
        for part in self.parts:
            if part.number in self._ticking:
                self.run(part, lambda waiting: 0)

    def run_to_end(self) -> None:
        """Runs micro-batches until nothing is left to read."""
        ordered, circle = in_order(self.parts)
        while sum([self.run(part) for part in ordered]) and circle:
            pass

    def run(self, part: SubTopology, take: Callable[[int], int] = lambda waiting: waiting) -> int:
        """Runs a micro-batch of a sub-topology. `take` maps the number of waiting records of a partition to the number
        that is taken. Returns the number of its records."""
        starts = {
            place: self._positions.get((part.number, place), 0) for place in sorted(self.logs) if part.takes(place[0])
        }
        return self.run_to(
            part, {place: start + take(len(self.logs[place]) - start) for place, start in starts.items()}
        )

    def run_to(self, part: SubTopology, ends: Mapping[Place, int]) -> int:
        """Runs a micro-batch of a sub-topology that ends at these offsets."""
        found: dict[int, list[RawRecord]] = {}
        for place, end in ends.items():
            start = self._positions.get((part.number, place), 0)
            self._positions[part.number, place] = end
            found.setdefault(place[1], []).extend(
                record for record in self.logs[place][start:end] if record is not None
            )
        count = sum(map(len, found.values()))
        is_ticking = part.number in self._ticking
        if not count and not is_ticking:
            return 0
        version = self._versions[part.number]
        self._versions[part.number] += 1
        self._read_global_topics()
        outputs = []
        for partition in range(tasks_of(part, self.counts)) if is_ticking else sorted(found):
            records = found.get(partition, [])
            if records or is_ticking:
                outputs += self._process(self.works[part.number], MicroBatch(version, partition, records, self.now_ms))
        written = {self._write(output)[:2] for output in outputs}
        for place in written if self._transactions else ():
            self.logs[place].append(None)
        return count

    def _process(self, work: Work, batch: MicroBatch) -> list[Output]:
        """Returns the output of both sides. Raises an error if both end with it."""
        seen = self._interpreter.seen
        results: list[_Result] = []
        for side, tables in zip(self._sides, self._globals, strict=True):
            for _ in range(side.attempts()):
                before = {name: len(items) for name, items in seen.items()}
                result = _Result.of(lambda: side.process(work, batch, tables.stores))  # noqa: B023
                if result.error is None:
                    result.seen = {name: items[before[name] :] for name, items in seen.items()}
                for name, items in seen.items():
                    del items[before[name] :]
            results.append(result)
        if any(result != results[0] for result in results):
            shown = "\n".join(map(str, results))
            raise DifferentSidesError(
                f"sub-topology {work.number}, partition {batch.partition}, micro-batch {batch.version} of "
                f"{batch.records}:\n{shown}",
                [result.made for result in results],
            )
        if results[0].error is not None:
            raise StreamsError(results[0].error)
        for name, items in results[0].seen.items():
            seen[name] += items
        self.dropped += results[0].dropped
        self.taken += [self._happened[where] for side in self._sides for where in side.order if where in self._happened]
        return results[0].made

    def _read_global_topics(self) -> None:
        places = self._global_places()
        self.taken += [
            self._happened[where]
            for topic, number, _, end in places
            for at in range(end)
            if (where := (topic, number, at)) not in self._known
        ]
        self._known.update((topic, number, at) for topic, number, _, end in places for at in range(end))
        for tables in self._globals:
            with Dropped() as dropped:
                tables.read_to(places, self._read)
        self.dropped += dropped.count

    def _global_places(self) -> list[tuple[str, int, int, int]]:
        return [(*place, 0, len(log)) for place, log in self.logs.items() if place[0] in self._global_topics]

    def _read(self, ranges: Mapping[Place, tuple[int, int]]) -> Iterable[RawRecord]:
        return [
            record
            for place, (start, end) in ranges.items()
            for record in self.logs[place][start:end]
            if record is not None
        ]

    # The results

    def check_changelogs(self) -> None:
        """Raises DifferentSidesError if the changelog topics would restore other stores."""
        stores = {
            name: (spec, number) for number, work in self.works.items() for name, spec in work.processors.stores.items()
        }
        logged = {
            name for work in self.works.values() for name in logged_stores(work.processors, used_stores(work), True)
        }
        found = []
        for side in self._sides:
            there: Changelogs = {}
            for (store, partition, key), (value, at) in side.changelogs.items():
                if store in logged and value is not None:
                    spec = stores[store][0]
                    time = -1 if spec.retention_ms is None else _time_of(spec.kind, key)
                    if spec.retention_ms is None or time > max(one.oldest(store, partition) for one in self._sides):
                        there[store, partition, key] = value, at
            found.append(there)
        if any(there != found[0] for there in found):
            raise DifferentSidesError("\n".join(["changelogs:", *(str(sorted(there.items())) for there in found)]))

    def stores(self) -> Json:
        """The contents of the stores that are tables. Raises DifferentSidesError where the sides differ."""
        self._read_global_topics()
        found: list[Json] = []
        for side, tables in zip(self._sides, self._globals, strict=True):
            kept: Json = {name: rows(store.all()) for name, store in tables.stores.items() if is_table(name)}
            for work in self.works.values():
                kept.update({name: [] for name in used_stores(work) if is_table(name)})
                for name, store in side.stores(work):
                    kept[name] += rows(store.all())
            found.append(kept)
        for other in found[1:]:
            if other != found[0]:
                raise DifferentSidesError(f"stores:\n{found[0]}\n{other}")
        return found[0]


def outcome(
    description: Json,
    cuts: Cuts,
    sides: Sequence[Side],
    *,
    partitions: int = 1,
    chance: Random | None = None,
    transactions: bool = False,
) -> Json:
    """Runs a topology. Returns the same parts as the test driver's outcome."""
    interpreter = Interpreter(description)
    found: Json = {}
    try:
        topology = interpreter.topology()
        found["describe"] = shown_description(topology)
        application = Application(interpreter, topology, partitions, sides, transactions)
    except StreamsError as error:
        return found | {"error": failure("build", -1, error)}
    try:
        cuts(application, description["input"], chance or Random(0))
    except StreamsError as error:
        found["error"] = failure("input", application.at, error)
    found["output"] = {
        topic: interpreter.read(topic, application.written.get(topic, ())) for topic in interpreter.written
    }
    found["seen"] = interpreter.seen
    if "error" not in found:
        found["stores"] = application.stores()
        application.check_changelogs()
    found["dropped"] = application.dropped
    found["taken"] = application.taken
    return found


def used_stores(work: Work) -> list[str]:
    """The stores that belong to the sub-topology itself."""
    return [
        name
        for name in work.processors.stores
        if name not in work.processors.global_stores and any(_uses(work, node, name) for node in work.names)
    ]


def _store_of(topic: str) -> str:
    """The store of a changelog topic."""
    return topic.removeprefix("judge-").removesuffix("-changelog")


def _time_of(kind: str, key: bytes) -> int:
    """The start of the window, or the end of the session, in the key of a changelog record."""
    return int.from_bytes(key[-12:-4] if kind == "window" else key[-16:-8], "big", signed=True)


def _uses(work: Work, node: str, store: str) -> bool:
    return store in getattr(work.processors.nodes[node], "stores", ())


def asks_for_the_clock(work: Work) -> bool:
    """True if a processor schedules punctuations on wall-clock time."""
    shared: dict[str, Any] = dict.fromkeys(work.processors.global_stores)
    return PartitionTask(work, 0, cast("Any", _NoTables()), 0, shared).asks_for_the_clock


class _NoTables:
    """A state file that is never read."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Dropped:
    """Counts the records that a micro-batch reports as dropped."""

    def __init__(self) -> None:
        self.count = 0
        self._handler = _Handler()

    def __enter__(self) -> Dropped:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._handler)
        self.count = self._handler.count


class _Handler(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "dropped" in record.msg:
            self.count += (
                record.args[0]
                if record.args and isinstance(record.args, tuple) and isinstance(record.args[0], int)
                else 1
            )


_LOGGERS = (
    "jesenska.pipeline.streams.engine.task",
    "jesenska.pipeline.streams_on_spark.tasks.partition_task",
    "jesenska.pipeline.streams_on_spark.direct.direct_path",
    "jesenska.pipeline.streams_on_spark.columns.columns_path",
)


# ---- state files ----


class StateFiles:
    """Micro-batches over state files below `directory`, as Spark's tasks process them: as columns, on the direct path
    or by the engine, one of the sub-topology's ways by chance. `again` is the number of times that a micro-batch is
    repeated, as after a crash, possibly in another way."""

    def __init__(self, directory: Path, chance: Random, *, again: float = 0.2) -> None:
        self._directory = directory
        self._chance = chance
        self._again = again
        self._found: dict[int, list[Way]] = {}
        self.order: list[tuple[str, int, int]] = []
        self.changelogs: Changelogs = {}
        #: How many micro-batches went by each way.
        self.ways: Counter[str] = Counter()

    def attempts(self) -> int:
        return 2 if self._chance.random() < self._again else 1

    def process(self, work: Work, batch: MicroBatch, global_stores: Mapping[str, Any]) -> list[Output]:
        made = self._process(work, batch, global_stores)
        names = logged_stores(work.processors, used_stores(work), True)
        for output in changes(work, names, self._directory / str(work.number), batch.partition) if names else ():
            assert output.partition == batch.partition and output.key is not None
            self.changelogs[_store_of(output.topic), batch.partition, output.key] = output.value, output.timestamp
        return made

    def oldest(self, store: str, partition: int) -> int:
        return -1  # no window is written that is too old

    def _process(self, work: Work, batch: MicroBatch, global_stores: Mapping[str, Any]) -> list[Output]:
        directory = self._directory / str(work.number)
        ways = self._ways_of(work) if batch.records else []
        for way in ways[self._chance.choice((0, 0, 0, 1, 2)) :]:
            try:
                made = way.run(source_rows(batch.records), batch.partition, batch.version, directory)
            except OtherWayError:
                continue
            self.ways[type(way).__name__] += 1
            return [output for rows in made for output in outputs_of(rows)]
        self.ways["engine"] += 1
        return process(work, batch.partition, batch.version, batch.records, directory, batch.now_ms, global_stores)

    def _ways_of(self, work: Work) -> list[Way]:
        """The ways without the engine, in order of preference."""
        if work.number not in self._found:
            self._found[work.number] = ways_of(work)[0]
        return self._found[work.number]

    def stores(self, work: Work) -> Iterator[tuple[str, Any]]:
        for name in used_stores(work):
            if is_table(name):
                for store in parts_of(
                    work.processors.stores[name], work.plan, work.config, self._directory / str(work.number)
                ):
                    yield name, store


def outputs_of(rows: Any) -> Iterator[Output]:
    """The records in rows for the sink."""
    for row in rows.to_pylist():
        headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
        at = round(row["timestamp"].timestamp() * 1000)
        yield Output(row["topic"], row["partition"], row["key"], row["value"], at, headers)


# ---- kept tasks ----


class KeptTasks:
    """A task of the engine for each partition, which lives as long as the application, with its stores in memory."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[int, int], _KeptTask] = {}
        self.order: list[tuple[str, int, int]] = []
        self.changelogs: Changelogs = {}

    def attempts(self) -> int:
        return 1

    def oldest(self, store: str, partition: int) -> int:
        stores = (task.task.stores for (_, number), task in self._tasks.items() if number == partition)
        kept = next(found[store] for found in stores if store in found)
        return int(kept._observed_ms - kept._retention_ms)

    def process(self, work: Work, batch: MicroBatch, global_stores: Mapping[str, Any]) -> list[Output]:
        task = self._tasks.get((work.number, batch.partition))
        if task is None:
            task = self._tasks[work.number, batch.partition] = _KeptTask(work, batch, global_stores)
        made = task.process(batch)
        self.order = task.order
        for topic, record in task.logged():
            self.changelogs[_store_of(topic), batch.partition, record.key] = record.value, record.timestamp
        return made

    def stores(self, work: Work) -> Iterator[tuple[str, Any]]:
        for (number, _), task in sorted(self._tasks.items()):
            if number == work.number:
                for name, store in task.task.stores.items():
                    if is_table(name):
                        if hasattr(store, "_kept_for_emission"):
                            # A caller of the store does not get windows that wait for their removal.
                            store._kept_for_emission = False
                        yield name, store


class _Told(Task):
    """A task that records which records it takes. A record that it drops at once is recorded when it is read."""

    def __init__(self, order: list[tuple[str, int, int]], *arguments: Any) -> None:
        self._order = order
        super().__init__(*arguments)

    def _process(self, read: ReadRecord) -> None:
        self._order.append((read.metadata.topic, read.metadata.partition, read.metadata.offset))
        super()._process(read)

    def _read(self, source: SourceNode, raw: RawRecord, partition_time_ms: int) -> ReadRecord | None:
        read = super()._read(source, raw, partition_time_ms)
        if read is None:
            self._order.append((raw.topic, raw.partition, raw.offset))
        return read


class _KeptTask:
    def __init__(self, work: Work, batch: MicroBatch, global_stores: Mapping[str, Any]) -> None:
        self._made: list[Output] = []
        self.order: list[tuple[str, int, int]] = []
        # For the stores that it makes.
        self._driver = driver = TopologyTestDriver(Topology.of_plan(work.plan), work.config)
        self.task = _Told(
            self.order,
            work.processors,
            list(work.names),
            work.config,
            self._collect,
            driver._make_store,
            dict(global_stores),
            batch.now_ms,
            f"{work.number}_{batch.partition}",
        )

    def _collect(self, topic: str, record: Record) -> None:
        self._made.append(Output(topic, None, record.key, record.value, record.timestamp, record.headers))

    def logged(self) -> list[tuple[str, Record]]:
        """The records written to changelog topics since the last call."""
        logged, self._driver._produced = self._driver._produced, []
        return logged

    def process(self, batch: MicroBatch) -> list[Output]:
        self._made = []
        self.order.clear()
        self.task.now_ms = batch.now_ms
        for record in sorted(batch.records, key=lambda record: (record.topic, record.offset)):
            self.task.enqueue(record)
        while self.task.has_records():
            self.task.process_next()
        self.task.punctuate_wall_clock(batch.now_ms)
        return self._made
