"""Verifies transactions (KIP-890). Before a leader appends the first batch of a transaction, it asks the transaction
coordinator if the partition is in the transaction. For newer clients it asks the coordinator to add the partition.

  the coordinator is this broker    asked at once
  it is another broker              asked over a connection; later questions go in the next request
  it is not known                   COORDINATOR_NOT_AVAILABLE
  the connection breaks             NETWORK_EXCEPTION

While the previous transaction is being ended, the coordinator answers CONCURRENT_TRANSACTIONS. If the partition must
be added, the leader then asks again after add.partitions.to.txn.retry.backoff.ms, for at most
add.partitions.to.txn.retry.backoff.max.ms. Each question begins a new verification and makes earlier verifications
invalid (`Guards`), because the end marker of the previous transaction may arrive at any moment. If the marker arrives
during the last question, the leader asks once more. Asking again is safe: the coordinator adds a partition only once,
and answers with an error if the new transaction has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.broker.coordinators.transactions import Transactions
from jesenska.broker.peer_task import PeerTask
from jesenska.broker.shared_parts import SharedParts
from jesenska.log.segments.producer_state import Verification
from jesenska.net.channel import Channel
from jesenska.replication.partition import Partition
from jesenska.transactions.events import AddPartitions, Producer, ProducerAnswer
from jesenska.transactions.transaction import RAISES_EPOCH
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_TRANSACTIONS_AT_ONCE: Final = 500
_FIRST_BETWEEN_BROKERS: Final = 4

Results = dict[TopicPartition, ErrorCode]
Done = Callable[[Results], None]


class Guards:
    """Marks, in the logs of some partitions, that a producer's next transaction is being verified
    (`ProducerState.begin_verification`). The constructor sets these marks. The end marker of a transaction removes the
    marks, so that a late batch of the ended transaction is refused."""

    __slots__ = ("_noted", "_now_ms", "_sequences", "adds", "knows_abortable", "producer")

    def __init__(
        self,
        producer: Producer,
        sequences: Mapping[Partition, int],
        now_ms: Callable[[], int],
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> None:
        """`sequences`: the first sequence number to be written to each partition, -1 if there is none. `adds`: the
        coordinator is asked to add the partitions. `knows_abortable`: the producer knows the error
        TRANSACTION_ABORTABLE."""
        self.producer = producer
        self.adds = adds
        self.knows_abortable = knows_abortable
        self._sequences = sequences
        self._now_ms = now_ms
        self._noted: dict[Partition, Verification] = {}
        self.take()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(partition.topic_partition for partition in self._sequences)

    def take(self) -> None:
        """Marks in the logs again that the transaction is being verified, because the end marker of the previous
        transaction may have removed the marks."""
        for partition, sequence in self._sequences.items():
            # If this broker no longer leads a partition, the append raises the error.
            with suppress(KafkaError):
                producers = partition.leader_log().producers
                self._noted[partition] = producers.begin_verification(
                    *self.producer, sequence, self._now_ms(), is_for_new_clients=self.adds
                )

    def hold(self) -> bool:
        """Returns True if `holds_for` returns True for every partition that this broker still leads."""
        for partition in self._sequences:
            with suppress(KafkaError):
                if not self.holds_for(partition):
                    return False
        return True

    def holds_for(self, partition: Partition) -> bool:
        """Returns True if the partition's log is still marked as "transaction being verified", or if a transaction of
        the producer is open in the partition. Raises KafkaError if this broker no longer leads the partition."""
        return partition.leader_log().producers.is_verified(*self.producer, self._noted.get(partition))


class _Question(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    adds: bool
    done: Done

    def answer(self, error: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, error))


class TransactionVerification:
    """Asks transaction coordinators if the partitions that this broker leads are in a producer's transaction.
    `connect` opens a connection to a broker."""

    def __init__(
        self, core: SharedParts, transactions: Transactions, connect: Callable[[int], Awaitable[Channel]]
    ) -> None:
        self._core = core
        self._transactions = transactions
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._peers: dict[int, _Peer] = {}

    @property
    def is_enabled(self) -> bool:
        return self._core.config.boolean("transaction.partition.verification.enable")

    async def close(self) -> None:
        """Stops asking coordinators."""
        await asyncio.gather(*(peer.close() for peer in self._peers.values()))

    def ask(self, transactional_id: str, guards: Guards, done: Done) -> None:
        """Asks the coordinator about the partitions of `guards`. Calls `done` with an error for each partition, as the
        producer must get it; the call may come before this method returns. If the coordinator must add the partitions,
        the logs are marked again (`Guards.take`) before each further question."""
        pause_seconds = ends = 0.0
        if guards.adds:
            config = self._core.config
            pause_seconds = config.integer("add.partitions.to.txn.retry.backoff.ms") / 1000
            ends = self._loop.time() + config.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        _Verified(self.put, self._loop, transactional_id, guards, done, pause_seconds, ends).ask()

    def put(self, question: _Question) -> None:
        """Sends one question to the coordinator of its transactional id."""
        leader = self._transactions.leader_for(question.transactional_id)
        if leader == self._core.broker_id:
            self._ask_here(question)
        elif leader not in self._core.view.brokers:
            question.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            peer = self._peers.get(leader)
            if peer is None:
                peer = self._peers[leader] = _Peer(lambda: self._connect(leader))
            peer.put(question)

    def _ask_here(self, question: _Question) -> None:
        transactional_id, producer, partitions = question[:3]
        try:
            if not question.adds:
                question.done(self._transactions.verify(transactional_id, producer, partitions))
                return

            def reply(answer: ProducerAnswer) -> None:
                question.answer(answer.error)

            self._transactions.submit(
                transactional_id,
                lambda token: AddPartitions(token, transactional_id, producer, partitions, RAISES_EPOCH),
                reply,
            )
        except KafkaError as error:
            question.answer(error.code)


class _Verified:
    """The verification of one producer's transaction. If the coordinator must add partitions and cannot do so yet,
    this class asks the coordinator again after a pause."""

    __slots__ = ("_done", "_ends", "_guards", "_loop", "_pause_seconds", "_put", "_question")

    def __init__(
        self,
        put: Callable[[_Question], None],
        loop: asyncio.AbstractEventLoop,
        transactional_id: str,
        guards: Guards,
        done: Done,
        pause_seconds: float,
        ends: float,
    ) -> None:
        self._put = put
        self._guards = guards
        self._done = done
        self._pause_seconds = pause_seconds
        self._ends = ends
        self._loop = loop
        self._question = _Question(transactional_id, guards.producer, guards.partitions, guards.adds, self._answered)

    def ask(self) -> None:
        self._put(self._question)

    def _ask_again(self) -> None:
        self._guards.take()
        self.ask()

    def _answered(self, results: Results) -> None:
        guards = self._guards
        if guards.adds:
            if ErrorCode.NONE in results.values() and not guards.hold():
                results = dict.fromkeys(results, ErrorCode.CONCURRENT_TRANSACTIONS)
            is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in results.values()
            if is_concurrent and self._loop.time() + self._pause_seconds <= self._ends:
                self._loop.call_later(self._pause_seconds, self._ask_again)
                return
        self._done({key: _for_producer(error, guards.knows_abortable) for key, error in results.items()})


class _Peer(PeerTask):
    """Sends questions to one other broker. One request is in flight at a time; later questions go in the next
    request."""

    def __init__(self, connect: Callable[[], Awaitable[Channel]]) -> None:
        super().__init__(connect)
        self._waiting: list[_Question] = []

    def put(self, question: _Question) -> None:
        self._waiting.append(question)
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            taken = self._take()
            try:
                results = await self._send(taken)
            except KafkaError as error:
                logger.info("a coordinator cannot be asked about %d transactions: %s", len(taken), error)
                results = {}
                self._disconnect()
            except Exception:
                logger.exception("a coordinator could not be asked about transactions")
                results = {}
                self._disconnect()
            for name, question in taken.items():
                found = results.get(name)
                if found is None:
                    question.answer(ErrorCode.NETWORK_EXCEPTION)
                else:
                    question.done({key: found.get(key, ErrorCode.UNKNOWN_SERVER_ERROR) for key in question.partitions})

    def _take(self) -> dict[str, _Question]:
        """Takes at most one waiting question for each transactional id from the queue, because an answer is matched to
        its question by the transactional id."""
        taken: dict[str, _Question] = {}
        left = []
        for question in self._waiting:
            if question.transactional_id in taken or len(taken) >= _TRANSACTIONS_AT_ONCE:
                left.append(question)
            else:
                taken[question.transactional_id] = question
        self._waiting = left
        if not left:
            self._news.clear()
        return taken

    async def _send(self, taken: dict[str, _Question]) -> dict[str, Results]:
        channel = await self._connected()
        if channel.version_for(AddPartitionsToTxnRequest) < _FIRST_BETWEEN_BROKERS:
            # The other broker's release has no verification, so all partitions count as verified.
            return {name: dict.fromkeys(question.partitions, ErrorCode.NONE) for name, question in taken.items()}
        request = AddPartitionsToTxnRequest()
        for name, question in taken.items():
            topics = numbers_by_topic(question.partitions)
            request.transactions.append(
                AddPartitionsToTxnRequestTransaction(
                    transactional_id=name,
                    producer_id=question.producer.producer_id,
                    producer_epoch=question.producer.epoch,
                    verify_only=not question.adds,
                    topics=[
                        AddPartitionsToTxnRequestTopic(name=topic, partitions=numbers)
                        for topic, numbers in topics.items()
                    ],
                )
            )
        answer = await channel.request(request, AddPartitionsToTxnResponse, timeout_seconds=_TIMEOUT_SECONDS)
        if answer.error_code != ErrorCode.NONE:
            # The other broker does not authorize this broker, so nothing can be verified.
            return {
                name: dict.fromkeys(question.partitions, ErrorCode.INVALID_TXN_STATE)
                for name, question in taken.items()
            }
        return {
            item.transactional_id: {
                TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
                for topic in item.topic_results
                for result in topic.results_by_partition
            }
            for item in answer.results_by_transaction
        }


def must_be_verified(partition: Partition, producer: Producer) -> bool:
    """Returns True if no transaction of the producer is open in the partition. The coordinator must then be asked
    before a batch is appended. Raises KafkaError if the producer's epoch is old, or if this broker does not lead the
    partition."""
    producers = partition.leader_log().producers
    producers.check_epoch(*producer)
    return not producers.has_open_transaction(*producer)


def _for_producer(error: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Converts an error of the transaction coordinator to the error that the producer gets in the Produce answer."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
