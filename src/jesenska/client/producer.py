"""The producer: it collects records in one batch for each partition, and sends a batch when it is full or `linger` has
passed.

    send() -> batch that is being filled -> queue of the partition -> one request per leader, at most one batch of a
    partition in progress -> response

One batch of a partition is in progress at a time, so retries keep the order. An idempotent producer (the default)
gives its batches sequence numbers when they are first sent. A batch that is sent again keeps its numbers, so the
broker recognises it and returns the offsets of the first copy. A batch that cannot be delivered within
`delivery_timeout`, or by `retries` further attempts, fails. A batch that is too large for its topic is split, if
necessary into single records. After such a failure, or if the broker has lost the producer's state, the producer gets
a new producer id, because the broker would refuse the following sequence numbers.

`send_batch` takes a finished batch (from Arrow columns, for example), without a Python object per record.

With a `transactional_id` records belong to transactions (`transactions` lists the states and the allowed steps):

    await producer.init_transactions()
    async with producer.transaction():
        await producer.send("orders", b"one")
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

An error in the block aborts the transaction. A record that cannot be written also aborts it; its error is raised at
the end of the block.

There are no interceptors and serialisers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from jesenska.base.clock import Random, system_random
from jesenska.base.errors import (
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    MessageTooLargeError,
    NetworkException,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.partitioner import partition_of_key
from jesenska.client.positions import Position
from jesenska.client.transactions import GroupMetadata, Transactions
from jesenska.records.batch import stamp_producer
from jesenska.records.decode import decode_batch
from jesenska.records.encode import BatchWriter
from jesenska.records.header import Codec, read_header
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NAMES_NOT_IDS = 12
_INT32_MAX = 2**31 - 1
_SEQUENCES = 1 << 31
#: The broker's errors for a batch that is too large, which is then split in two.
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
#: The size limit of a part of a split batch: so large that all its records fit.
_UNBOUNDED_BYTES = 1 << 40
#: Errors which show that the broker has lost this producer's sequence numbers. The producer then needs a new producer
#: id.
_LOST_STATE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_STALE_METADATA = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
#: Errors after which another broker may be the leader.
_LEADER_MAY_BE_GONE = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


class RecordMetadata(NamedTuple):
    """The place of a written record. `offset` is -1 with acks=0. `timestamp_ms` is the broker's time if the topic has
    log append time, otherwise -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class _Batch:
    """A batch of the producer, from its first record until its response has arrived."""

    __slots__ = (
        "closed",
        "created_at",
        "encoded",
        "future",
        "numbered",
        "producer",
        "record_count",
        "records",
        "retries",
        "size_bytes",
        "writer",
    )

    def __init__(self, future: asyncio.Future[tuple[int, int]], created_at: float) -> None:
        self.future = future
        self.created_at = created_at
        self.writer: BatchWriter | None = None
        self.encoded: bytearray | None = None
        self.numbered = False  # it has its final numbers: it may have reached the broker, so it must not change
        self.producer: tuple[int, int] | None = None  # id and epoch that the batch was numbered with
        self.record_count = 0
        #: The future of each record, and the record's index in the batch. It is empty if the caller passed a finished
        #: batch.
        self.records: list[tuple[asyncio.Future[RecordMetadata], int]] = []
        self.size_bytes = 0
        self.retries = 0
        self.closed = False


class _PartitionQueue:
    __slots__ = ("busy", "linger", "next_sequence", "queue", "sequence_owner", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.queue: deque[_Batch] = deque()
        self.busy = False
        self.next_sequence = 0
        self.sequence_owner: tuple[int, int] | None = None
        self.linger: asyncio.TimerHandle | None = None


def _check_acks(acks: int, is_idempotent: bool, transactions: Transactions | None) -> None:
    """Raises InvalidRequestError if an idempotent producer has other `acks` than -1 (all), or if transactions are used
    without idempotence."""
    if transactions is not None and not is_idempotent:
        raise InvalidRequestError("Transactions need idempotence and acks=all: leave enable.idempotence and acks out.")
    if is_idempotent and acks != -1:
        raise InvalidRequestError(
            "An idempotent producer needs acks=all: leave acks out, or set enable.idempotence=false."
        )


class Producer:
    """Sends records to topics. `await producer.send(...)` returns a future of the record's metadata; `flush` waits for
    all futures.

    acks is 0, 1 or -1 (all); idempotence needs -1. The class is long because batches, the free space of the buffer and
    the sequence numbers of a partition change together: while one method waits, another may change them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        enable_idempotence: bool | None = None,
        compression: Codec = Codec.NONE,
        compression_level: int | None = None,
        batch_size: int = 64 * 1024,
        linger_seconds: float = 0.005,
        max_request_size: int = 1024 * 1024,
        buffer_memory: int = 32 * 1024 * 1024,
        delivery_timeout_seconds: float = 120.0,
        max_block_seconds: float = 60.0,
        retries: int = _INT32_MAX,
        ignore_keys: bool = False,
        create_topics: bool = True,
        transactional_id: str | None = None,
        transaction_timeout_seconds: float = 60.0,
        transactions: Transactions | None = None,
        random_source: Random | None = None,
    ) -> None:
        if enable_idempotence is None:
            enable_idempotence = acks == -1
        if transactional_id is not None:
            transactions = Transactions(cluster, transactional_id, transaction_timeout_seconds)
        _check_acks(acks, enable_idempotence, transactions)
        #: The producer's transactions; None without a transactional id.
        self.transactions = transactions
        self.cluster = cluster
        self.acks = acks
        self.idempotent = enable_idempotence
        self.compression = compression
        self.compression_level = compression_level
        self.batch_size = batch_size
        self.linger_seconds = linger_seconds
        self.max_request_size = max_request_size
        self.buffer_memory = buffer_memory
        self.delivery_timeout_seconds = delivery_timeout_seconds
        #: The time in seconds that a record may wait for the first metadata of its topic and for space in the buffer,
        #: together.
        self.max_block_seconds = max_block_seconds
        self.retries = retries
        #: True if keys have no effect on the choice of a record's partition.
        self.ignore_keys = ignore_keys
        self._create_topics = create_topics
        self._random = random_source or system_random()
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._sticky: dict[str, int] = {}
        self._buffered_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._producer: tuple[int, int] | None = None
        self._producer_lock = asyncio.Lock()
        self._ready: dict[TopicPartition, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    @property
    def producer_id(self) -> int:
        """The producer id in use. It is -1 before the first batch is sent, or without idempotence."""
        return -1 if self._producer is None else self._producer[0]

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=kind is None)

    # --- transactions ------------------------------------------------------------------------------------------------

    def _transactions(self) -> Transactions:
        if self.transactions is None:
            raise InvalidRequestError("The producer has no transactions: give it a transactional_id.")
        return self.transactions

    async def init_transactions(self) -> None:
        """Registers the transactional id with its coordinator. A transaction that another producer with this id has
        left open is aborted, and that producer is fenced. It must be called once, before the first transaction."""
        await self._transactions().initialize()

    def begin_transaction(self) -> None:
        """Begins a transaction. The records that are sent from now on belong to it."""
        self._transactions().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Position], group: GroupMetadata, metadata: str = ""
    ) -> None:
        """Commits the positions for the group together with the transaction: they take effect only if the transaction
        is committed. `metadata` is stored with each offset."""
        await self._transactions().send_offsets(offsets, group, metadata)

    async def commit_transaction(self) -> None:
        """Commits the transaction. Returns when the coordinator has recorded the commit. Read-committed consumers get
        the records as soon as the markers are written to the partitions. If a record could not be written, its error
        is raised, and the transaction must be aborted."""
        await self._transactions().end(True, self.flush)

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Returns when the coordinator has recorded the abort. Read-committed consumers get
        none of its records. Records that have not been sent yet are dropped."""
        await self._transactions().end(False, self.flush)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begins a transaction, and commits it at the end of the `async with` block. If the block or the commit raises
        an error, the transaction is aborted. After ProducerFencedError there is nothing to abort."""
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            if self._transactions().may_abort:
                await self.abort_transaction()
            raise

    # --- records in --------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a record to the batch of its partition. Waits only until the metadata of its topic is known and the
        buffer has space. After waiting for `max_block_seconds`, NetworkException or RequestTimedOutError is raised.
        The returned future gets the partition and offset of the record, or the error."""
        if self.transactions is not None:
            self.transactions.require_open()
        until = self.cluster.clock.monotonic() + self.max_block_seconds
        count = await self.partition_count(topic)
        if partition is None:
            partition = (
                partition_of_key(key, count) if key is not None and not self.ignore_keys else self._stick(topic, count)
            )
        elif not 0 <= partition < count:
            raise InvalidRequestError(f"Topic {topic} has {count} partitions, none with the number {partition}.")
        size = (
            len(value or b"") + len(key or b"") + sum(len(name) + len(data or b"") + 10 for name, data in headers) + 70
        )
        if size > self.max_request_size:
            raise MessageTooLargeError(
                f"The record takes {size} bytes, more than max.request.size allows ({self.max_request_size})."
            )
        await self._make_room(size, until)
        queue = self._queue(TopicPartition(topic, partition))
        stamp = self.cluster.clock.now_ms() if timestamp_ms is None else timestamp_ms
        batch = queue.queue[-1] if queue.queue and not queue.queue[-1].closed else None
        place = (
            batch.writer.append(stamp, key, value, headers) if batch is not None and batch.writer is not None else None
        )
        if batch is None or place is None:
            if batch is not None:
                batch.closed = True
                self._sticky.pop(topic, None)
                self._mark_ready(queue)
            batch = self._new_batch(queue)
            batch.writer = BatchWriter(self.batch_size, self.compression, self.compression_level)
            place = batch.writer.append(stamp, key, value, headers)
            assert place is not None
            if self.linger_seconds <= 0:
                self._mark_ready(queue)
            elif queue.linger is None:
                queue.linger = asyncio.get_running_loop().call_later(self.linger_seconds, self._lingered, queue)
        assert batch.writer is not None
        batch.record_count += 1
        batch.size_bytes += size
        self._buffered_bytes += size
        return self._record_future(batch, place)

    async def send_batch(
        self, topic: str, partition: int, encoded: bytearray, record_count: int | None = None
    ) -> asyncio.Future[tuple[int, int]]:
        """Sends a finished batch without producer id and sequence numbers. The returned future gets the base offset
        and the append time. Waits for space in the buffer as `send` does."""
        if self.transactions is not None:
            self.transactions.require_open()
        await self._make_room(len(encoded), self.cluster.clock.monotonic() + self.max_block_seconds)
        queue = self._queue(TopicPartition(topic, partition))
        for earlier in queue.queue:
            earlier.closed = True
        batch = self._new_batch(queue)
        batch.encoded = encoded
        batch.closed = True
        batch.record_count = read_header(encoded).record_count if record_count is None else record_count
        batch.size_bytes = len(encoded)
        self._buffered_bytes += len(encoded)
        self._mark_ready(queue)
        return batch.future

    async def partition_count(self, topic: str) -> int:
        """Returns the last reported number of partitions of the topic. Waits for the metadata as `send` does."""
        return await self.cluster.partition_count(
            topic, within_seconds=self.max_block_seconds, create=self._create_topics
        )

    def _stick(self, topic: str, count: int) -> int:
        chosen = self._sticky.get(topic)
        if chosen is None or chosen >= count:
            chosen = self._sticky[topic] = self._random.randrange(count)
        return chosen

    def _queue(self, topic_partition: TopicPartition) -> _PartitionQueue:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = _PartitionQueue(topic_partition)
        return queue

    def _new_batch(self, queue: _PartitionQueue) -> _Batch:
        batch = self._batch(queue)
        queue.queue.append(batch)
        return batch

    def _batch(self, queue: _PartitionQueue) -> _Batch:
        batch = _Batch(asyncio.get_running_loop().create_future(), self.cluster.clock.monotonic())
        batch.future.add_done_callback(partial(_tell_records, queue.topic_partition, batch))
        return batch

    @staticmethod
    def _record_future(batch: _Batch, place: int) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        batch.records.append((future, place))
        return future

    async def _make_room(self, size: int, until: float) -> None:
        if self._closed:
            raise InvalidRequestError("The producer is closed.")
        while self._buffered_bytes and self._buffered_bytes + size > self.buffer_memory:
            for queue in self._queues.values():
                if queue.queue:
                    self._mark_ready(queue)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiting)
            try:
                async with asyncio.timeout(until - self.cluster.clock.monotonic()):
                    await waiting
            except TimeoutError:
                raise RequestTimedOutError(
                    f"The producer's buffer of {self.buffer_memory} bytes had no room within "
                    f"{self.max_block_seconds:g} s: the brokers answer too slowly."
                ) from None
            if self._closed:
                raise InvalidRequestError("The producer was closed while the record waited for room in its buffer.")

    def _release(self, batch: _Batch) -> None:
        self._buffered_bytes -= batch.size_bytes
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wakes the callers that wait for space in the buffer."""
        while self._room:
            waiting = self._room.popleft()
            if not waiting.done():
                waiting.set_result(None)

    # --- batches out -------------------------------------------------------------------------------------------------

    def _lingered(self, queue: _PartitionQueue) -> None:
        queue.linger = None
        if queue.queue:
            self._mark_ready(queue)

    def _mark_ready(self, queue: _PartitionQueue) -> None:
        if queue.linger is not None:
            queue.linger.cancel()
            queue.linger = None
        if queue.busy or queue.topic_partition in self._ready:
            return
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._start_sending)
        self._ready[queue.topic_partition] = None

    def _start_sending(self) -> None:
        ready, self._ready = self._ready, {}
        queues = [queue for key in ready if (queue := self._queues[key]).queue and not queue.busy]
        for queue in queues:
            queue.busy = True
            queue.queue[0].closed = True
        if queues:
            self._run(self._send_by_leader(queues))

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _send_by_leader(self, queues: list[_PartitionQueue]) -> None:
        """Finds the leader of each partition and sends the first batch of each partition. Each leader gets one
        request, or several if one would exceed `max_request_size`."""
        by_leader: dict[int, list[_PartitionQueue]] = {}
        if self.transactions is not None:
            queues = await self._in_transaction(self.transactions, queues)
        for queue in queues:
            try:
                if self.idempotent and self._producer is None:
                    await self._take_producer_id()
                leader = (await self.cluster.leader_of(queue.topic_partition, create=self._create_topics)).leader
            except KafkaError as error:
                await self._again_or_fail(queue, error)
                continue
            by_leader.setdefault(leader, []).append(queue)
        for leader, members in by_leader.items():
            group: list[_PartitionQueue] = []
            size = 0
            for queue in members:
                encoded = self._finished(queue)
                if group and size + len(encoded) > self.max_request_size:
                    self._run(self._send_request(leader, group))
                    group, size = [], 0
                group.append(queue)
                size += len(encoded)
            self._run(self._send_request(leader, group))

    async def _in_transaction(self, transactions: Transactions, queues: list[_PartitionQueue]) -> list[_PartitionQueue]:
        """Adds the partitions of the queues to the transaction, and returns the queues whose first batch may be sent.
        In the other queues the first batch fails."""
        failure = transactions.why_not_sent()
        if failure is None:
            try:
                await transactions.add([queue.topic_partition for queue in queues])
            except KafkaError as error:
                transactions.doom(error)
                failure = error
            else:
                # While `add` waited, an error may have made a commit of the transaction impossible.
                failure = transactions.why_not_sent()
        if failure is None:
            self._producer = transactions.producer
            return queues
        for queue in queues:
            self._fail(queue, failure)
        return []

    async def _take_producer_id(self) -> None:
        async with self._producer_lock:
            if self._producer is not None:
                return
            answer = await self.cluster.ask_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), InitProducerIdResponse
            )
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError.of(answer.error_code, _why_without_id(answer.error_code))
            self._producer = (answer.producer_id, answer.producer_epoch)

    def _finished(self, queue: _PartitionQueue) -> bytearray:
        """Returns the first batch of the partition, encoded and with sequence numbers. A batch is encoded and numbered
        only once: a batch that may have reached the broker must keep its numbers."""
        batch = queue.queue[0]
        if batch.numbered:
            assert batch.encoded is not None
            return batch.encoded
        owner = self._producer if self.idempotent else None
        producer_id, epoch, sequence = -1, -1, -1
        if owner is not None:
            if queue.sequence_owner != owner:
                queue.sequence_owner, queue.next_sequence = owner, 0
            producer_id, epoch = owner
            sequence = queue.next_sequence
            queue.next_sequence = (sequence + batch.record_count) % _SEQUENCES
        if batch.encoded is None:
            assert batch.writer is not None
            batch.encoded = batch.writer.finish(producer_id, epoch, sequence, self.transactions is not None)
            batch.writer = None
        elif owner is not None:
            stamp_producer(batch.encoded, 0, producer_id, epoch, sequence, self.transactions is not None)
        batch.numbered = True
        batch.producer = owner
        return batch.encoded

    async def _send_request(self, leader: int, queues: list[_PartitionQueue]) -> None:
        topics: dict[str, ProduceRequestTopic] = {}
        for queue in queues:
            topic = topics.setdefault(
                queue.topic_partition.topic, ProduceRequestTopic(name=queue.topic_partition.topic)
            )
            topic.partition_data.append(
                ProduceRequestPartition(index=queue.topic_partition.partition, records=queue.queue[0].encoded)
            )
        transactions = self.transactions
        request = ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self.acks,
            timeout_ms=int(self.cluster.request_timeout_seconds * 1000),
            topic_data=list(topics.values()),
        )
        at_most = _NAMES_NOT_IDS if transactions is None else transactions.produce_version
        try:
            channel = await self.cluster.channel_of(leader)
            if self.acks == 0:
                await channel.send(request, channel.version_for(ProduceRequest, _NAMES_NOT_IDS), expect_answer=False)
                for queue in queues:
                    self._succeed(queue, -1, -1)
                return
            answer = await channel.request(
                request, ProduceResponse, timeout_seconds=self.cluster.request_timeout_seconds, at_most=at_most
            )
        except KafkaError as error:
            if error.code in _LEADER_MAY_BE_GONE:
                # If no broker answers, the known metadata is kept.
                with suppress(KafkaError):
                    await self.cluster.refresh(topics)
            for queue in queues:
                await self._again_or_fail(queue, error)
            return
        by_partition = {queue.topic_partition: queue for queue in queues}
        for answered in answer.responses:
            for partition in answered.partition_responses:
                found = by_partition.pop(TopicPartition(answered.name, partition.index), None)
                if found is None:
                    continue
                if partition.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._succeed(found, partition.base_offset, partition.log_append_time_ms)
                else:
                    await self._again_or_fail(
                        found,
                        KafkaError.of(
                            partition.error_code, self._explain(found, partition.error_code, partition.error_message)
                        ),
                    )
        for found in by_partition.values():
            await self._again_or_fail(found, NetworkException("The broker's answer leaves a partition out."))

    @staticmethod
    def _explain(queue: _PartitionQueue, code: int, message: str | None) -> str:
        return f"{queue.topic_partition}: the broker answers {error_name(code)}" + (
            f" ({message})." if message else "."
        )

    def _succeed(self, queue: _PartitionQueue, base_offset: int, append_time_ms: int) -> None:
        batch = queue.queue.popleft()
        self._release(batch)
        queue.busy = False
        if not batch.future.done():
            batch.future.set_result((base_offset, append_time_ms))
        self._next(queue)

    def _next(self, queue: _PartitionQueue) -> None:
        """Handles the batch that follows an answered batch. If the batch is full or its linger time has passed, marks
        it as ready to be sent. Otherwise sets a timer for the remaining linger time."""
        if not queue.queue:
            return
        head = queue.queue[0]
        waited = self.cluster.clock.monotonic() - head.created_at
        if head.closed or waited >= self.linger_seconds:
            self._mark_ready(queue)
        elif queue.linger is None:
            queue.linger = asyncio.get_running_loop().call_later(self.linger_seconds - waited, self._lingered, queue)

    async def _again_or_fail(self, queue: _PartitionQueue, error: KafkaError) -> None:
        batch = queue.queue[0]
        code = error.code
        waited = self.cluster.clock.monotonic() - batch.created_at
        if code in _TOO_LARGE and batch.records and batch.record_count > 1:
            self._split(queue)
            return
        lost_state = self.idempotent and code in _LOST_STATE
        if code in _STALE_METADATA:
            self.cluster.forget_topic(queue.topic_partition.topic)
        transactions = self.transactions
        if transactions is not None and transactions.why_not_sent() is not None:
            lost_state = True
        in_bounds = waited < self.delivery_timeout_seconds and batch.retries < self.retries
        if (
            error.retriable
            and not lost_state
            and in_bounds
            and not isinstance(error, UnsupportedVersionError)
            and self.acks != 0
        ):
            batch.retries += 1
            await asyncio.sleep(self.cluster.retry_pause_seconds(batch.retries))
            queue.busy = False
            self._mark_ready(queue)
            return
        if self.idempotent and batch.producer is not None and batch.producer == self._producer:
            # The following batches would leave a gap in the sequence numbers, or the broker has lost them: the
            # producer continues with a new producer id.
            self._producer = None
        if isinstance(error, OutOfOrderSequenceNumberError):
            error = OutOfOrderSequenceNumberError(f"{error} The batch may or may not have been written.")
        if transactions is not None:
            transactions.doom(error)
        self._fail(queue, error)

    def _fail(self, queue: _PartitionQueue, error: KafkaError) -> None:
        """Removes the first batch of the partition from its queue and fails it with the error."""
        batch = queue.queue.popleft()
        self._release(batch)
        queue.busy = False
        if not batch.future.done():
            batch.future.set_exception(error)
        self._next(queue)

    def _split(self, queue: _PartitionQueue) -> None:
        """Splits the first batch, which was too large for the topic, into two batches, which get its sequence
        numbers."""
        batch = queue.queue.popleft()
        assert batch.encoded is not None
        records = decode_batch(batch.encoded, verify=False)
        half = (len(records) + 1) // 2
        parts = []
        for first, chosen in ((0, records[:half]), (half, records[half:])):
            part = self._batch(queue)
            part.created_at, part.retries, part.closed = batch.created_at, batch.retries, True
            part.writer = BatchWriter(_UNBOUNDED_BYTES, self.compression, self.compression_level)
            for record in chosen:
                part.writer.append(record.timestamp_ms, record.key, record.value, record.headers)
            part.record_count = len(chosen)
            part.size_bytes = batch.size_bytes * len(chosen) // len(records)
            part.records = [
                (future, place - first) for future, place in batch.records if first <= place < first + len(chosen)
            ]
            parts.append(part)
        parts[1].size_bytes = batch.size_bytes - parts[0].size_bytes
        batch.records = []
        if self.idempotent and batch.producer == queue.sequence_owner:
            queue.next_sequence = (queue.next_sequence - batch.record_count) % _SEQUENCES
        queue.queue.extendleft(reversed(parts))
        # A caller that waits for the original batch must wait for both parts.
        parts[1].future.add_done_callback(partial(_set_answered, batch))
        queue.busy = False
        self._mark_ready(queue)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Sends all batches now and waits for their responses. Errors are in the records' futures."""
        while True:
            waiting = []
            for queue in self._queues.values():
                if queue.queue:
                    for batch in queue.queue:
                        batch.closed = True
                    waiting += [batch.future for batch in queue.queue]
                    self._mark_ready(queue)
            if not waiting:
                return
            await asyncio.wait(waiting)

    async def close(self, *, flush: bool = True) -> None:
        """Waits for the responses to all batches (with `flush`), then ends the producer. The cluster object stays
        open."""
        if flush:
            await self.flush()
        self._closed = True
        self._wake_waiting()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for queue in self._queues.values():
            if queue.linger is not None:
                queue.linger.cancel()
            for batch in queue.queue:
                if not batch.future.done():
                    batch.future.set_exception(
                        NetworkException("The producer was closed before the record was acknowledged.")
                    )


def _why_without_id(code: int) -> str:
    """Returns the sentence for a refused InitProducerId. Only a user with the right to write to a topic, or with
    IdempotentWrite on the cluster, gets a producer id."""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return (
            "The user may not write to any topic, so the broker gives no producer id: an administrator adds the right "
            "with kafka-acls --add --producer --topic NAME."
        )
    return f"The broker gives no producer id: {error_name(code)}."


def _tell_records(topic_partition: TopicPartition, batch: _Batch, of_batch: asyncio.Future[tuple[int, int]]) -> None:
    """Sets the futures of a batch's records when the batch is answered: to the partition and offset of each record, or
    to the error."""
    error = None if of_batch.cancelled() else of_batch.exception()
    for future, place in batch.records:
        if future.done():
            continue
        if of_batch.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            base_offset, append_time_ms = of_batch.result()
            offset = base_offset + place if base_offset >= 0 else -1
            future.set_result(RecordMetadata(topic_partition.topic, topic_partition.partition, offset, append_time_ms))


def _set_answered(batch: _Batch, of_last_part: asyncio.Future[tuple[int, int]]) -> None:
    """Marks a split batch as answered after its last part was answered."""
    if not batch.future.done():
        batch.future.set_result((-1, -1))


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Reads the error of a failed future, so that the event loop does not warn about an error that was never read."""
    if not future.cancelled():
        future.exception()
