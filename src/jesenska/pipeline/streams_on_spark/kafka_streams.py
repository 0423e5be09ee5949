"""KafkaStreams: a topology that runs on Spark.

    with KafkaStreams(topology, {"application.id": "shop", "bootstrap.servers": "127.0.0.1:9092"}) as streams:
        streams.start()                     # runs until `close`
        streams.wait()

    streams.process_available()             # or: until all that is there now has been processed

Each sub-topology is one streaming query of Spark:

    topics -> source `jesenska` -> (rows of a partition into one task) -> the engine's processors -> sink `jesenska`
                                                                            |
                                                                     state file of the partition

Sub-topologies meet in topics alone. A micro-batch of a query goes through the processors in foreachBatch; its state is
kept under the micro-batch's number, so one that Spark runs again gives the same (state_file.py). At least once: the
tasks write with the sink, and a micro-batch that is run again writes again. Exactly once: the output of a micro-batch
and its number are one transaction (pipeline/exactly_once.py), and internal topics are read committed.

    <state.dir>/<application.id>/topology         what the state belongs to
                                 id               a number that no other state has
                                 lock             held while the application runs
                                 <n>/checkpoint   Spark's, of sub-topology n
                                 <n>/stores       the state files, one for each partition

States, as in Kafka Streams:

    CREATED -> REBALANCING -> RUNNING -> PENDING_SHUTDOWN -> NOT_RUNNING
                         \\-> PENDING_ERROR -> ERROR
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.table import value_text
from jesenska.pipeline.cluster_thread import ClusterThread, connect
from jesenska.pipeline.options import SourceOptions, sink_options, source_options
from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark import application_topics
from jesenska.pipeline.streams_on_spark.cutting import SubTopology, cut, in_order, partitions_of_internal_topics, tasks_of
from jesenska.pipeline.streams_on_spark.direct_path import DirectPath, NotDirectError
from jesenska.pipeline.streams_on_spark.global_tables import GlobalTables
from jesenska.pipeline.streams_on_spark.interactive_queries import parts_of, read_only_store
from jesenska.pipeline.streams_on_spark.partition_task import PartitionTask, Work
from jesenska.pipeline.streams_on_spark.state_file import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jesenska.pipeline.streams_on_spark.spark_task import GlobalEnds, Program

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
EXACTLY_ONCE = "exactly_once_v2"
#: Settings that go to the client of the source and the sink.
_CLIENT_SETTINGS = (
    "client.id",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)


class State(Enum):
    """What the application is doing."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def is_running_or_rebalancing(self) -> bool:
        return self in (State.RUNNING, State.REBALANCING)


StateListener = Callable[[State, State], None]
"""listener(new, old)"""


class KafkaStreams:
    """Runs `topology` with the settings of `config`. `spark` is the session to run in; without it the running one, or
    a new one on this machine. `max_offsets_per_trigger` is how much one micro-batch of a sub-topology reads at most; a
    task has the records of its partitions in memory.

    SettingError where application.id or bootstrap.servers is missing."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | StreamsConfig,
        *,
        spark: SparkSession | None = None,
        max_offsets_per_trigger: int = 500_000,
    ) -> None:
        self.topology = topology
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        for name in ("application.id", "bootstrap.servers"):
            if not self.config[name]:
                raise SettingError(f"{name} is not set: it is needed to run on Spark.")
        self._spark = spark
        self._max_offsets = max_offsets_per_trigger
        self.directory = Path(self.config["state.dir"]).absolute() / self.config.application_id
        self._parts = cut(topology, self.config.application_id)
        self._state = State.CREATED
        self._listener: StateListener | None = None
        self._handler: Callable[[StreamsError], None] | None = None
        self._failure: StreamsError | None = None
        self._queries: list[_Query] = []
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._watcher: threading.Thread | None = None
        self._held: int | None = None
        self._globals: GlobalTables | None = None

    # What the application is doing

    def state(self) -> State:
        return self._state

    def set_state_listener(self, listener: StateListener) -> None:
        """`listener(new, old)` is called at each change of the state. Set it before the application starts."""
        self._must_be(State.CREATED, "a state listener is set")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[StreamsError], None]) -> None:
        """`handler(error)` is called when the application has ended with an error. Set it before it starts."""
        self._must_be(State.CREATED, "a handler is set")
        self._handler = handler

    def _must_be(self, wanted: State, what: str) -> None:
        if self._state is not wanted:
            raise StreamsError(f"{what} in the state {self._state.name}: that is for {wanted.name} alone.")

    def _set(self, new: State) -> None:
        with self._lock:
            old, self._state = self._state, new
        if old is not new:
            logger.info("The application %s goes from %s to %s.", self.config.application_id, old.name, new.name)
            if self._listener is not None:
                self._listener(new, old)

    # Running

    def start(self) -> None:
        """Starts the queries and returns. StreamsError, before anything runs, where the application cannot run."""
        self._must_be(State.CREATED, "start was called")
        self._set(State.REBALANCING)
        with self._ends_with_error():
            self._prepare()
            for query in self._queries:
                query.start(continuous=True)
        self._set(State.RUNNING)
        self._watcher = threading.Thread(target=self._watch, name=f"streams {self.config.application_id}", daemon=True)
        self._watcher.start()

    def process_available(self) -> None:
        """Processes all that the topics have now, and what comes of it, and returns. The next call, and the next run
        of the application, go on from there."""
        self._prepare_once()
        self._must_be(State.RUNNING, "process_available was called")
        if self._watcher is not None:
            raise StreamsError("process_available was called while the application runs after start: use one of them.")
        with self._ends_with_error():
            ordered, circle = in_order([query.part for query in self._queries])
            by_number = {query.part.number: query for query in self._queries}
            while True:
                read = sum([by_number[part.number].run_to_end() for part in ordered])
                if not circle or not read:
                    return

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the application has ended; its error, if it ended with one. False if the time was over."""
        ended = self._ended.wait(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return ended

    def close(self, timeout_seconds: float = 60.0) -> bool:
        """Stops the queries. False if they did not stop in that time."""
        if self._state in (State.NOT_RUNNING, State.ERROR):
            return True
        self._set(State.PENDING_SHUTDOWN)
        self._closing.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(timeout_seconds)
            if self._watcher.is_alive():
                return False
        else:
            self._stop_queries()
            self._let_go()
        if self._state is State.PENDING_SHUTDOWN:
            self._set(State.NOT_RUNNING)
        self._ended.set()
        return True

    def explain(self) -> str:
        """How each sub-topology runs: what it reads, by which way its records go and why, what it writes. It asks the
        brokers for topics, makes the internal ones and needs Spark."""
        self._prepare_once()
        return "".join(query.explain() for query in self._queries)

    # Interactive queries

    def store(self, name: str, *, timestamped: bool = False) -> Any:
        """A store of the topology, to be asked for what the last micro-batches have left in it. `timestamped`: values
        are ValueAndTimestamp."""
        processors = self.topology.processors
        if name not in processors.stores:
            raise StreamsError(f"there is no store {name}: the topology has {', '.join(sorted(processors.stores)) or 'none'}.")
        spec = processors.stores[name]
        if name in processors.global_stores:
            return read_only_store(spec, lambda: iter([self._global_tables().stores[name]]), timestamped)
        part = next(part for part in self._parts if name in part.stores)
        directory = self.directory / str(part.number) / "stores"
        return read_only_store(spec, lambda: parts_of(spec, self.topology.plan, self.config, directory), timestamped)

    def _global_tables(self) -> GlobalTables:
        """The global stores, with all that their topics have now."""
        from jesenska.pipeline.streams_on_spark.spark_task import read_ranges

        with self._lock:
            source, topics = self._global_source()
            connection = connect(source.client)
            if self._globals is None:
                self._globals = GlobalTables(Work.of(self.topology, 0, self.config, {}))
            places = application_topics.bounds(connection, topics, application_topics.partitions_of_topics(connection))
            self._globals.read_to(places, partial(read_ranges, source))
            return self._globals

    def _global_source(self) -> tuple[SourceOptions, list[str]]:
        """How global topics are read, and which they are."""
        topics = [topic for part in self._parts if part.is_global for topic in part.reads]
        options = {**self._consumer_options(), "subscribe": ",".join(topics), "includeHeaders": "true"}
        if self.config["processing.guarantee"] == EXACTLY_ONCE:
            options["kafka.isolation.level"] = "read_committed"
        return source_options(options, streaming=False), topics

    def __enter__(self) -> KafkaStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            for query in self._queries:
                error = query.failure()
                if error is not None:
                    self._fail(error)
                    return
                query.delete_what_was_read()
        self._stop_queries()
        self._let_go()

    @contextmanager
    def _ends_with_error(self) -> Iterator[None]:
        try:
            yield
        except JesenskaError as error:
            self._fail(error if isinstance(error, StreamsError) else StreamsError(str(error)))
            raise
        except BaseException as error:
            self._fail(StreamsError(f"the application has ended with {type(error).__name__}: {error}"))
            raise

    def _fail(self, error: StreamsError) -> None:
        self._failure = error
        self._set(State.PENDING_ERROR)
        self._stop_queries()
        self._let_go()
        self._set(State.ERROR)
        self._ended.set()
        if self._handler is not None:
            self._handler(error)

    def _stop_queries(self) -> None:
        for query in self._queries:
            query.stop()

    # Before anything runs

    def _prepare_once(self) -> None:
        """Before the first call that needs the queries, and does not start them for good."""
        if self._state is State.CREATED:
            self._set(State.REBALANCING)
            with self._ends_with_error():
                self._prepare()
            self._set(State.RUNNING)

    def _prepare(self) -> None:
        from jesenska.pipeline.spark import session

        connection = connect(source_options({**self._consumer_options(), "subscribe": "any"}, streaming=True).client)
        counts = application_topics.partitions_of_topics(connection)
        internal = partitions_of_internal_topics(self.topology, self._parts, self.config.application_id, counts)
        self._take_hold()
        self._check_state()
        application_topics.make_internal_topics(connection, internal, counts, self.config["replication.factor"], self._prefixed("topic."))
        counts = {**counts, **internal}
        spark = self._spark or session(self.config.application_id)
        self._queries = [_Query(self, part, spark, connection, counts) for part in self._parts if not part.is_global]

    def _name_of_query(self, part: SubTopology) -> str:
        """Under which the micro-batches of a query are told apart. State that is begun anew counts them anew, so its
        queries have other names."""
        return f"{self.config.application_id}-{part.number}-{(self.directory / 'id').read_text()}"

    def _prefixed(self, prefix: str) -> dict[str, str]:
        """The settings with that prefix, without it, as texts."""
        named = {name.removeprefix(prefix): value for name, value in self.config.values.items() if name.startswith(prefix)}
        return {name: value_text(value) or "" for name, value in named.items()}

    def _consumer_options(self) -> dict[str, str]:
        """Of the source."""
        return {**self._client_options(), **{f"kafka.{name}": value for name, value in self._prefixed("consumer.").items()}}

    def _producer_options(self) -> dict[str, str]:
        """Of the sink."""
        return {**self._client_options(), **{f"kafka.{name}": value for name, value in self._prefixed("producer.").items()}}

    def _client_options(self) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.config["bootstrap.servers"]}
        defaults = StreamsConfig()
        for name in _CLIENT_SETTINGS:
            if self.config[name] != defaults[name]:
                given[f"kafka.{name}"] = str(self.config[name])
        return given

    def _take_hold(self) -> None:
        """Two runs of an application on one state would spoil it."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._held = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._let_go()
            raise StreamsError(
                f"the application {self.config.application_id} runs already on {self.directory}: close the other run, or set another application.id."
            ) from None
        except OSError as error:
            raise StreamsError(f"the directory {self.directory} cannot be used ({error.strerror}): set state.dir to one that can be written.") from error

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _check_state(self) -> None:
        """The state belongs to a topology. With another one it would be read as what it is not."""
        file, described = self.directory / "topology", self.topology.describe()
        if not file.exists():
            if any((self.directory / str(part.number)).exists() for part in self._parts):
                raise StreamsError(f"{file} is missing, which says what the state belongs to: remove {self.directory} to begin anew.")
            for path, text in ((self.directory / "id", f"{system_random().getrandbits(64):016x}"), (file, described)):
                new = path.with_suffix(".new")
                new.write_text(text)
                new.rename(path)
        elif file.read_text() != described:
            raise StreamsError(
                f"the topology is not the one that made the state in {self.directory}: give the changed one another application.id, "
                "or remove that directory and the application's internal topics to begin anew."
            )


class _Query:
    """One sub-topology as a query."""

    def __init__(self, streams: KafkaStreams, part: SubTopology, spark: SparkSession, connection: ClusterThread, counts: Mapping[str, int]) -> None:
        self.part = part
        self._name = streams._name_of_query(part)
        self._spark = spark
        self._connection = connection
        self._counts = counts
        self._config = streams.config
        self._directory = streams.directory / str(part.number)
        self._consumer_options = streams._consumer_options()
        self._producer_options = streams._producer_options()
        self._topology = streams.topology
        self._exactly_once = self._config["processing.guarantee"] == EXACTLY_ONCE
        self._max_offsets = streams._max_offsets
        self._tasks = tasks_of(part, counts)
        self._internal = {f"{self._config.application_id}-{topic}" for topic in streams.topology.processors.internal_topics}
        self._program: Program = self._pickled(streams.topology)
        self._asks_for_the_clock = self._dry_run(streams.topology)
        self._globals = streams._global_source() if any(other.is_global for other in streams._parts) else None
        self._sink = sink_options(self._producer_options)
        self._failure: StreamsError | None = None
        self._query: StreamingQuery | None = None
        self._deleted: dict[TopicPartition, int] = {}

    def _pickled(self, topology: Topology) -> Program:
        from pyspark import cloudpickle

        from jesenska.pipeline.streams_on_spark.spark_task import Program

        try:
            pickled = cloudpickle.dumps((topology.plan, self._config))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise StreamsError(
                f"the topology cannot be sent to Spark's tasks, since something that a function of it uses cannot be pickled ({error}): "
                "make connections and locks within the function, or in a processor's init."
            ) from error
        return Program(pickled, self.part.number, tuple(sorted((topic, self._counts[topic]) for topic in self.part.writes if topic in self._counts)))

    def _dry_run(self, topology: Topology) -> bool:
        """Makes the processors once, here: what they raise is told before anything runs. Whether one asks for
        punctuations on wall-clock time."""
        work = Work.of(topology, self.part.number, self._config, dict(self._program.partitions))
        with TemporaryDirectory() as directory, StateFile(Path(directory) / "dry", 0) as file:
            globals_: dict[str, Any] = dict.fromkeys(work.processors.global_stores)
            task = PartitionTask(work, 0, file, 0, globals_)
            task.close()
            return task.asks_for_the_clock

    def explain(self) -> str:
        """How the sub-topology runs, in a few lines."""
        part, kind = self.part, "exactly once" if self._exactly_once else "at least once"
        reads = [*part.reads, *([f"topics that match {part.pattern}"] if part.pattern is not None else [])]
        writes = [*part.writes, *(["topics that a function names"] if part.extracts else [])]
        return (
            f"Sub-topology: {part.number}\n"
            f"    reads   {', '.join(reads)}: {self._tasks} partitions{'' if self._is_aligned else ', brought together by a shuffle'}\n"
            f"    steps   {self._path}\n"
            f"    stores  {', '.join(part.stores) or 'none'}\n"
            f"    writes  {', '.join(writes) or 'nothing'}, {kind}\n"
        )

    @property
    def _path(self) -> str:
        """By which way its records go."""
        work = Work.of(self._topology, self.part.number, self._config, {})
        try:
            DirectPath(work)
        except NotDirectError as reason:
            return f"the engine, record by record, since {reason}"
        return "the direct path, a Python function for each step"

    @property
    def _is_aligned(self) -> bool:
        """Whether the source gives all rows of a partition number to one task."""
        return len(self.part.reads) == 1 and self.part.pattern is None and not self._asks_for_the_clock

    def _check_stores(self) -> None:
        """What the checkpoint counts as done has left its state."""
        commits, stores = self._directory / "checkpoint" / "commits", self._directory / "stores"
        if self.part.stores and not stores.exists() and commits.exists() and any(commits.iterdir()):
            raise StreamsError(
                f"the state in {stores} is gone, but the checkpoint beside it stands: put it back, or remove {self._directory.parent} "
                "and the application's internal topics to begin anew."
            )

    # The query

    def start(self, *, continuous: bool) -> None:
        self._check_stores()
        rows = self._rows()
        writer = rows.writeStream.queryName(f"{self._config.application_id}-{self.part.number}").foreachBatch(self._process)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        if continuous:
            writer = writer.trigger(processingTime=f"{self._config['commit.interval.ms']} milliseconds")
        else:
            writer = writer.trigger(availableNow=True)
        self._failure = None
        self._query = writer.start()

    def run_to_end(self) -> int:
        """Processes what is there; how many records that was."""
        from pyspark.errors import StreamingQueryException

        self.start(continuous=False)
        query = self._query
        assert query is not None
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise self._worded(error) from error
        read = sum(progress.numInputRows for progress in query.recentProgress)
        self.delete_what_was_read()
        return read

    def stop(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # what Spark raises where the query does not end in time
                logger.warning("The query of sub-topology %d did not stop in time: %s", self.part.number, error)

    def failure(self) -> StreamsError | None:
        """Why the query has ended; None while it runs."""
        query = self._query
        if query is None or query.isActive:
            return None
        error = query.exception()
        if error is None:
            return StreamsError(f"the query of sub-topology {self.part.number} was stopped from outside: stop the application with close().")
        return self._worded(error)

    def _worded(self, error: Exception) -> StreamsError:
        """The query's error as one sentence."""
        from jesenska.pipeline.streams_on_spark.spark_task import failed_in_a_task

        if self._failure is not None:
            return self._failure
        text = str(error)
        sentence = failed_in_a_task(text)
        return StreamsError(sentence if sentence is not None else f"the query of sub-topology {self.part.number} has failed: {text}")

    def _rows(self) -> DataFrame:
        reader = self._spark.readStream.format("jesenska").option("includeHeaders", "true")
        for name, value in self._source_options().items():
            reader = reader.option(name, value)
        rows = reader.load().select("key", "value", "topic", "partition", "offset", "timestamp", "headers")
        if not self._asks_for_the_clock:
            return rows
        ticks = self._spark.readStream.format("rate").option("rowsPerSecond", "1").load()
        return rows.unionByName(
            ticks.selectExpr(
                "cast(null as binary) as key", "cast(null as binary) as value", "cast(null as string) as topic", "0 as partition",
                "value as offset", "timestamp", "cast(null as array<struct<key: string, value: binary>>) as headers",
            )
        )  # fmt: skip

    def _source_options(self) -> dict[str, str]:
        part = self.part
        options = {
            **self._consumer_options,
            "startingOffsets": self._starts(),
            "maxOffsetsPerTrigger": str(self._max_offsets),
            "kafka.group.id": self._config.application_id,  # tools show the lag of the application there
        }
        if part.pattern is None:
            options["subscribe"] = ",".join(part.reads)
        else:
            options["subscribePattern"] = "|".join([part.pattern, *(topic.replace(".", r"\.") for topic in part.reads)])
        if self._exactly_once:
            options["kafka.isolation.level"] = "read_committed"
        return options

    def _starts(self) -> str:
        if not self.part.latest:
            return "earliest"
        topics = [topic for topic in self._counts if self.part.takes(topic)]
        return json.dumps({topic: {str(number): -1 if topic in self.part.latest else -2 for number in range(self._counts[topic])} for topic in topics})

    # A micro-batch, on the driver

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._process_batch(rows, batch_id)
        except JesenskaError as error:
            self._failure = error if isinstance(error, StreamsError) else StreamsError(str(error))
            raise

    def _process_batch(self, rows: DataFrame, batch_id: int) -> None:
        from jesenska.pipeline.exactly_once import write_exactly_once
        from jesenska.pipeline.spark import quiet_about_pandas
        from jesenska.pipeline.streams_on_spark.spark_task import OUTPUT_SCHEMA, WRITTEN_SCHEMA, SparkTask

        placed = self._placed(rows)
        task = SparkTask(self._program, str(self._directory / "stores"), batch_id, None if self._exactly_once else self._sink, self._global_ends())
        with quiet_about_pandas():
            done = placed.mapInArrow(task, OUTPUT_SCHEMA if self._exactly_once else WRITTEN_SCHEMA)
        if self._exactly_once:
            write_exactly_once(done, batch_id, self._name, self._producer_options)
        else:
            done.collect()

    def _placed(self, rows: DataFrame) -> DataFrame:
        """The rows such that all of a partition are in one task."""
        if self._asks_for_the_clock:
            every = self._spark.range(self._tasks).selectExpr(
                "cast(null as binary) as key", "cast(null as binary) as value", "cast(null as string) as topic", "cast(id as int) as partition",
                "0L as offset", "cast(null as timestamp) as timestamp", "cast(null as array<struct<key: string, value: binary>>) as headers",
            )  # fmt: skip
            rows = rows.filter("topic is not null").unionByName(every)
        elif self._is_aligned:
            return rows
        cores = max(1, self._spark.sparkContext.defaultParallelism)
        return rows.repartition(min(self._tasks, 2 * cores), "partition")

    def _global_ends(self) -> GlobalEnds | None:
        from jesenska.pipeline.streams_on_spark.spark_task import GlobalEnds

        if self._globals is None:
            return None
        source, topics = self._globals
        return GlobalEnds(application_topics.bounds(self._connection, topics, self._counts), source)

    # Internal topics

    def delete_what_was_read(self) -> None:
        """Records of internal topics that no micro-batch will read again."""
        progress = None if self._query is None or not self._internal.intersection(self.part.reads) else self._query.lastProgress
        if progress is None:
            return
        before: dict[TopicPartition, int] = {}
        for source in progress.sources:
            for topic, partitions in _offsets(source.startOffset).items():
                if topic in self._internal:
                    for number, offset in partitions.items():
                        if number.isdigit() and offset > self._deleted.get(key := TopicPartition(topic, int(number)), 0):
                            before[key] = offset
        try:
            application_topics.delete_records(self._connection, before)
        except JesenskaError as error:
            logger.info("Records of internal topics could not be deleted now: %s", error)
        else:
            self._deleted.update(before)


def _offsets(text: str | None) -> dict[str, dict[str, Any]]:
    """The offsets of a progress: of our source, or of another one, which has none of topics."""
    found = json.loads(text) if text else None
    return {name: value for name, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
