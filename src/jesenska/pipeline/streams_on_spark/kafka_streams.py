"""KafkaStreams: a topology that runs on Spark.

    with KafkaStreams(topology, {"application.id": "shop", "bootstrap.servers": "127.0.0.1:9092"}) as streams:
        streams.start()                     # runs until `close`
        streams.wait()

    streams.process_available()             # or: returns when all present records have been processed

Each sub-topology is one streaming query of Spark:

    topics -> source `jesenska` -> (rows of a partition into one task) -> the engine's processors -> sink `jesenska`
                                                                            |
                                                                     state file of the partition

Sub-topologies exchange records only through topics. In foreachBatch, each micro-batch is processed by the topology's
processors. Its state is stored with the micro-batch's number, so a repeated micro-batch has the same result
(state_file.py). With at_least_once, the tasks write the output with the sink, and a repeated micro-batch writes its
output again. With exactly_once_v2, the output of a micro-batch and its number are written in one transaction
(pipeline/exactly_once.py), and topics are read with read_committed.

    <state.dir>/<application.id>/topology         the topology to which the state belongs
                                 id               the unique id of the state
                                 lock             locked while the application runs
                                 <n>/checkpoint   Spark's checkpoint of sub-topology n
                                 <n>/stores       the state files, one for each partition

States, as in Kafka Streams:

    CREATED -> REBALANCING -> RUNNING -> PENDING_SHUTDOWN -> NOT_RUNNING
                         \\-> PENDING_ERROR -> ERROR
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.connector.cluster_thread import connect
from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark import application_topics
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.changelogs import topics_of
from jesenska.pipeline.streams_on_spark.cutting import cut, in_order, partitions_of_internal_topics, tasks_of
from jesenska.pipeline.streams_on_spark.queries.http_queries import HttpQueries, http_security
from jesenska.pipeline.streams_on_spark.queries.interactive_queries import parts_of, read_only_store
from jesenska.pipeline.streams_on_spark.queries.query import SubTopologyQuery
from jesenska.pipeline.streams_on_spark.queries.restoration import restore, was_begun_without_changelogs
from jesenska.pipeline.streams_on_spark.stores.state_directory import StateDirectory
from jesenska.pipeline.streams_on_spark.strictness import refuse_what_may_differ
from jesenska.pipeline.streams_on_spark.tasks.global_tables import GlobalTables
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2


class State(Enum):
    """The state of the application, with Kafka Streams' names."""

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
    """Runs `topology` on Spark with the settings of `config`. `spark` is the Spark session to use. Without it the
    running session is used, or a new session on this machine. `max_offsets_per_trigger` limits the offsets that one
    micro-batch of a sub-topology reads; None means no limit. A task has all records of its partitions in memory.

    `strict` refuses topologies whose results may differ from Kafka Streams (strictness.py). With `with_logging`,
    stores have changelog topics (changelogs.py), from which a lost state is restored. This is the default, unless the
    existing state was made without changelog topics.

    Raises SettingError if application.id or bootstrap.servers is missing, and StreamsError if `strict` refuses the
    topology."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | StreamsConfig,
        *,
        spark: SparkSession | None = None,
        max_offsets_per_trigger: int | None = 500_000,
        strict: bool = False,
        with_logging: bool | None = None,
    ) -> None:
        self.topology = Topology.expect(topology, "KafkaStreams")
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        for name in ("application.id", "bootstrap.servers"):
            if not self.config[name]:
                raise SettingError(f"{name} is not set: it is needed to run on Spark.")
        self.config.check_names(topology.internal_names())
        self._spark = spark
        parts = tuple(cut(topology, self.config.application_id))
        self._application = Application(
            topology, self.config, parts, max_offsets_per_trigger, with_logging is not False
        )
        self._with_logging = with_logging
        if strict:
            refuse_what_may_differ(self._application)
        self.directory = self._application.directory
        self._state = State.CREATED
        self._listener: StateListener | None = None
        self._handler: Callable[[StreamsError], None] | None = None
        self._failure: StreamsError | None = None
        self._queries: list[SubTopologyQuery] = []
        self._take_over: Callable[[], None] | None = None
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._watcher: threading.Thread | None = None
        self._state_directory = StateDirectory(self.directory)
        self._globals: GlobalTables | None = None
        self._http: HttpQueries | None = None

    def __repr__(self) -> str:
        return f"<KafkaStreams {self.config.application_id}: {self._state.name}, state in {self.directory}>"

    # The state of the application

    def state(self) -> State:
        return self._state

    def set_state_listener(self, listener: StateListener) -> None:
        """Sets a function `listener(new, old)`, which is called at each change of the application's state. Call this
        before the application starts."""
        self._must_be(State.CREATED, "a state listener is set")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[StreamsError], None]) -> None:
        """Sets a function `handler(error)`, which is called when the application has ended with an error. Call this
        before the application starts."""
        self._must_be(State.CREATED, "a handler is set")
        self._handler = handler

    def _must_be(self, wanted: State, what: str) -> None:
        if self._state is not wanted:
            raise StreamsError(
                f"{what} in the state {self._state.name}: this is possible only in the state {wanted.name}."
            )

    def _set(self, new: State) -> None:
        with self._lock:
            old, self._state = self._state, new
        if old is not new:
            logger.info(
                "The application %s changes its state from %s to %s.", self.config.application_id, old.name, new.name
            )
            if self._listener is not None:
                self._listener(new, old)

    # Running

    def start(self) -> None:
        """Starts the queries and returns. Raises StreamsError if the application cannot run; then no query was
        started."""
        self._must_be(State.CREATED, "start was called")
        self._set(State.REBALANCING)
        with self._ends_with_error():
            self._prepare()
            self._take_over_once()
            for query in self._queries:
                query.start(continuous=True)
        self._set(State.RUNNING)
        self._watcher = threading.Thread(target=self._watch, name=f"streams {self.config.application_id}", daemon=True)
        self._watcher.start()

    def process_available(self) -> None:
        """Processes all records that are in the topics now, and the records that result from them, and returns. The
        next call, and the next run of the application, continue from there."""
        self._prepare_once()
        self._must_be(State.RUNNING, "process_available was called")
        if self._watcher is not None:
            raise StreamsError(
                "process_available was called after start, which already processes all records: use only one of "
                "the two."
            )
        with self._ends_with_error():
            self._take_over_once()
            ordered, circle = in_order([query.part for query in self._queries])
            by_number = {query.part.number: query for query in self._queries}
            while True:
                read = sum([by_number[part.number].run_to_end() for part in ordered])
                if not circle or not read:
                    return

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the application has ended. Returns False if it has not ended after `timeout_seconds`. Raises the
        error with which the application ended, if there is one."""
        ended = self._ended.wait(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return ended

    def close(self, timeout_seconds: float = 60.0) -> bool:
        """Stops the queries. Returns False if they have not stopped after `timeout_seconds`."""
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

    def clean_up(self) -> bool:
        """Removes the application's state below state.dir. This method can be called before the application starts and
        after it has ended. Returns True if there was state. If the application is started again, its state is restored
        from changelog topics. To start from the beginning, use kafka-streams-application-reset, which also deletes
        these topics."""
        if self._state not in (State.CREATED, State.NOT_RUNNING, State.ERROR):
            raise StreamsError(f"clean_up was called in the state {self._state.name}: close the application first.")
        return self._state_directory.remove()

    def explain(self) -> str:
        """Returns a text about each sub-topology: its input, the path on which its records are processed, the reason
        for this path, and its output. Asks the brokers for topics, creates the internal topics, and starts Spark."""
        self._prepare_once()
        return "".join(query.explain() for query in self._queries)

    # Interactive queries

    def store(self, name: str, *, timestamped: bool = False) -> Any:
        """Returns a read-only store with the state after the last micro-batches, for interactive queries. If
        `timestamped`, its values are ValueAndTimestamp."""
        processors = self.topology.processors
        if name not in processors.stores:
            raise StreamsError(
                f"there is no store {name}: the topology has {', '.join(sorted(processors.stores)) or 'none'}."
            )
        spec = processors.stores[name]
        if name in processors.global_stores:
            return read_only_store(spec, lambda: iter([self._global_tables().stores[name]]), timestamped)
        part = next(part for part in self._application.parts if name in part.stores)
        directory = self.directory / str(part.number) / "stores"
        return read_only_store(spec, lambda: parts_of(spec, self.topology.plan, self.config, directory), timestamped)

    def _global_tables(self) -> GlobalTables:
        """Returns the global stores, updated with all records that their topics have now."""
        from jesenska.pipeline.streams_on_spark.queries.spark_task import read_ranges

        with self._lock:
            source, topics = self._application.global_source(), self._application.global_topics()
            connection = connect(source.client)
            if self._globals is None:
                self._globals = GlobalTables(Work.of(self.topology, 0, self.config, {}))
            places = application_topics.bounds(connection, topics, application_topics.partitions_of_topics(connection))
            self._globals.read_to(places, partial(read_ranges, source))
            return self._globals

    @property
    def application_server(self) -> str | None:
        """Returns the address host:port at which stores can be queried over HTTP while the application runs. Returns
        None if application.server is not set."""
        return None if self._http is None else self._http.address

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

    def _let_go(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None
        self._state_directory.let_go()

    def _stop_queries(self) -> None:
        for query in self._queries:
            query.stop()

    # Before the queries start

    def _prepare_once(self) -> None:
        """Prepares the queries before the first call that needs them. Does not start them."""
        if self._state is State.CREATED:
            self._set(State.REBALANCING)
            with self._ends_with_error():
                self._prepare()
            self._set(State.RUNNING)

    def _prepare(self) -> None:
        from jesenska.pipeline.spark.session import SHORT_RUN, session

        connection = connect(
            source_options({**self._application.consumer_options(), "subscribe": "any"}, streaming=True).client
        )
        counts = there = application_topics.partitions_of_topics(connection)
        internal = partitions_of_internal_topics(
            self.topology, self._application.parts, self.config.application_id, counts
        )
        self._state_directory.take_hold()
        self._state_directory.check(self.topology.describe(), len(self._application.parts))
        if self._with_logging is None:
            self._application = replace(
                self._application, with_logging=not was_begun_without_changelogs(self.directory)
            )
        if self.config["application.server"]:
            self._http = HttpQueries(self.config["application.server"], _Queried(self), http_security(self.config))
        application_topics.make_internal_topics(
            connection, internal, counts, self.config["replication.factor"], self._application.prefixed("topic.")
        )
        counts = {**counts, **internal}
        # Nearly all work is done in Python, so a thorough compilation of Java code would cost more time than it saves.
        spark = self._spark or session(self.config.application_id, config=SHORT_RUN)
        self._queries = [
            SubTopologyQuery(self._application, part, spark, connection, counts)
            for part in self._application.parts
            if not part.is_global
        ]

        def take_over() -> None:
            begin = restore(self._application, connection, there, counts)
            for part in self._application.parts:
                logged = topics_of(self.topology.processors, self.config, self._application.logged_stores(part))
                replicas, configs = self.config["replication.factor"], self._application.prefixed("topic.")
                application_topics.make_changelog_topics(
                    connection, logged, tasks_of(part, counts), counts, replicas, configs
                )
            for query in self._queries:
                query.begin = begin

        self._take_over = take_over

    def _take_over_once(self) -> None:
        """Takes over the application's state, before the first query is started. From then on, other processes of the
        application are refused. `explain` does not call this, so it does not disturb a process that runs the
        application elsewhere."""
        take_over, self._take_over = self._take_over, None
        if take_over is not None:
            for query in self._queries:
                query.refuse_a_second_one()
            take_over()


class _Queried:
    """Gives the HTTP server for interactive queries access to the application."""

    def __init__(self, streams: KafkaStreams) -> None:
        self._streams = streams

    def queried_stores(self) -> Mapping[str, Store]:
        return self._streams.topology.processors.stores

    def key_serde_of(self, store: Store) -> Serde:
        return store.key or self._streams.config.key_serde

    def store(self, name: str) -> Any:
        return self._streams.store(name)

    def summary(self) -> dict[str, Any]:
        return {"application": self._streams.config.application_id, "state": self._streams.state().name}

    def description(self) -> str:
        return self._streams.topology.describe()
