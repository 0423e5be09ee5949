"""The clients of a simulation with transactions: transactional producers and read_committed consumers.

`TransactionalWriter` sends requests without a client library, in the versions of old and new clients. It also behaves
like a bad client: it shares its transactional id, forgets to end a transaction, and gives up requests without a
response. `Transformer` uses jesenska's own client. It is a member of a consumer group that writes a result record for
each committed record, and commits the group's offsets in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from jesenska.base.errors import ErrorCode, InvalidTxnStateError, KafkaError, NetworkException, RequestTimedOutError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.coordinators import GROUP, TRANSACTION, find_coordinator
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import EARLIEST
from jesenska.client.positions import Position
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.net.channel import Channel
from jesenska.records.encode import encode_batch
from jesenska.records.record import Record
from jesenska.testing.simulation.clients import cluster_of
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.watches.history import History
from jesenska.testing.simulation.watches.transaction_history import KnownTransaction, ProducerName, TransactionHistory
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from jesenska.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from jesenska.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

Answer = TypeVar("Answer", bound=Message)

TRANSFORMERS: Final = "transformers"
_COMMITTED: Final = 1
_REQUEST_SECONDS = 2.0
#: The version of OffsetFetch that is used: it is the first version that can wait for transactions, and the last
#: version for a single group.
_OFFSET_FETCH = 7
#: The largest number of attempts at a request. The end of a transaction is requested until the result is known.
_ATTEMPTS_MAX = 25
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
#: Error codes with which a request certainly has no effect, now or later. The request is sent again.
_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
_IN_NO_TRANSACTION = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_LEADER_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Versions(NamedTuple):
    """The highest versions of requests that a client supports."""

    init: int
    add: int
    add_offsets: int
    commit_offsets: int
    produce: int
    end: int

    @property
    def raises_epochs(self) -> bool:
        """Returns True if the end of a transaction raises the producer epoch, and leaders add partitions to
        transactions (KIP-890)."""
        return self.end >= 5


#: The versions of clients of Kafka 0.11, 2.0, 2.8 and 3.9, and of the newest clients.
CLIENTS: Final = (
    Versions(0, 0, 0, 0, 3, 0),
    Versions(1, 1, 1, 2, 6, 1),
    Versions(4, 3, 3, 3, 9, 3),
    Versions(5, 3, 4, 4, 11, 4),
    Versions(5, 3, 4, 5, 12, 5),
)
#: Since this version, InitProducerId contains the present producer id and epoch (KIP-360).
_KEEPS_ID = 3


class _DoomedError(Exception):
    """The error that is raised if a transaction can no longer be committed, and must be aborted."""


class _GoneError(Exception):
    """The error that is raised if this producer cannot continue. Another program is now the producer of the
    transactional id, or this producer must call InitProducerId again."""


class _Asking:
    """The base class of programs that send requests to coordinators without a client library."""

    def __init__(self, process: Process, known: TransactionHistory, bootstrap: str) -> None:
        self.process = process
        self._known = known
        self._random = process.world.random
        self._cluster: Cluster = cluster_of(process, bootstrap)
        self._cluster.request_timeout_seconds = _REQUEST_SECONDS
        self._coordinators: dict[tuple[str, int], int] = {}

    async def _ask(
        self, request: Message, response: type[Answer], key: str, key_type: int, at_most: int
    ) -> Answer | None:
        """Returns the coordinator's response. Returns None if no response arrives; then the result of the request is
        not known."""
        try:
            node = self._coordinators.get((key, key_type))
            if node is None:
                node = self._coordinators[key, key_type] = await find_coordinator(self._cluster, key, key_type)
            channel: Channel = await self._cluster.channel_of(node)
            return await channel.request(request, response, timeout_seconds=_REQUEST_SECONDS, at_most=at_most)
        except KafkaError:
            self._coordinators.pop((key, key_type), None)
            return None

    async def _pause(self, error: int | None = None) -> None:
        if error in _MOVED:
            self._coordinators.clear()
        await asyncio.sleep(0.02 if error == ErrorCode.CONCURRENT_TRANSACTIONS else self._random.uniform(0.05, 0.3))

    async def _offset_of(self, group: str, partition: TopicPartition, *, is_stable: bool) -> int | None:
        """Returns a group's committed offset as its coordinator reports it; -1 means that there is none. Returns None
        if no response arrives."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])],
            require_stable=is_stable,
        )
        answer = await self._ask(request, OffsetFetchResponse, group, GROUP, _OFFSET_FETCH)
        error = None if answer is None else answer.error_code or answer.topics[0].partitions[0].error_code
        if answer is None or error != ErrorCode.NONE:
            if error != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                self._coordinators.pop((group, GROUP), None)
            return None
        return int(answer.topics[0].partitions[0].committed_offset)


class TransactionalWriter(_Asking):
    """A producer that writes numbered records in transactions, to the partitions of one topic."""

    def __init__(
        self,
        process: Process,
        history: History,
        known: TransactionHistory,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        transactional_id: str,
        versions: Versions,
    ) -> None:
        super().__init__(process, known, bootstrap)
        self.is_stopping = False
        self.committed = self.aborted = self.unknown = 0
        self.transactional_id = transactional_id
        #: The consumer group for which this producer commits offsets. The committed offsets are increasing numbers.
        self.group = f"of-{process.name}"
        self._history = history
        self._partitions = partitions
        self._versions = versions
        self._producer = ProducerName(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        #: True if the result of a sent batch is not known. Then the producer requests a new epoch (KIP-360).
        self._needs_epoch = False
        self._number = self._serial = 0
        self._timeout_ms = self._random.choice((2500, 4000, 8000))
        #: A time at or after the start of this producer's transaction. Before this time, no request of the transaction
        #: was sent.
        self._begun = 0.0

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._begin(None)
                while not self.is_stopping:
                    await self._one_transaction()
                    await asyncio.sleep(self._random.choice((0.0, 0.05, 0.3, 0.6)))
            except _GoneError as error:
                self.process.world.tell(self.process.name, f"begins anew: {error}")
                await asyncio.sleep(self._random.uniform(0.3, 4.0))
        await self._cluster.close()
        self.process.world.tell(
            self.process.name,
            f"has committed {self.committed} transactions, aborted {self.aborted}, and does not know of {self.unknown}",
        )

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _until_taken(self, ask: Callable[[], Awaitable[Collection[int] | None]], what: str) -> None:
        """Sends a request until its response contains no error. Raises _GoneError if the producer is fenced, and
        _DoomedError after any other failure."""
        for _ in range(_ATTEMPTS_MAX):
            codes = await ask()
            error = (
                None
                if codes is None
                else next((code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED), 0)
            )
            if error == 0:
                return
            if error in _FENCED:
                raise _GoneError(f"{what} is refused")
            if error is not None and error not in (*_MOVED, *_AGAIN, *_LEADER_MOVED):
                raise _DoomedError(f"{what} is answered {ErrorCode(error).name}")
            await self._pause(error)
        raise _DoomedError(f"{what} is not answered")

    # --- a producer --------------------------------------------------------------------------------------------------

    async def _begin(self, present: ProducerName | None) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        if present is not None and self._versions.init >= _KEEPS_ID:
            request.producer_id, request.producer_epoch = present
        while True:
            self._known.begins(self.transactional_id, self.process.name)
            answer = await self._ask(
                request, InitProducerIdResponse, self.transactional_id, TRANSACTION, self._versions.init
            )
            if answer is not None:
                if answer.error_code == ErrorCode.NONE:
                    break
                if answer.error_code in _FENCED:
                    raise _GoneError("its id is another's")
                if answer.error_code not in (*_MOVED, *_AGAIN):
                    raise AssertionError(f"InitProducerId is answered {ErrorCode(answer.error_code).name}")
            if self.is_stopping:
                raise _GoneError("it is told to stop")
            await self._pause(None if answer is None else answer.error_code)
        self._producer = ProducerName(answer.producer_id, answer.producer_epoch)
        self._known.begun(self.transactional_id, self.process.name, self._producer)
        self._sequences.clear()
        self._needs_epoch = False

    # --- one transaction ---------------------------------------------------------------------------------------------

    async def _one_transaction(self) -> None:
        random = self._random
        self._serial += 1
        transaction = self._known.open(f"{self.process.name}/{self._serial}")
        self._added.clear()
        self._begun = self.process.world.now
        has_something = is_doomed = False
        if self._versions.raises_epochs and random.random() < 0.08:
            # With these versions an abort raises the producer epoch, even if nothing was sent in the transaction.
            await self._perhaps_break(0.5)
            await self._end(transaction, commits=False)
            return
        try:
            for _ in range(random.choice((1, 2, 2, 3))):
                has_something = True
                await self._send(transaction, random.choice(self._partitions))
                await self._perhaps_break(0.03)
                await asyncio.sleep(random.choice((0.0, 0.0, 0.02, 0.2)))
            if random.random() < 0.3:
                await self._commit_offset(transaction)
                await asyncio.sleep(random.choice((0.0, 0.02, 0.2)))
            await self._perhaps_break(0.06)
            if random.random() < 0.05:
                raise _GoneError("it forgets its transaction")
        except _DoomedError as error:
            self.process.world.tell(self.process.name, f"aborts {transaction.name}: {error}")
            is_doomed = True
        if has_something:
            await self._end(transaction, commits=not is_doomed and random.random() < 0.75)
        if self._needs_epoch:
            await self._begin(self._producer)

    async def _perhaps_break(self, chance: float) -> None:
        """Sometimes sleeps for about the transaction timeout, as if the process were paused."""
        if self._random.random() < chance:
            await asyncio.sleep(self._timeout_ms / 1000 + self._random.uniform(-0.5, 2.5))

    async def _send(self, transaction: KnownTransaction, partition: TopicPartition) -> None:
        """Sends a batch until it is acknowledged, or until the producer gives up the batch."""
        random, producer = self._random, self._producer
        if not self._versions.raises_epochs and partition not in self._added:
            await self._until_taken(lambda: self._add(partition), "a partition")
            self._added.add(partition)
        count, first = random.choice((1, 1, 2, 4)), self._sequences.get(partition, 0)
        values = []
        for _ in range(count):
            values.append(f"{self.process.name}-{self._number}".encode() + b"." * random.choice((0, 0, 0, 500)))
            self._number += 1
            self._known.sends(transaction, values[-1])
        batch = encode_batch(
            [(self.process.clock.now_ms(), None, value, ()) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=first,
            is_transactional=True,
        )
        # Some clients give up batches that may still be in flight.
        attempts = 1 if random.random() < 0.3 else _ATTEMPTS_MAX
        self._needs_epoch = True
        successor, may_be_written = None, False
        for _ in range(attempts):
            # A leader that is cut off from the metadata tree may repeat its response to a batch that it wrote before
            # the producer's successor began.
            if not may_be_written:
                successor = self._known.successor_of(self.transactional_id, producer)
            error, offset = await self._produce(partition, batch)
            may_be_written = may_be_written or error is None
            if error == ErrorCode.NONE:
                self._known.accepted(producer, successor, "a record")
                break
            if error in _FENCED:
                raise _GoneError("a record is refused")
            if error is not None and error not in _LEADER_MOVED:
                self._judge_refusal(error, "a record")
                raise _DoomedError(f"a record is answered {ErrorCode(error).name}")
            if attempts > 1:
                await self._pause(error)
        else:
            raise _DoomedError("a record is not answered")
        self._needs_epoch = False
        self._sequences[partition] = first + count
        for number, value in enumerate(values):
            self._history.sent(partition, offset + number, value)
            self._known.acknowledged(transaction, partition, offset + number)

    def _judge_refusal(self, error: int, what: str) -> None:
        if self._versions.raises_epochs and error in _IN_NO_TRANSACTION:
            seconds_left = self._begun + self._timeout_ms / 1000 - self.process.world.now
            self._known.kept_out(self.transactional_id, self.process.name, what, seconds_left)

    async def _produce(self, partition: TopicPartition, batch: bytearray) -> tuple[int | None, int]:
        """Sends a batch once. Returns the error code and the offset of the response. The error code is None if no
        response arrives."""
        data = ProduceRequestTopic(
            name=partition.topic,
            partition_data=[ProduceRequestPartition(index=partition.partition, records=memoryview(batch))],
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=int(_REQUEST_SECONDS * 1000), topic_data=[data]
        )
        cluster = self._cluster
        try:
            channel = await cluster.channel_of((await cluster.leader_of(partition)).leader)
            answer = await channel.request(
                request, ProduceResponse, timeout_seconds=_REQUEST_SECONDS, at_most=self._versions.produce
            )
        except KafkaError:
            cluster.forget_topic(partition.topic)
            return None, -1
        result = answer.responses[0].partition_responses[0]
        if result.error_code in _LEADER_MOVED:
            cluster.forget_topic(partition.topic)
        return result.error_code, result.base_offset

    async def _add(self, partition: TopicPartition) -> Collection[int] | None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )
        answer = await self._ask(
            request, AddPartitionsToTxnResponse, self.transactional_id, TRANSACTION, self._versions.add
        )
        return (
            None
            if answer is None
            else [
                item.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for item in topic.results_by_partition
            ]
        )

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def _commit_offset(self, transaction: KnownTransaction) -> None:
        if not self._versions.raises_epochs:
            await self._until_taken(self._add_offsets, "a group")
        producer, group = self._producer, self.group
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[self._offset()],
        )
        self._known.sends_offset(group, transaction, self._serial)

        async def commit() -> Collection[int] | None:
            successor = self._known.successor_of(self.transactional_id, producer)
            answer = await self._ask(request, TxnOffsetCommitResponse, group, GROUP, self._versions.commit_offsets)
            if answer is None:
                return None
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                self._known.accepted(producer, successor, "an offset")
            self._judge_refusal(code, "an offset")
            return (code,)

        await self._until_taken(commit, "an offset")
        if self._random.random() < 0.5:
            await self._look_at_offset(is_stable=False)

    def _offset(self) -> TxnOffsetCommitRequestTopic:
        partition = self._partitions[0]
        return TxnOffsetCommitRequestTopic(
            name=partition.topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=self._serial, committed_metadata=""
                )
            ],
        )

    async def _add_offsets(self) -> Collection[int] | None:
        producer = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=self.group,
        )
        answer = await self._ask(
            request, AddOffsetsToTxnResponse, self.transactional_id, TRANSACTION, self._versions.add_offsets
        )
        return None if answer is None else (answer.error_code,)

    async def _look_at_offset(self, *, is_stable: bool) -> None:
        offset = await self._offset_of(self.group, self._partitions[0], is_stable=is_stable)
        if offset is not None:
            self._known.offset_answered(self.group, offset, is_stable=is_stable)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _end(self, transaction: KnownTransaction, *, commits: bool) -> None:
        """Requests the end of the transaction until the result is known, or until the producer has learned that it
        cannot become known."""
        producer = self._producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        transaction.commits = commits
        may_be_taken = False
        while True:
            successor = self._known.successor_of(self.transactional_id, producer)
            answer = await self._ask(request, EndTxnResponse, self.transactional_id, TRANSACTION, self._versions.end)
            error = None if answer is None else answer.error_code
            if answer is not None and error == ErrorCode.NONE:
                break
            if error is not None and error not in (*_MOVED, *_AGAIN):
                self.process.world.tell(self.process.name, f"does not end {transaction.name}: {ErrorCode(error).name}")
                if may_be_taken:
                    self.unknown += 1
                elif commits:
                    self._known.refused(transaction)
                raise _GoneError("it cannot end its transaction")
            may_be_taken = may_be_taken or error not in _AGAIN
            await self._pause(error)
        if not may_be_taken:
            self._known.accepted(producer, successor, "the end of a transaction")
        self._known.ended(transaction, commits)
        if commits:
            self.committed += 1
        else:
            self.aborted += 1
        if answer.producer_id >= 0:
            self._producer = ProducerName(answer.producer_id, answer.producer_epoch)
            self._known.begun(self.transactional_id, self.process.name, self._producer)
            self._sequences.clear()
            self._needs_epoch = False
        if transaction.offset >= 0 and self._random.random() < 0.5:
            await self._look_at_offset(is_stable=True)


class Transformer:
    """A member of a consumer group that reads committed records, and writes a result record for each record that it
    has read."""

    def __init__(
        self,
        process: Process,
        history: History,
        known: TransactionHistory,
        bootstrap: str,
        source: str,
        target: TopicPartition,
        transactional_id: str,
    ) -> None:
        self.process = process
        self.is_stopping = False
        self.transactional_id = transactional_id
        self.written = 0
        self._history = history
        self._known = known
        self._source = source
        self._target = target
        self._random = process.world.random
        self._cluster: Cluster = cluster_of(process, bootstrap)
        self._serial = 0

    async def run(self) -> None:
        while not self.is_stopping:
            producer = Producer(
                self._cluster,
                transactional_id=self.transactional_id,
                transaction_timeout_seconds=6.0,
                random_source=self._random,
                delivery_timeout_seconds=20.0,
                linger_seconds=0.0,
            )
            consumer = GroupConsumer(
                self._cluster,
                TRANSFORMERS,
                [self._source],
                MembershipOptions(session_timeout_seconds=6.0, heartbeat_seconds=1.0, max_poll_interval_seconds=10.0),
                auto_commit_seconds=None,
                auto_offset_reset="earliest",
                isolation_level=_COMMITTED,
            )
            try:
                await producer.init_transactions()
                await self._transform(producer, consumer)
            except KafkaError as error:
                self.process.world.tell(self.process.name, f"begins anew: {type(error).__name__}")
                await asyncio.sleep(self._random.uniform(0.1, 1.0))
            await producer.close(flush=False)
            await consumer.close()
        await self._cluster.close()
        self.process.world.tell(self.process.name, f"has written {self.written} records of others")

    async def _transform(self, producer: Producer, consumer: GroupConsumer) -> None:
        power_losses = self._history.power_losses
        while not self.is_stopping:
            try:
                records = await consumer.poll(0.5, 20)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            if self._history.power_losses != power_losses:
                return  # the next record may be gone, or another's
            if not records:
                continue
            self._serial += 1
            transaction = self._known.open(f"{self.process.name}/{self._serial}")
            producer.begin_transaction()
            sent: list[asyncio.Future[RecordMetadata]] = []
            is_asked = False
            try:
                for partition, found in records.items():
                    for record in found:
                        value = b"%d:%d:%s/%d" % (
                            partition.partition,
                            record.offset,
                            self.process.name.encode(),
                            self._serial,
                        )
                        self._known.sends(transaction, value)
                        sent.append(await producer.send(self._target.topic, value, partition=self._target.partition))
                # The offset after the last record is committed, not the consumer's position. The position may be after
                # a transaction marker that is lost in a loss of power.
                offsets = {partition: Position(found[-1].offset + 1) for partition, found in records.items()}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if self._random.random() < 0.1:
                    raise InvalidTxnStateError("It has second thoughts.")
                transaction.commits = is_asked = True
                await self._commit(producer)
            except KafkaError:
                if producer.transactions is None or not producer.transactions.may_abort:
                    raise
                transaction.commits = is_asked
                await producer.abort_transaction()
                self._known.ended(transaction, False)
                return
            self._known.ended(transaction, True)
            for future in sent:
                self._known.acknowledged(transaction, self._target, future.result().offset)
            self.written += sum(map(len, records.values()))

    @staticmethod
    async def _commit(producer: Producer) -> None:
        """Requests the commit again while the result of the commit is not known."""
        while True:
            try:
                await producer.commit_transaction()
                return
            except (NetworkException, RequestTimedOutError):
                if producer.transactions is None or producer.transactions.may_abort:
                    raise


class CommittedReader:
    """A read_committed consumer that reads from the beginning. The `TransactionHistory` checks its records."""

    def __init__(
        self,
        process: Process,
        history: History,
        known: TransactionHistory,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.process = process
        self.is_stopping = False
        self._history = history
        self._known = known
        self._partitions = partitions
        self._cluster: Cluster = cluster_of(process, bootstrap)
        #: For each partition, the offset below which this reader has got all records.
        self.expected = dict.fromkeys(partitions, 0)

    async def run(self) -> None:
        consumer = Consumer(self._cluster, isolation_level=_COMMITTED, max_wait_seconds=0.5)
        begun: int | None = None
        while not self.is_stopping:
            try:
                if begun != self._history.power_losses:
                    # The reader may have read records that were not synced and that are now lost.
                    losses = self._history.power_losses
                    await consumer.assign(dict.fromkeys(self._partitions, EARLIEST))
                    begun, self.expected = losses, dict.fromkeys(self._partitions, 0)
                found = await consumer.poll(0.5)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            if begun == self._history.power_losses:
                self._judge(found)
        await consumer.close()
        await self._cluster.close()

    def _judge(self, found: Mapping[TopicPartition, Sequence[Record]]) -> None:
        for partition, records in found.items():
            for record in records:
                self._known.received(
                    self.process.name, partition, self.expected[partition], record.offset, record.value or b""
                )
                self.expected[partition] = record.offset + 1

    async def read_all(self, ends: Mapping[TopicPartition, int]) -> None:
        """Reads all records below the offsets `ends`. It is called after all other clients have ended."""
        consumer = Consumer(self._cluster, isolation_level=_COMMITTED, max_wait_seconds=0.2)
        while not consumer.assignment():
            try:
                await consumer.assign(dict.fromkeys(ends, EARLIEST))
            except KafkaError:
                await asyncio.sleep(0.5)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            self._judge(await consumer.poll(0.5))
        for partition, end in ends.items():
            self._known.passed(partition, self.expected[partition], end)
        await consumer.close()
        await self._cluster.close()


class OffsetReader(_Asking):
    """Fetches the committed offsets of groups, after all transactions have ended."""

    async def read(self, groups: Iterable[tuple[str, TopicPartition]]) -> dict[tuple[str, TopicPartition], int]:
        found: dict[tuple[str, TopicPartition], int] = {}
        for group, partition in groups:
            offset = None
            while offset is None:
                offset = await self._offset_of(group, partition, is_stable=True)
                if offset is None:
                    await self._pause()
            found[group, partition] = offset
        await self._cluster.close()
        return found
