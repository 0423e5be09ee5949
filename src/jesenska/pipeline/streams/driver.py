"""TopologyTestDriver: runs a topology in the test's own process, without Spark and without a broker.

    with TopologyTestDriver(topology, {"application.id": "shop"}) as driver:
        orders = driver.create_input_topic("orders", key=Serdes.string(), value=Serdes.json())
        counts = driver.create_output_topic("counts", key=Serdes.string(), value=Serdes.long())
        orders.pipe_input("anna", {"amount": 12}, timestamp=1_000)
        assert counts.read_key_value() == ("anna", 1)
        assert driver.get_key_value_store("large-orders").get("anna") == 1

It works like Kafka Streams' own TopologyTestDriver. Every topic has one partition, and one task runs all
sub-topologies. When `pipe_input` returns, the record and all records that result from it have been processed. A record
that is written to a topic which the topology reads (also an internal topic) is read immediately. There is no cache:
every update is forwarded. The test controls the time: it gives records their timestamps, and only
`advance_wall_clock_time` advances the wall clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from jesenska.pipeline.streams.durations import Duration, milliseconds
from jesenska.pipeline.streams.engine.joins.foreign_keys import SubscriptionStore
from jesenska.pipeline.streams.engine.joins.stream_joins import OuterJoinStore
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.engine.stores import ChangeLog, KeyValueStore, SessionStore, WindowStore
from jesenska.pipeline.streams.engine.suppression import SuppressBuffer
from jesenska.pipeline.streams.engine.task import Task
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.lowering import lower
from jesenska.pipeline.streams.plan import ForeignKeyJoin
from jesenska.pipeline.streams.processor_topology import SinkNode, SourceNode
from jesenska.pipeline.streams.records import Headers, KeyValue, Record, ValueAndTimestamp
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology, changelog_topic


class TopologyTestDriver(SaysOurName):
    """Runs `topology` in a test. `config` contains the settings of a Streams application, such as application.id; all
    settings are optional. `initial_wall_clock_time_ms` is the wall-clock time at the start."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | StreamsConfig | None = None,
        *,
        initial_wall_clock_time_ms: int = 0,
    ) -> None:
        self.topology = Topology.expect(topology, "TopologyTestDriver")
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.config.check_names(self.topology.internal_names())
        self.wall_clock_time_ms = initial_wall_clock_time_ms
        self._processors, defaults = lower(topology.plan)
        defaults.key, defaults.value = self.config.key_serde, self.config.value_serde
        self._outputs: dict[str, deque[Record]] = {}
        self._produced: list[tuple[str, Record]] = []
        self._offsets: dict[str, int] = {}
        self._closed = False
        names, global_names = self._split()
        shared: dict[str, Any] = {}
        self._global = self._task(global_names, shared, is_global=True)
        shared.update(self._global.stores)
        self._task_of_all = self._task(names, shared)

    def _split(self) -> tuple[list[str], list[str]]:
        """Returns two lists: the names of the nodes that the task runs, and the names of the nodes that fill global
        stores."""
        names: list[str] = []
        global_names: list[str] = []
        for group in self._processors.sub_topologies():
            (global_names if self._processors.is_global(group) else names).extend(group)
        order = list(self._processors.nodes)
        return sorted(names, key=order.index), global_names

    def _task(self, names: list[str], shared: dict[str, Any], is_global: bool = False) -> Task:
        return Task(
            self._processors,
            names,
            self.config,
            self._produce,
            self._make_store,
            shared,
            self.wall_clock_time_ms,
            "global" if is_global else "0_0",
            is_global,
        )

    # Topics

    def create_input_topic(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        start_timestamp: int = 0,
        auto_advance: Duration = 0,
    ) -> TestInputTopic:
        """Returns an input topic, to which the test writes records. The first record that is written without a
        timestamp gets `start_timestamp`. Each further record without a timestamp gets a timestamp that is
        `auto_advance` later."""
        return TestInputTopic(
            self,
            topic,
            key or self.config.key_serde,
            value or self.config.value_serde,
            start_timestamp,
            milliseconds("auto_advance", auto_advance),
        )

    def create_output_topic(
        self, topic: str, *, key: Serde | None = None, value: Serde | None = None
    ) -> TestOutputTopic:
        """Returns an output topic, from which the test reads records that the topology has written."""
        return TestOutputTopic(self, topic, key or self.config.key_serde, value or self.config.value_serde)

    def produced_topic_names(self) -> set[str]:
        """Returns the names of all topics to which the topology has written, including changelogs and internal
        topics."""
        return set(self._outputs)

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Writes a record of bytes to a topic that the topology reads, and processes it completely."""
        self._must_be_open()
        is_read = self._enqueue(topic, Record(key, value, timestamp, headers))
        if not is_read:
            raise StreamsError(
                f"the topology does not read the topic {topic}: pipe into "
                f"{', '.join(sorted(self._read_topics())) or 'none'}."
            )
        self._complete()

    def read_raw(self, topic: str) -> list[Record]:
        """Returns the records of a topic that have not been read yet, as bytes."""
        return list(self._outputs.pop(topic, ()))

    def advance_wall_clock_time(self, advance: Duration) -> None:
        """Advances the wall clock, and runs the punctuations that are due."""
        self._must_be_open()
        self.wall_clock_time_ms += milliseconds("the advance of the clock", advance)
        self._global.now_ms = self.wall_clock_time_ms
        self._task_of_all.punctuate_wall_clock(self.wall_clock_time_ms)
        self._complete()

    def _read_topics(self) -> Iterable[str]:
        for node in self._processors.nodes.values():
            if isinstance(node, SourceNode):
                yield from (self._task_of_all.decorated(topic) for topic in node.topics)
                if node.pattern is not None:
                    yield f"topics that match {node.pattern}"

    def _enqueue(self, topic: str, record: Record) -> bool:
        """Queues a record for the source nodes that read its topic. Returns False if no source node reads the
        topic."""
        by_task, by_global = self._task_of_all.source_of(topic) is not None, self._global.source_of(topic) is not None
        if not by_task and not by_global:
            return False
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        raw = RawRecord(topic, offset, record.key, record.value, record.timestamp, record.headers)
        if by_task:
            self._task_of_all.enqueue(raw)
        if by_global:
            self._global.process_at_once(raw)
        return True

    def _complete(self) -> None:
        """Processes queued records until the queue is empty. Records that a step writes to topics of the topology are
        queued after the step."""
        self._read_again()
        while self._task_of_all.has_records():
            self._task_of_all.process_next()
            self._read_again()

    def _read_again(self) -> None:
        produced, self._produced = self._produced, []
        for topic, record in produced:
            self._outputs.setdefault(topic, deque()).append(record)
            self._enqueue(topic, record)

    def _produce(self, topic: str, record: Record) -> None:
        self._produced.append((topic, record))

    # Stores

    def get_key_value_store(self, name: str) -> Any:
        """Returns the key-value store `name`. Its values are without timestamps."""
        return KeyValueView(self._store(name, KeyValueStore, "key-value"))

    def get_timestamped_key_value_store(self, name: str) -> KeyValueStore:
        """Returns the key-value store `name`, with values of the type ValueAndTimestamp."""
        store: KeyValueStore = self._store(name, KeyValueStore, "key-value")
        if not store.spec.timestamped:
            raise StreamsError(f"the store {name} has no timestamps: use get_key_value_store.")
        return store

    def get_window_store(self, name: str) -> Any:
        """Returns the window store `name`. Its values are without timestamps."""
        return WindowView(self._store(name, WindowStore, "window"))

    def get_timestamped_window_store(self, name: str) -> WindowStore:
        """Returns the window store `name`, with values of the type ValueAndTimestamp."""
        store: WindowStore = self._store(name, WindowStore, "window")
        if not store.spec.timestamped:
            raise StreamsError(f"the store {name} has no timestamps: use get_window_store.")
        return store

    def get_session_store(self, name: str) -> SessionStore:
        """Returns the session store `name`."""
        store: SessionStore = self._store(name, SessionStore, "session")
        return store

    def get_all_state_stores(self) -> dict[str, Any]:
        """Returns all stores of the topology, by name."""
        return {**self._global.stores, **self._task_of_all.stores}

    def _store(self, name: str, kind: type, what: str) -> Any:
        stores = self.get_all_state_stores()
        if name not in stores:
            raise StreamsError(f"there is no store {name}: the topology has {', '.join(sorted(stores)) or 'none'}.")
        if not isinstance(stores[name], kind):
            raise StreamsError(
                f"the store {name} is not a {what} store: ask for a {self._processors.stores[name].kind} store."
            )
        return stores[name]

    def _make_store(self, name: str, task: Task) -> Any:
        spec = self._processors.stores[name]
        topic = changelog_topic(self.config.application_id, name)
        key, value = task.key_serde(spec.key), task.value_serde(spec.value)
        log: ChangeLog | None = None
        if spec.logging and name not in self._processors.global_stores:

            def write(key: bytes, value: bytes | None, timestamp: int) -> None:
                self._produce(topic, Record(key, value, max(timestamp, 0)))

            log = write
        arguments = (spec, key, value, topic, log, lambda: task.timestamp, task.drop)
        match spec.kind:
            case "key-value":
                return KeyValueStore(*arguments)
            case "window":
                return WindowStore(*arguments)
            case "session":
                return SessionStore(*arguments)
            case "buffer":
                return SuppressBuffer(key, value, topic)
            case "outer-join":
                return OuterJoinStore(key)
            case "subscription":
                join = next(
                    node
                    for node in self.topology.plan
                    if isinstance(node, ForeignKeyJoin) and node.subscription_store is spec
                )
                return SubscriptionStore(task.key_serde(join.foreign_key_serde), task.key_serde(join.left_key))
        raise AssertionError(f"no store of the kind {spec.kind}")

    @property
    def dropped_records(self) -> int:
        """Returns the number of dropped records: late records, records with null keys, and records that could not be
        deserialized."""
        return self._task_of_all.dropped_records + self._global.dropped_records

    # End

    def close(self) -> None:
        """Closes the processors. The records in output topics can still be read."""
        if not self._closed:
            self._closed = True
            self._task_of_all.close()
            self._global.close()
            self._read_again()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _must_be_open(self) -> None:
        if self._closed:
            raise StreamsError("the driver is closed: make a new one.")

    def _sink_topics(self) -> set[str]:
        return {
            self._task_of_all.decorated(node.topic)
            for node in self._processors.nodes.values()
            if isinstance(node, SinkNode) and node.topic is not None
        }


class TestInputTopic(SaysOurName):
    """An input topic: the test writes records to it."""

    __test__ = False  # its name is Kafka's; pytest is not to collect it

    def __init__(
        self,
        driver: TopologyTestDriver,
        topic: str,
        key: Serde,
        value: Serde,
        start_timestamp: int,
        auto_advance_ms: int,
    ) -> None:
        self._driver = driver
        self.topic = topic
        self._key, self._value = key, value
        self._next_timestamp = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def pipe_input(
        self, key: Any = None, value: Any = None, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Writes one record, and processes it completely."""
        if timestamp is None:
            timestamp = self._next_timestamp
            self._next_timestamp += self._auto_advance_ms
        data = self._key.serialize(self.topic, key), self._value.serialize(self.topic, value)
        self._driver.pipe_raw(self.topic, *data, timestamp, headers)

    def pipe_value(self, value: Any, timestamp: int | None = None) -> None:
        """Writes one record without a key."""
        self.pipe_input(None, value, timestamp)

    def pipe_key_values(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for key, value in pairs:
            self.pipe_input(key, value)

    def pipe_values(self, values: Iterable[Any]) -> None:
        for value in values:
            self.pipe_value(value)

    def pipe_records(self, records: Iterable[Record]) -> None:
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)

    def pipe_raw(
        self, key: bytes | None, value: bytes | None, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Writes one record of bytes, for example one that the serde cannot read."""
        if timestamp is None:
            timestamp = self._next_timestamp
            self._next_timestamp += self._auto_advance_ms
        self._driver.pipe_raw(self.topic, key, value, timestamp, headers)

    def advance_time(self, advance: Duration) -> None:
        """Advances the timestamp of the next record that is written without a timestamp."""
        self._next_timestamp += milliseconds("the advance", advance) if isinstance(advance, int | timedelta) else 0


class TestOutputTopic(SaysOurName):
    """An output topic: the test reads records from it. Each record can be read once."""

    __test__ = False

    def __init__(self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde) -> None:
        self._driver = driver
        self.topic = topic
        self._key, self._value = key, value

    def read_record(self) -> Record:
        """Returns the next record. Raises StreamsError if all records have been read."""
        waiting = self._driver._outputs.get(self.topic)
        if not waiting:
            written = ", ".join(sorted(self._driver.produced_topic_names() | self._driver._sink_topics())) or "no topic"
            raise StreamsError(f"there is no record in {self.topic} to read: the topology writes to {written}.")
        record = waiting.popleft()
        return Record(
            self._key.deserialize(self.topic, record.key),
            self._value.deserialize(self.topic, record.value),
            record.timestamp,
            record.headers,
        )

    def read_value(self) -> Any:
        return self.read_record().value

    def read_key_value(self) -> KeyValue:
        record = self.read_record()
        return KeyValue(record.key, record.value)

    def read_records_to_list(self) -> list[Record]:
        """Returns all records that have not been read yet."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_values_to_list(self) -> list[Any]:
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[KeyValue]:
        return [KeyValue(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """Returns the last value of each key in the records that have not been read yet."""
        return {record.key: record.value for record in self.read_records_to_list()}

    @property
    def queue_size(self) -> int:
        """Returns the number of records that have not been read yet."""
        return len(self._driver._outputs.get(self.topic, ()))

    def is_empty(self) -> bool:
        return self.queue_size == 0


class KeyValueView:
    """A view of a key-value store for tests: values are without timestamps, even if the store has timestamps."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def get(self, key: Any) -> Any:
        return _plain(self._store, self._store.get(key))

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of the key. In a store with timestamps the timestamp is -1, as in Kafka Streams' driver."""
        self._store.put(
            key, ValueAndTimestamp(value, -1) if self._store.spec.timestamped and value is not None else value
        )

    def delete(self, key: Any) -> Any:
        return _plain(self._store, self._store.delete(key))

    def all(self) -> list[KeyValue]:
        return [KeyValue(key, _plain(self._store, value)) for key, value in self._store.all()]

    def range(self, first: Any = None, last: Any = None) -> list[KeyValue]:
        return [KeyValue(key, _plain(self._store, value)) for key, value in self._store.range(first, last)]

    def approximate_num_entries(self) -> int:
        return self._store.approximate_num_entries()


class WindowView:
    """A view of a window store for tests: values are without timestamps, even if the store has timestamps."""

    def __init__(self, store: WindowStore) -> None:
        self._store = store

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Returns the value in the window that begins at `time_from`. With `time_to`, returns pairs of start and value
        for all windows that begin between the two times."""
        found = self._store.fetch(key, time_from, time_to)
        if time_to is None:
            return _plain(self._store, found)
        return [(start, _plain(self._store, value)) for start, value in found]

    def fetch_all(self, time_from: int, time_to: int) -> list[KeyValue]:
        return [KeyValue(key, _plain(self._store, value)) for key, value in self._store.fetch_all(time_from, time_to)]

    def all(self) -> list[KeyValue]:
        return [KeyValue(key, _plain(self._store, value)) for key, value in self._store.all()]


def _plain(store: KeyValueStore | WindowStore, value: Any) -> Any:
    return value.value if store.spec.timestamped and value is not None else value
