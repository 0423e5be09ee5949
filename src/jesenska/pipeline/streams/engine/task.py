"""One task that runs sub-topologies. It has one partition of every topic, its stores, and its stream time.

A record is deserialized with the serdes of its source, gets its timestamp, and is forwarded through the processors
immediately. A record that reaches a sink is serialized with the sink's serdes and passed to `produce`. The task does
not read the clock: its caller passes the wall-clock time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.dsl.processing import Cancellable, Processor, PunctuationType
from jesenska.pipeline.streams.durations import Duration, milliseconds
from jesenska.pipeline.streams.engine.queues import (
    Punctuation,
    Punctuations,
    RawRecord,
    ReadRecord,
    TopicHeap,
    TopicQueue,
)
from jesenska.pipeline.streams.errors import ProcessorFailedError, StreamsError
from jesenska.pipeline.streams.handlers import (
    Decision,
    DeserializationFailure,
    Handler,
    ProcessingFailure,
    ProductionFailure,
)
from jesenska.pipeline.streams.locations import Location
from jesenska.pipeline.streams.processor_topology import ProcessorNode, ProcessorTopology, SinkNode, SourceNode
from jesenska.pipeline.streams.records import Record, RecordMetadata
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.timestamps import InputRecord, TimestampExtractor

logger = logging.getLogger(__name__)

Produce = Callable[[str, Record], None]
"""produce(topic, record), whose key and value are bytes"""


class Task:
    """A task that runs the nodes in `names`. `stores` are the task's own stores; `shared` are the global stores."""

    def __init__(
        self,
        topology: ProcessorTopology,
        names: list[str],
        config: StreamsConfig,
        produce: Produce,
        make_store: Callable[[str, Task], Any],
        shared: dict[str, Any],
        now_ms: int,
        task_id: str,
        is_global: bool = False,
    ) -> None:
        self.config = config
        self.task_id = task_id
        self.now_ms = now_ms
        self.stream_time_ms = -1
        self.timestamp = -1  # of the record that is being processed
        self.metadata: RecordMetadata | None = None
        self._raw: RawRecord | None = None  # the record that is being processed, as it was read
        self.dropped_records = 0
        self._topology = topology
        self._produce = produce
        self._is_global = is_global
        self._queues: dict[str, TopicQueue] = {}
        self._sources: dict[str, SourceNode | None] = {}
        self._heap = TopicHeap()
        self._stream_time, self._wall_clock = Punctuations(), Punctuations()
        self._children = {name: [child for child in topology.children(name) if child in names] for name in names}
        used = {
            store for name in names if isinstance(node := topology.nodes[name], ProcessorNode) for store in node.stores
        }
        self.stores: dict[str, Any] = {
            name: make_store(name, self) for name in topology.stores if name in used and name not in shared
        }
        self._visible = {**shared, **self.stores}
        self.processors: dict[str, Processor] = {}
        for name in names:
            node = topology.nodes[name]
            if isinstance(node, ProcessorNode):
                with _Failing(node.name, node.made_at, self):
                    self.processors[name] = node.make()
        for name, processor in self.processors.items():
            node = topology.nodes[name]
            context = NodeContext(self, name)
            with _Failing(node.name, node.made_at, self):
                processor.context = context
                processor.init(context)
                processor.context = context

    # Records in

    def source_of(self, topic: str) -> SourceNode | None:
        """Returns the source node of this task that reads the topic, or None."""
        if topic not in self._sources:
            self._sources[topic] = self._find_source(topic)
        return self._sources[topic]

    def _find_source(self, topic: str) -> SourceNode | None:
        found = None
        for name in self._children:
            node = self._topology.nodes[name]
            if isinstance(node, SourceNode):
                if topic in [self.decorated(written) for written in node.topics]:
                    return node
                if node.pattern is not None and found is None and self.config.matches(node.pattern, topic):
                    found = node
        return found

    def decorated(self, topic: str) -> str:
        """Returns the full name of a topic. Internal topics have the application's id as a prefix."""
        return f"{self.config.application_id}-{topic}" if topic in self._topology.internal_topics else topic

    def enqueue(self, raw: RawRecord) -> None:
        """Adds a record to the queue of its topic."""
        queue = self._queues.get(raw.topic)
        if queue is None:
            source = self.source_of(raw.topic)
            assert source is not None
            queue = self._queues[raw.topic] = self._queue_of(source)
        was_empty = len(queue) == 0
        queue.add(raw)
        if was_empty and len(queue):
            self._heap.push(queue)

    def has_records(self) -> bool:
        return len(self._heap) > 0

    def process_next(self) -> None:
        """Processes the next record, then runs the punctuations on stream time that are due."""
        queue = self._heap.pop()
        read = queue.take()
        if len(queue):
            self._heap.push(queue)
        if read.record is not None:
            self.stream_time_ms = max(self.stream_time_ms, read.record.timestamp)
            self._process(read)
        if self.stream_time_ms >= 0:
            self._stream_time.punctuate(self.stream_time_ms, self._punctuate)

    def process_at_once(self, raw: RawRecord) -> None:
        """Processes a record of a global store's topic immediately, without a queue."""
        source = self.source_of(raw.topic)
        assert source is not None
        read = self._read(source, raw, -1)
        if read is not None:
            self._process(read)

    def punctuate_wall_clock(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._wall_clock.punctuate(now_ms, self._punctuate)

    def close(self) -> None:
        for name, processor in self.processors.items():
            with _Failing(name, self._topology.nodes[name].made_at, self):
                processor.close()

    def _queue_of(self, source: SourceNode) -> TopicQueue:
        return TopicQueue(
            lambda raw, partition_time: self._read(source, raw, partition_time),
            lambda raw: ReadRecord(source.name, RecordMetadata(raw.topic, raw.partition, raw.offset), None),
        )

    def _read(self, source: SourceNode, raw: RawRecord, partition_time_ms: int) -> ReadRecord | None:
        metadata = RecordMetadata(raw.topic, raw.partition, raw.offset)
        try:
            key = self.key_serde(source.key).deserialize(raw.topic, raw.key)
            value = self._framed(source, self.value_serde(source.value)).deserialize(raw.topic, raw.value)
        except StreamsError as error:
            self._unreadable(
                DeserializationFailure(
                    raw.topic, raw.partition, raw.offset, raw.key, raw.value, raw.timestamp, raw.headers, error
                ),
                source,
            )
            return None
        extract: TimestampExtractor = source.timestamp_extractor or self.config.timestamp_extractor
        with _Failing(source.name, source.made_at, self):
            timestamp = extract(
                InputRecord(raw.topic, raw.partition, raw.offset, raw.timestamp, key, value, raw.headers),
                partition_time_ms,
            )
        if timestamp < 0:
            self.drop(f"{raw.topic}-{raw.partition}, offset {raw.offset}: its timestamp {timestamp} is negative")
            return None
        return ReadRecord(source.name, metadata, Record(key, value, timestamp, raw.headers), raw)

    def _unreadable(self, failure: DeserializationFailure, source: SourceNode) -> None:
        if self._is_global:
            decision = Decision.resume()
        else:
            decision = self.config.handler("deserialization")(failure)
        for topic, record in decision.records:
            self._produce(topic, record)
        if decision.fails:
            raise StreamsError(
                f"{source.made_at}: the record at {failure.topic}-{failure.partition}, offset {failure.offset}, "
                f"cannot be read: {failure.error} To skip such records, set deserialization.exception.handler to "
                "log_and_continue."
            ) from failure.error
        self.drop(f"{failure.topic}-{failure.partition}, offset {failure.offset}: {failure.error}")

    def _process(self, read: ReadRecord) -> None:
        assert read.record is not None
        self.metadata, self._raw = read.metadata, read.raw
        try:
            self.forward(read.source, read.record)
        finally:
            self.metadata = self._raw = None

    # Within the topology

    def forward(self, parent: str, record: Record, child: str | None = None) -> None:
        """Forwards the record to the children of a node, or only to the child of the given name."""
        children = self._children[parent]
        if child is not None:
            if child not in children:
                raise StreamsError(
                    f"{parent} forwarded to {child}, which does not come after it: connect {child} with it."
                )
            children = [child]
        before = self.timestamp
        self.timestamp = record.timestamp
        try:
            for name in children:
                node = self._topology.nodes[name]
                if isinstance(node, SinkNode):
                    self._write(node, record)
                    continue
                try:
                    with _Failing(name, node.made_at, self):
                        self.processors[name].process(record)
                except StreamsError as error:
                    self._failed(error, name, record)
        finally:
            self.timestamp = before

    def _failed(self, error: StreamsError, node: str, record: Record | None) -> None:
        """Calls the processing exception handler for the operation that failed. Drops the record if the handler
        decides to continue; otherwise raises the error. The handler is called only once for an error."""
        if not error.is_decided and (not self._is_global or self.config["processing.exception.handler.global.enabled"]):
            raw = self._raw or RawRecord("", -1, None, None, self.timestamp, (), -1)
            self._decide(
                self.config.handler("processing"),
                ProcessingFailure(
                    raw.topic,
                    raw.partition,
                    raw.offset,
                    raw.key,
                    raw.value,
                    raw.timestamp,
                    raw.headers,
                    error,
                    node,
                    record,
                ),
            )
        else:
            raise error

    def _decide(self, handler: Handler, failure: ProcessingFailure | ProductionFailure) -> None:
        error = failure.error
        error.is_decided = True
        decision = handler(failure)
        for topic, dead in decision.records:
            self._produce(topic, dead)
        if decision.fails:
            raise error
        self.drop(str(error))

    def store_for(self, processor: str, name: str) -> Any:
        node = self._topology.nodes[processor]
        assert isinstance(node, ProcessorNode)
        if name not in node.stores and name not in self._topology.global_stores:
            raise StreamsError(
                f"{processor} uses the store {name} without being connected to it: name the store where you add the "
                f"processor."
            )
        return self._visible[name]

    def schedule(
        self, processor: str, interval: Duration, kind: PunctuationType, punctuator: Callable[[int], None]
    ) -> Cancellable:
        interval_ms = milliseconds("the interval of a punctuation", interval, 1)
        if kind is PunctuationType.STREAM_TIME:
            punctuation = Punctuation(processor, 0, interval_ms, punctuator)
            self._stream_time.add(punctuation)
        else:
            punctuation = Punctuation(processor, self.now_ms + interval_ms, interval_ms, punctuator)
            self._wall_clock.add(punctuation)
        return punctuation

    def drop(self, reason: str) -> None:
        self.dropped_records += 1
        logger.warning("A record is dropped: %s.", reason.removesuffix("."))

    def key_serde(self, serde: Serde | None) -> Serde:
        return serde or self.config.key_serde

    def value_serde(self, serde: Serde | None) -> Serde:
        return serde or self.config.value_serde

    def _framed(self, node: SourceNode | SinkNode, serde: Serde) -> Serde:
        return serde if node.wrap is None else node.wrap(serde)

    def _punctuate(self, punctuation: Punctuation, now_ms: int) -> None:
        before, self.metadata, self.timestamp = (self.metadata, self.timestamp), None, now_ms
        node = self._topology.nodes[punctuation.node]
        try:
            with _Failing(node.name, node.made_at, self):
                punctuation.punctuator(now_ms)
        except StreamsError as error:
            self._failed(error, node.name, None)
        finally:
            self.metadata, self.timestamp = before

    def _write(self, sink: SinkNode, record: Record) -> None:
        topic = sink.topic
        if sink.topic_extractor is not None:
            with _Failing(sink.name, sink.made_at, self):
                topic = sink.topic_extractor.call(record.key, record.value)
        if not isinstance(topic, str):
            raise StreamsError(
                f"{sink.made_at}: the topic of a record is {topic!r}: let the function give the name of a topic."
            )
        topic = self.decorated(topic)
        try:
            with _Failing(sink.name, sink.made_at, self):
                key = self.key_serde(sink.key).serialize(topic, record.key)
                value = self._framed(sink, self.value_serde(sink.value)).serialize(topic, record.value)
        except StreamsError as error:
            raw = self._raw or RawRecord("", -1, None, None, self.timestamp, (), -1)
            self._decide(
                self.config.handler("production"),
                ProductionFailure(
                    raw.topic,
                    raw.partition,
                    raw.offset,
                    raw.key,
                    raw.value,
                    raw.timestamp,
                    raw.headers,
                    error,
                    sink.name,
                    record,
                    topic,
                ),
            )
            return
        if record.timestamp < 0:
            raise StreamsError(
                f"{sink.made_at}: a record with the timestamp {record.timestamp} goes to {topic}: give it a time of "
                f"at least 0."
            )
        self._produce(topic, Record(key, value, record.timestamp, record.headers))


class NodeContext:
    """The context of one processor, which gives it access to stores, forwarding, punctuations and times."""

    def __init__(self, task: Task, name: str) -> None:
        self._task = task
        self._name = name

    @property
    def application_id(self) -> str:
        return self._task.config.application_id

    @property
    def task_id(self) -> str:
        return self._task.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._task.metadata

    def forward(self, record: Record, child: str | None = None) -> None:
        if not isinstance(record, Record):
            raise StreamsError(f"{self._name} forwarded {record!r}: forward a Record, such as record.with_value(…).")
        self._task.forward(self._name, record, child)

    def get_state_store(self, name: str) -> Any:
        return self._task.store_for(self._name, name)

    def schedule(
        self, interval: Duration, punctuation_type: PunctuationType, punctuator: Callable[[int], None]
    ) -> Cancellable:
        return self._task.schedule(self._name, interval, punctuation_type, punctuator)

    def current_stream_time_ms(self) -> int:
        return self._task.stream_time_ms

    def current_system_time_ms(self) -> int:
        return self._task.now_ms

    def commit(self) -> None:
        """Does nothing: the test driver commits after every record."""

    def dropped(self, reason: str) -> None:
        at = self._task.metadata
        self._task.drop(
            f"{reason} ({self._name})"
            if at is None
            else f"{at.topic}-{at.partition}, offset {at.offset}: {reason} ({self._name})"
        )

    def exchange_metadata(self, metadata: RecordMetadata | None) -> RecordMetadata | None:
        before, self._task.metadata = self._task.metadata, metadata
        return before


class _Failing:
    """Adds the operation, the line of the program and the record to the message of an error in a user's function."""

    def __init__(self, name: str, made_at: Location, task: Task) -> None:
        self._name, self._made_at, self._task = name, made_at, task

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception):
            return
        if isinstance(error, StreamsError):
            if not error.is_located:
                error.args = (f"{self._made_at}: {self._name}: {error}",)
                error.is_located = True
            return
        at = self._task.metadata
        where = "" if at is None else f" for the record at {at.topic}-{at.partition}, offset {at.offset}"
        failed = ProcessorFailedError(
            f"{self._made_at}: {self._name} raised {type(error).__name__} ({error}){where}: mend the function, or "
            f"leave such records out before."
        )
        failed.is_located = True
        raise failed from error
