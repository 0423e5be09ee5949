"""A producer's transactions: the requests to their coordinator, and the steps that each state allows.

    state            means                                                   becomes
    UNINITIALIZED    the coordinator has not been asked yet                  READY
    READY            no transaction is open                                  OPEN
    OPEN             records and offsets belong to the transaction           ENDING; DOOMED by an error
    DOOMED           the transaction can only be aborted                     ENDING
    ENDING           responses to sent records are awaited, then the         READY
                     coordinator ends the transaction
    FENCED           another producer has taken the id, or the cluster       -
                     refuses this producer: nothing is possible any more

If the cluster has `transaction.version` 2 (KIP-890), partitions belong to a transaction from the first batch that is
sent to them, and each end returns the epoch of the next transaction. In other clusters partitions are registered with
the coordinator first. If a transaction was aborted while responses were missing, a new epoch is requested (KIP-360),
since it is unknown which sequence numbers the brokers have received.

Source: KIP-98, KIP-360, KIP-447, KIP-890."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from jesenska.base.errors import (
    ErrorCode,
    InvalidTxnStateError,
    KafkaError,
    NetworkException,
    ProducerFencedError,
    RequestTimedOutError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.client.cluster import Cluster
from jesenska.client.coordinators import COORDINATOR_PASSES, TRANSACTION, find_coordinator
from jesenska.client.positions import Position
from jesenska.net.channel import Channel
from jesenska.wire.language import Message
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

_FEATURE = "transaction.version"
#: The highest versions that a client may use. Higher versions are for brokers, or for clusters with
#: transaction.version 2.
_ADD_PARTITIONS_OF_CLIENTS = 3
_LAST_OF_VERSION_1 = 4
_LAST_PRODUCE_OF_VERSION_1 = 11
_PRODUCE_OF_VERSION_2 = 12
#: The first version of InitProducerId in which a producer sends its present id and epoch (KIP-360).
_KEEPS_ID = 3
_COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_AGAIN = (
    *COORDINATOR_PASSES,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
#: Errors of the transaction coordinator after which the producer cannot continue.
_FINAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
#: The pause in seconds before the next attempt while the coordinator is still ending the previous transaction.
_CONCURRENT_PAUSE_SECONDS = 0.02


class TransactionState(Enum):
    UNINITIALIZED = "uninitialized"
    READY = "ready"
    OPEN = "open"
    DOOMED = "doomed"
    ENDING = "ending"
    FENCED = "fenced"


class GroupMetadata(NamedTuple):
    """The group member that commits offsets in a transaction. By it the coordinator refuses a member that has been
    replaced (KIP-447). Without a member id the coordinator accepts offsets from any client."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Transactions:
    """The transactions of one producer with the transactional id `transactional_id`. Methods raise KafkaError:
    ProducerFencedError if another producer has that id now, InvalidTxnStateError if the state forbids the call."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_seconds: float) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        #: The producer id and epoch of the batches.
        self.producer: tuple[int, int] | None = None
        #: True if the cluster's feature transaction.version is 2 (KIP-890).
        self.is_version_2 = False
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._coordinator: int | None = None
        self._group_coordinators: dict[str, int] = {}
        self._partitions: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._has_something = False
        self._needs_epoch = False
        self._aborts = False
        self._is_guest = False
        self._error: KafkaError | None = None

    @classmethod
    def joined(
        cls, cluster: Cluster, transactional_id: str, producer: tuple[int, int], *, is_version_2: bool
    ) -> Transactions:
        """Returns an object that adds records to the open transaction of another producer. Only that producer can end
        the transaction. Records may be added only to partitions to which no other part of that producer writes."""
        made = cls(cluster, transactional_id, 0.0)
        made.producer, made.is_version_2, made.state = producer, is_version_2, TransactionState.OPEN
        made._is_guest = True
        return made

    def note_written(self) -> None:
        """Records that other processes have written in this transaction, so that it does not count as empty at its
        end."""
        self._has_something = True

    # --- what may be done --------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raises an error if no transaction is open. If an earlier error has made a commit impossible, that error is
        raised."""
        if self.state is TransactionState.OPEN:
            return
        if self._error is not None and self.state in (TransactionState.DOOMED, TransactionState.FENCED):
            raise self._error
        if self.state is TransactionState.UNINITIALIZED:
            raise InvalidTxnStateError(
                f"The producer {self.transactional_id} takes no records yet: await init_transactions() and "
                f"begin_transaction() first."
            )
        raise InvalidTxnStateError(
            f"The producer {self.transactional_id} has no open transaction: call begin_transaction() first."
        )

    def why_not_sent(self) -> KafkaError | None:
        """Returns the reason why a batch of the transaction must not be sent; None if it may be sent."""
        if self.state in (TransactionState.DOOMED, TransactionState.FENCED):
            return self._error
        if self.state is TransactionState.ENDING and self._aborts:
            return InvalidTxnStateError("The transaction was aborted before the record was sent.")
        return None

    def doom(self, error: KafkaError) -> None:
        """Marks the transaction so that it can only be aborted: a record was not written, or it is unknown if it
        was."""
        self._needs_epoch = True
        if self.state is TransactionState.OPEN or (self.state is TransactionState.ENDING and not self._aborts):
            self.state, self._error = TransactionState.DOOMED, error

    @property
    def may_abort(self) -> bool:
        return self.state in (TransactionState.OPEN, TransactionState.DOOMED)

    @property
    def produce_version(self) -> int:
        """The highest version of Produce to be used. From version 12 on, Produce itself adds partitions to the
        transaction."""
        return _PRODUCE_OF_VERSION_2 if self.is_version_2 else _LAST_PRODUCE_OF_VERSION_1

    # --- one transaction ---------------------------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Registers the transactional id with its coordinator. A transaction that another producer with this id has
        left open is aborted, and that producer is fenced."""
        if self.state is not TransactionState.UNINITIALIZED:
            raise InvalidTxnStateError(f"The producer {self.transactional_id} is initialized already.")
        await self._take_id(None)
        self.state = TransactionState.READY

    async def _take_id(self, present: tuple[int, int] | None) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=int(self._timeout_seconds * 1000)
        )
        if present is not None and (await self._channel()).version_for(InitProducerIdRequest) >= _KEEPS_ID:
            request.producer_id, request.producer_epoch = present
        answer = await self._ask(request, InitProducerIdResponse, lambda answer: (answer.error_code,))
        self._judge(answer.error_code, "gives no producer id")
        self.producer = answer.producer_id, answer.producer_epoch
        self._needs_epoch = False

    def begin(self) -> None:
        if self.state is not TransactionState.READY:
            if self.state in (TransactionState.OPEN, TransactionState.ENDING):
                raise InvalidTxnStateError(
                    f"A transaction of the producer {self.transactional_id} is open already: commit or abort it first."
                )
            if self._error is not None:
                raise self._error
            raise InvalidTxnStateError(
                f"The producer {self.transactional_id} is not initialized: await init_transactions() first."
            )
        self.state = TransactionState.OPEN

    async def add(self, partitions: Collection[TopicPartition]) -> None:
        """Prepares for batches of these partitions: registers them with the coordinator, if the cluster's
        transaction.version requires it."""
        self._has_something = True
        if self.is_version_2:
            return
        async with self._adding:
            missing = [partition for partition in partitions if partition not in self._partitions]
            if not missing or self.producer is None:
                return
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnRequestTopic(name=name, partitions=numbers)
                    for name, numbers in numbers_by_topic(missing).items()
                ],
            )

            def codes(answer: AddPartitionsToTxnResponse) -> Collection[int]:
                return [
                    item.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for item in topic.results_by_partition
                ]

            answer = await self._ask(request, AddPartitionsToTxnResponse, codes, at_most=_ADD_PARTITIONS_OF_CLIENTS)
            failed = (code for code in codes(answer) if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED))
            self._judge(next(failed, ErrorCode.NONE), "takes no partitions")
            self._partitions.update(missing)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, Position], group: GroupMetadata, metadata: str = ""
    ) -> None:
        """Adds the group's offsets to the transaction. They take effect only when it is committed. `metadata` is
        stored with each offset."""
        self.require_open()
        if not offsets:
            return
        assert self.producer is not None, "it is initialized"
        producer_id, epoch = self.producer
        self._has_something = True
        if not self.is_version_2:
            added = await self._ask(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=group.group_id,
                ),
                AddOffsetsToTxnResponse,
                lambda answer: (answer.error_code,),
            )
            self._judge(added.error_code, "takes no offsets")
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, number), position in offsets.items():
            topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )

        def codes(answer: TxnOffsetCommitResponse) -> Collection[int]:
            return [item.error_code for topic in answer.topics for item in topic.partitions]

        at_most = None if self.is_version_2 else _LAST_OF_VERSION_1
        answer = await self._asked(
            request,
            TxnOffsetCommitResponse,
            codes,
            at_most,
            lambda: self._channel_of_group(group.group_id),
            self._forget_groups,
        )
        failed = (code for code in codes(answer) if code != ErrorCode.NONE)
        self._judge(next(failed, ErrorCode.NONE), f"takes no offsets of group {group.group_id}")

    async def end(self, committed: bool, flush: Callable[[], Awaitable[None]]) -> None:
        """Commits or aborts the transaction. `flush` waits for the responses to everything that was sent. On an abort,
        unsent records are dropped. If the coordinator does not answer (NetworkException, RequestTimedOutError), it is
        unknown if the transaction has ended; the same call may then be made again."""
        if self._is_guest:
            raise InvalidTxnStateError(
                f"Only the producer that began the transaction of {self.transactional_id} can end it."
            )
        is_asked_again = self.state is TransactionState.ENDING and self._aborts is not committed
        if not is_asked_again and (committed or not self.may_abort):
            self.require_open()
        self.state, self._aborts = TransactionState.ENDING, not committed
        await flush()
        if self._is_doomed():
            assert self._error is not None, "an error has doomed it"
            raise self._error
        if self._has_something:
            assert self.producer is not None, "it is initialized"
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                committed=committed,
            )
            at_most = None if self.is_version_2 else _LAST_OF_VERSION_1
            answer = await self._ask(request, EndTxnResponse, lambda answer: (answer.error_code,), at_most=at_most)
            if not (answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not committed):
                self._judge(answer.error_code, "does not end the transaction")
            if answer.producer_id >= 0:
                self.producer = answer.producer_id, answer.producer_epoch
                self._needs_epoch = False
        self._partitions.clear()
        self._has_something, self._error = False, None
        if self._needs_epoch:
            await self._take_id(self.producer)
        self.state, self._aborts = TransactionState.READY, False

    def _is_doomed(self) -> bool:
        """Returns true if the transaction can only be aborted. This is a method, because the state may change while
        the caller waits."""
        return self.state is TransactionState.DOOMED

    # --- the coordinators --------------------------------------------------------------------------------------------

    def _judge(self, code: int, what: str) -> None:
        """Raises the error for a code in a coordinator's response, and changes the state of the transaction
        accordingly. Does nothing for the code NONE."""
        if code == ErrorCode.NONE:
            return
        if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            error: KafkaError = ProducerFencedError(
                f"Another producer has the transactional id {self.transactional_id} now: this producer cannot "
                "continue; close it."
            )
        elif code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            allowed = "more than 0 and no more than the brokers' transaction.max.timeout.ms"
            error = KafkaError.of(
                code,
                f"The brokers do not take a transaction.timeout.ms of {int(self._timeout_seconds * 1000)}: it must "
                f"be {allowed}.",
            )
        else:
            error = KafkaError.of(
                code, f"The coordinator of the transactions of {self.transactional_id} {what}: {error_name(code)}."
            )
        if code in _FINAL or (code == ErrorCode.INVALID_TXN_STATE and self.state is TransactionState.ENDING):
            self.state, self._error = TransactionState.FENCED, error
        elif self.state is not TransactionState.UNINITIALIZED:
            if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                self._needs_epoch = True
            self.state, self._error = TransactionState.DOOMED, error
        raise error

    async def _ask(
        self,
        request: Message,
        response: type[Answer],
        codes: Callable[[Answer], Collection[int]],
        *,
        at_most: int | None = None,
    ) -> Answer:
        return await self._asked(request, response, codes, at_most, self._channel, self._forget)

    async def _asked(
        self,
        request: Message,
        response: type[Answer],
        codes: Callable[[Answer], Collection[int]],
        at_most: int | None,
        channel_of: Callable[[], Awaitable[Channel]],
        forget: Callable[[], None],
    ) -> Answer:
        """Sends a request to a coordinator and returns the response. The request is repeated while the coordinator is
        being looked up, is loading, or is ending the previous transaction, for up to twice the cluster's
        `request_timeout_seconds`."""
        cluster = self._cluster
        deadline = cluster.clock.monotonic() + 2 * cluster.request_timeout_seconds
        attempts = 0
        while True:
            attempts += 1
            pause = cluster.retry_pause_seconds(attempts)
            try:
                channel = await channel_of()
                answer = await channel.request(
                    request, response, timeout_seconds=cluster.request_timeout_seconds, at_most=at_most
                )
            except (NetworkException, RequestTimedOutError):
                forget()
                if cluster.clock.monotonic() > deadline:
                    raise
            else:
                found = {code for code in codes(answer) if code in _AGAIN}
                if not found or cluster.clock.monotonic() > deadline:
                    return answer
                if found & set(_COORDINATOR_MOVED):
                    forget()
                elif found == {ErrorCode.CONCURRENT_TRANSACTIONS}:
                    pause = min(pause, _CONCURRENT_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _channel(self) -> Channel:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._cluster, self.transactional_id, TRANSACTION)
        channel = await self._cluster.channel_of(self._coordinator)
        if self.state in (TransactionState.UNINITIALIZED, TransactionState.READY):
            self.is_version_2 = channel.features.get(_FEATURE, 0) >= 2
        return channel

    def _forget(self) -> None:
        self._coordinator = None

    async def _channel_of_group(self, group_id: str) -> Channel:
        if group_id not in self._group_coordinators:
            self._group_coordinators[group_id] = await find_coordinator(self._cluster, group_id)
        return await self._cluster.channel_of(self._group_coordinators[group_id])

    def _forget_groups(self) -> None:
        self._group_coordinators.clear()
