"""Produce (key 0), versions 0-13. Each line is what a version adds:

    0-2    message sets of formats v0 and v1, made into one batch for each partition (`records.message_set`)
    3      record batches v2, transactional id
    5      answers the log start offset
    7      zstd (in 3-6 UNSUPPORTED_COMPRESSION_TYPE)
    8      errors by record and error messages
    9      compact encoding
    10     id and address of a partition's new leader in the answer
    13     topic ids instead of names

Each partition's records are checked (header, CRC, the records inside) and appended from the request's buffer, without
a copy. Batches up to 64 KB are checked in the event loop. Compressed batches are checked there only if the batches of
one request decompress to at most INLINE_DECOMPRESSED_MAX_BYTES. The reason: checking 16 KB of lz4 takes 8 us, and
passing it to a thread takes ten times as long. Larger batches are checked in the thread pool, all batches of a request
together, before any of them is appended. During the check no further request of this connection is handled, which
preserves the order of batches.

A request with acks=0 has no answer. An error closes the connection, as in Kafka, so that the producer learns of the
error. With acks=all, min.insync.replicas is checked first, and the answer is sent when every in-sync replica has the
records. After the request's `timeout_ms` the answer is REQUEST_TIMED_OUT, though the records may be committed later. A
partition without other replicas is answered without waiting. A write that must wait for a flush of its log directory
delays the answer, not the event loop.

Message sets are converted in the event loop if they are small and either uncompressed or compressed with snappy or
lz4, otherwise in the thread pool. A message set without a complete message is not an error: nothing is appended, and
the base offset in the answer is -1.

Before the first batch of a transaction is appended to a partition, the transaction coordinator is asked if the
partition is in the transaction (KIP-890). Otherwise a batch whose transaction has ended could block read_committed
consumers forever. The question depends on the version; `transaction.partition.verification.enable=false` disables it
for versions up to 11:

    up to 10   is the partition in the transaction? INVALID_TXN_STATE if it is not
    11         the same question; TRANSACTION_ABORTABLE if it is not
    12         the coordinator adds the partition

A batch with an older producer epoch than the partition knows is answered INVALID_PRODUCER_EPOCH before the coordinator
is asked, as in Apache Kafka 4.3.1. So no transaction begins with such a batch.

If the coordinator cannot be asked, the answer is NOT_ENOUGH_REPLICAS, which every client retries. Versions below 12
get this error also in place of CONCURRENT_TRANSACTIONS. While the coordinator is asked, no further request of this
connection is handled. A request with a transactional batch but no transactional id is refused as a whole, for all acks
(TRANSACTIONAL_ID_AUTHORIZATION_FAILED). As in Apache Kafka, two unusual requests are accepted: a request with a
transactional id but without a transactional batch, and a request with a transactional batch without a producer id.

As in Apache Kafka, if a request names a partition twice, the last records are written, and a topic without partitions
is not answered. If the first or the last records are malformed, the partition is answered with this error and, unlike
in Kafka, nothing is written. A batch with an unknown magic number cannot be read, so the whole request is refused
(CORRUPT_MESSAGE). If a transactional batch comes before this batch and the request has no transactional id, the answer
is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. If acks is not 0, 1 or -1, the answer for each partition is
INVALID_REQUIRED_ACKS; an unknown partition and a malformed batch are answered with their own errors. An error answer
contains the log start offset if the error was found in the log or in the records. Otherwise it contains -1.

The quota for produced bytes is applied by the connection (`broker.requests.connection`), not here."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial

from jesenska.base.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicException,
    InvalidTxnStateError,
    KafkaError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    TransactionalIdAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import (
    COST_OF_CONVERTING,
    COST_OF_RECOMPRESSING,
    INLINE_CHECK_MAX_BYTES,
    INLINE_DECOMPRESSED_MAX_BYTES,
)
from jesenska.broker.coordinators.transaction_verification import Guards, must_be_verified
from jesenska.broker.metadata_cache import Topic
from jesenska.broker.requests.connection import LATER, NO_ANSWER, Context, Outcome
from jesenska.broker.requests.families import ProduceFamily
from jesenska.broker.requests.gate import handles
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.check import NEWEST_PRODUCE_VERSION, CheckRules, check_batches, check_within
from jesenska.records.faults import RecordErrors
from jesenska.records.header import (
    BATCH_LENGTH_OFFSET,
    CODEC_MASK,
    LEADER_EPOCH_OFFSET,
    LENGTH_OVERHEAD,
    LOW_ATTRIBUTES_OFFSET,
    MAGIC_OFFSET,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
)
from jesenska.records.message_set import TakesLongerError, to_batch
from jesenska.records.recompress import recompress
from jesenska.replication.partition import ACKS_ALL, Partition
from jesenska.transactions.events import Producer
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseCurrentLeader,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)

logger = logging.getLogger(__name__)

_ACKS = (1, -1, 0)
_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_LEADERS = 10
_FIRST_WITH_IDS = 13
_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS = 12
_ADMIN_CLIENT = "__admin_client"
#: The kinds of a partition's first batch: plain, transactional, or of an unknown format.
_PLAIN, _OF_TRANSACTION, _UNREADABLE = 0, 1, 2
#: Errors that are answered without a message, as in Kafka.
_WITHOUT_WORDS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.REQUEST_TIMED_OUT,
)
#: Errors that are found before the log is read. Their answers do not contain the log start offset.
_BEFORE_THE_LOG = (
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
#: Errors which mean that the transaction coordinator cannot be asked at the moment. Old clients do not expect them in
#: the answer to a Produce request, so they are answered as NOT_ENOUGH_REPLICAS.
_ASK_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Item:
    """The records of one partition in a Produce request, with the partition's part of the answer."""

    __slots__ = ("answer", "checked", "error", "guards", "is_unverified", "partition", "produce", "records", "rules")

    def __init__(self, index: int) -> None:
        self.answer = ProduceResponsePartition(index=index)
        self.partition: Partition | None = None
        self.records: memoryview | None = None
        self.rules: CheckRules | None = None
        self.checked: list[BatchHeader] | None = None
        self.error: KafkaError | None = None
        #: Guards that notice if the transaction ends while the coordinator is asked about it. None if the coordinator
        #: is not asked.
        self.guards: Guards | None = None
        #: True if the transaction coordinator or an older producer epoch refused the batch, before the log was read.
        self.is_unverified = False
        self.produce: _Produce | None = None

    def written(self, outcome: AppendResult | KafkaError) -> None:
        """Called when an append that had to wait is done: `outcome` is its result, or its error."""
        produce, self.produce = self.produce, None
        if produce is not None:  # None after the request's time-out
            produce.written(self, outcome)


class _Kinds:
    """Stores the kinds of the first batches of a request's partitions, to refuse a request that has an invalid mix of
    kinds."""

    __slots__ = ("_has_unreadable", "_unreadable_is_first", "has_transactional")

    def __init__(self) -> None:
        self.has_transactional = False
        self._has_unreadable = False
        #: True if no transactional batch comes before the first unreadable batch.
        self._unreadable_is_first = False

    def add_all(self, topics: list[ProduceRequestTopic]) -> None:
        for topic in topics:
            for data in topic.partition_data:
                self.add(data)

    def add(self, data: ProduceRequestPartition) -> None:
        records = data.records
        if not isinstance(records, memoryview):
            return
        kind = _kind_of(records)
        if kind == _OF_TRANSACTION:
            self.has_transactional = True
        elif kind == _UNREADABLE:
            self._has_unreadable = True
            if not self.has_transactional:
                self._unreadable_is_first = True

    def refusal(self, request: ProduceRequest) -> KafkaError | None:
        """Returns the error for the whole request, or None if the request is not refused as a whole."""
        if self.has_transactional and not self._unreadable_is_first and request.transactional_id is None:
            return TransactionalIdAuthorizationFailedError("a transactional batch came without a transactional id")
        if self._has_unreadable:
            return CorruptMessageError(
                "a batch of the request has an unknown magic number, so that nothing of the request is taken"
            )
        return None


class _Produce:
    """A Produce request that is being handled: its partitions, and the number of appends that have not finished."""

    __slots__ = (
        "_context",
        "_failed",
        "_items",
        "_moved",
        "_pending",
        "_response",
        "_returned",
        "_stop_waiting",
        "_uses",
        "acks",
        "timeout_ms",
    )

    def __init__(self, uses: ProduceFamily, context: Context, request: ProduceRequest) -> None:
        self._uses = uses
        self._context = context
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._response = ProduceResponse()
        self._items: list[_Item] = []
        self._pending = 0
        self._failed: KafkaError | None = None
        #: The broker ids of the new leaders for which the answer contains addresses; None if it names no new leader.
        self._moved: set[int] | None = None
        self._returned = False
        self._stop_waiting: Callable[[], None] | None = None

    def read(
        self, topics: list[ProduceRequestTopic], refusal: KafkaError | None, kinds: _Kinds, now_ms: int
    ) -> list[_Item]:
        """Finds each partition of the request, and checks its records here if that is fast enough. Returns the
        partitions whose records must be checked in the thread pool. `refusal` is the error of a request with invalid
        acks, else None."""
        pooled: list[_Item] = []
        items, context, view = self._items, self._context, self._uses.view
        version = context.version
        budget = INLINE_DECOMPRESSED_MAX_BYTES
        for wanted in topics:
            topic = view.by_id.get(wanted.topic_id) if version >= _FIRST_WITH_IDS else view.topics.get(wanted.name)
            answers = []
            for data in wanted.partition_data:
                item = _Item(data.index)
                items.append(item)
                answers.append(item.answer)
                if refusal is not None:
                    item.error = _without_acks(refusal, topic, data, version)
                else:
                    try:
                        budget -= _prepare(item, topic, data, version, context.client_id, budget, now_ms)
                    except KafkaError as error:
                        item.error = error
                if item.checked is not None and item.error is None:
                    if item.checked[0].attributes & TRANSACTIONAL_BIT:
                        kinds.has_transactional = True
                    continue
                kinds.add(data)
                if item.error is None:
                    pooled.append(item)
            self._response.responses.append(
                ProduceResponseTopic(name=wanted.name, topic_id=wanted.topic_id, partition_responses=answers)
            )
        return pooled

    def refuse(self, error: KafkaError) -> None:
        """Refuses the whole request with this error. The answer then contains no log start offset."""
        for item in self._items:
            item.error = error
            item.partition = None

    def check_in_pool(self, pooled: list[_Item], transactional_id: str | None) -> None:
        """Checks the records of these partitions in the thread pool, then verifies transactions and appends all
        records."""
        for item in self._items:
            if item.records is not None:
                item.records = self._context.keep(item.records)
        self._uses.pool.submit(
            partial(_check_all, pooled, self._context.version), partial(self._checked, transactional_id)
        )

    def _checked(self, transactional_id: str | None) -> None:
        if self._context.gone:
            return
        now_ms = self._uses.clock.now_ms()
        self.finish(
            self.append(now_ms) if transactional_id is None else self.verify(transactional_id, now_ms, is_kept=True)
        )

    def finish(self, outcome: Outcome) -> None:
        """Sends the answer of a Produce request whose handler has returned already. Does nothing if `outcome` is
        LATER, because the answer is sent later."""
        if isinstance(outcome, ProduceResponse):
            self._context.answer(outcome)
        elif outcome is NO_ANSWER:
            self._context.no_answer()

    def append(self, now_ms: int) -> Outcome:
        """Appends the records of every partition that has no error. Returns the answer, or LATER if an append waits
        for a flush or for replicas."""
        for item in self._items:
            if item.error is None:
                partition = item.partition
                assert partition is not None
                assert item.records is not None
                if item.checked is None:
                    item.answer.base_offset = -1  # a message set without a whole message
                    continue
                first = item.checked[0]
                if item.guards is not None:
                    unverified = _unverified(item, item.guards)
                    if unverified is not None:
                        item.error = unverified
                        self._refused(item)
                        continue
                # The first batch may be followed by too few bytes for another batch, which `check_batches` accepts.
                # These bytes are cut off.
                size = first.batch_length + LENGTH_OVERHEAD
                records = item.records if len(item.records) == size else item.records[:size]
                item.produce = self
                try:
                    result = partition.append(records, item.checked, self.acks, now_ms, item.written)
                except KafkaError as error:
                    item.error = error
                else:
                    if result is None:
                        self._pending += 1
                        continue
                    self._appended(item, result)
                # The append does not wait. Without this reference cycle the request's memory is freed with its answer,
                # and not later by the garbage collector.
                item.produce = None
                if item.error is None:
                    continue
            self._refused(item)
        self._returned = True
        if not self._pending:
            return self._answer()
        if self.acks == ACKS_ALL:
            self._stop_waiting = self._context.on_abandoned = self._uses.waiting.add(
                self, (), max(0, self.timeout_ms) / 1000
            )
            self._context.let_next()
        return LATER

    def verify(self, transactional_id: str, now_ms: int, *, is_kept: bool) -> Outcome:
        """Asks the transaction coordinator if the partitions are in the transactions that begin with this request,
        then appends as `append` does. Returns LATER if the coordinator must be asked."""
        asked: dict[Producer, list[_Item]] = {}
        verification = self._uses.verification
        adds = self._context.version >= _FIRST_THAT_ADDS
        if not adds and not verification.is_enabled:
            return self.append(now_ms)
        for item in self._items:
            if item.error is None and item.checked is not None:
                first = item.checked[0]
                if first.attributes & TRANSACTIONAL_BIT and first.producer_id >= 0:
                    assert item.partition is not None
                    producer = Producer(first.producer_id, first.producer_epoch)
                    try:
                        if must_be_verified(item.partition, producer):
                            asked.setdefault(producer, []).append(item)
                    except KafkaError as error:
                        item.error = error
                        item.is_unverified = True
        if not asked:
            return self.append(now_ms)
        if not is_kept:
            for item in self._items:
                if item.records is not None:
                    item.records = self._context.keep(item.records)
        _Verified(self, asked, self._uses, self._context).ask(transactional_id, adds)
        return LATER

    def try_complete(self) -> bool:
        """Returns False always: the request is completed by the appends of its partitions (`written`)."""
        return False

    def end(self) -> None:
        """Called when the broker stops. Does nothing: the producer gets no answer, and sends the request again to the
        next leader."""

    def expire(self) -> None:
        """Answers REQUEST_TIMED_OUT for the appends that have not finished. Their records may still be committed
        later."""
        self._stop_waiting = None
        for item in self._items:
            if item.produce is not None:
                item.produce = None
                item.error = RequestTimedOutError(
                    "not every in-sync replica has the records within the request's time-out"
                )
                self._refused(item)
        self._pending = 0
        self.finish(self._answer())

    def _appended(self, item: _Item, result: AppendResult) -> None:
        answer = item.answer
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset

    def written(self, item: _Item, outcome: AppendResult | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            item.error = outcome
            self._refused(item)
        else:
            self._appended(item, outcome)
        self._pending -= 1
        if self._returned and not self._pending:
            if self._stop_waiting is not None:
                self._stop_waiting()
                self._stop_waiting = None
            self.finish(self._answer())

    def _answer(self) -> Outcome:
        failed = self._failed
        if not self.acks:
            if failed is not None:
                self._context.close(f"a produce request without acks failed: {failed}")
            return NO_ANSWER
        moved = self._moved
        if moved is not None:
            self._response.node_endpoints = [
                ProduceResponseNodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in self._uses.view.endpoints_for(self._context.connection.listener_name)
                if node.broker_id in moved
            ]
        return self._response

    def _refused(self, item: _Item) -> None:
        error = item.error
        assert error is not None
        self._failed = error
        answer = item.answer
        answer.error_code = error.code
        answer.base_offset = -1
        answer.error_message = None if error.code in _WITHOUT_WORDS else error.message or None
        if isinstance(error, RecordErrors):
            answer.record_errors = [
                ProduceResponseRecordError(batch_index=rejected.batch_index, batch_index_error_message=rejected.message)
                for rejected in error.record_errors
            ]
        if item.partition is not None:
            if error.code in _MOVED and self._context.version >= _FIRST_WITH_LEADERS:
                answer.current_leader = ProduceResponseCurrentLeader(
                    leader_id=item.partition.leader, leader_epoch=item.partition.leader_epoch
                )
                if self._moved is None:
                    self._moved = set()
                self._moved.add(item.partition.leader)
            if not item.is_unverified and _was_in_the_log(error, item.records):
                answer.log_start_offset = item.partition.log_start_offset


class _Verified:
    """A Produce request that waits for answers of transaction coordinators."""

    __slots__ = ("_asked", "_context", "_lacking", "_produce", "_uses")

    def __init__(
        self, produce: _Produce, asked: dict[Producer, list[_Item]], uses: ProduceFamily, context: Context
    ) -> None:
        self._produce = produce
        self._asked = asked
        self._uses = uses
        self._context = context
        self._lacking = len(asked)

    def ask(self, transactional_id: str, adds: bool) -> None:
        for producer, items in self._asked.items():
            sequences = {
                item.partition: item.checked[0].base_sequence
                for item in items
                if item.partition is not None and item.checked is not None
            }
            guards = Guards(
                producer,
                sequences,
                self._uses.clock.now_ms,
                adds=adds,
                knows_abortable=self._context.version >= _FIRST_WITH_ABORTABLE,
            )
            for item in items:
                item.guards = guards
            self._uses.verification.ask(transactional_id, guards, partial(self._answered, producer))

    def _answered(self, producer: Producer, results: dict[TopicPartition, ErrorCode]) -> None:
        version = self._context.version
        for item in self._asked[producer]:
            assert item.partition is not None
            error = results[item.partition.topic_partition]
            if error is ErrorCode.NONE:
                continue
            item.is_unverified = True
            if error in _ASK_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS):
                item.error = NotEnoughReplicasError(
                    f"the coordinator of the transaction cannot say now whether the partition is in it: {error.name}"
                )
            else:
                item.error = KafkaError.of(error, "the partition is not in a transaction of the producer")
        self._lacking -= 1
        if not self._lacking:
            # Called in the next iteration of the event loop, because the handler must return LATER first.
            self._uses.loop.call_soon(self._append)

    def _append(self) -> None:
        if self._context.gone:
            return
        self._produce.finish(self._produce.append(self._uses.clock.now_ms()))


def _unverified(item: _Item, guards: Guards) -> KafkaError | None:
    """Returns an error if the transaction has ended since its coordinator was asked, else None."""
    assert item.partition is not None
    item.guards = None
    try:
        holds = guards.holds_for(item.partition)
    except KafkaError as error:
        return error
    return None if holds else InvalidTxnStateError("the transaction has ended meanwhile")


@handles(ProduceRequest, ProduceFamily)
def handle(uses: ProduceFamily, request: ProduceRequest, context: Context) -> Outcome:
    now_ms = uses.clock.now_ms()
    topics = request.topic_data
    kinds = _Kinds()
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        topics = _once_each(topics, context.version)
        if topics is not request.topic_data:
            kinds.add_all(request.topic_data)
    produce = _Produce(uses, context, request)
    pooled = produce.read(topics, _refuse_all(request), kinds, now_ms)
    refusal = kinds.refusal(request)
    if refusal is not None:
        produce.refuse(refusal)
    elif pooled:
        produce.check_in_pool(pooled, request.transactional_id)
        return LATER
    if kinds.has_transactional and request.transactional_id is not None:
        return produce.verify(request.transactional_id, now_ms, is_kept=False)
    return produce.append(now_ms)


def _refuse_all(request: ProduceRequest) -> KafkaError | None:
    if request.acks not in _ACKS:
        return InvalidRequiredAcksError(f"acks is {request.acks}; it may be 0, 1 or -1 (all)")
    return None


def _prepare(
    item: _Item,
    topic: Topic | None,
    data: ProduceRequestPartition,
    version: int,
    client_id: str | None,
    budget_bytes: int,
    now_ms: int,
) -> int:
    """Finds the partition, and checks its records here if that is fast enough. Returns the number of bytes that the
    check used of the budget for decompression. Raises KafkaError if the partition is unknown or the records are
    invalid."""
    if topic is None:
        if version >= _FIRST_WITH_IDS:
            raise UnknownTopicIdError("this broker knows no topic of that id")
        raise UnknownTopicOrPartitionError("this broker knows no topic of that name")
    if not 0 <= data.index < len(topic.partitions):
        raise UnknownTopicOrPartitionError(
            f"{topic.name} has {len(topic.partitions)} partitions, none with the number {data.index}"
        )
    if topic.is_internal and client_id != _ADMIN_CLIENT:
        raise InvalidTopicException(f"clients do not write to the internal topic {topic.name}")
    partition = topic.partitions[data.index]
    item.partition = partition
    log = partition.leader_log()
    records = data.records
    if not isinstance(records, memoryview):
        raise InvalidRecordError("a partition without records")
    item.records = records
    item.rules = topic.rules.at(now_ms)
    if len(records) > INLINE_CHECK_MAX_BYTES:
        return 0
    if _is_message_set(records, version):
        return _convert_at_once(item, log, records, budget_bytes)
    item.checked, made_bytes = check_within(records, item.rules, _version_of_checks(version), budget_bytes)
    if item.checked is not None:
        _require_format(log, item.checked[0])
        if item.rules.wants_other_codec(item.checked[0]):
            item.checked = None  # the pool compresses
    return made_bytes


def _once_each(topics: list[ProduceRequestTopic], version: int) -> list[ProduceRequestTopic]:
    """Returns the request's topics without empty topics and with each partition once. If a partition is named several
    times, its last malformed records are used; if all its records are well-formed, the last records are used."""
    for topic in topics:
        partitions = topic.partition_data
        if not partitions or (len(partitions) > 1 and len({data.index for data in partitions}) < len(partitions)):
            break
    else:
        if len(topics) < 2 or len({(topic.name, topic.topic_id) for topic in topics}) == len(topics):
            return topics
    found: dict[tuple[str, uuid.UUID], dict[int, ProduceRequestPartition]] = {}
    for topic in topics:
        if topic.partition_data:
            partitions_of = found.setdefault((topic.name, topic.topic_id), {})
            for data in topic.partition_data:
                before = partitions_of.get(data.index)
                if before is None or _ill_formed(before, version) is None or _ill_formed(data, version) is not None:
                    partitions_of[data.index] = data
    return [
        ProduceRequestTopic(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in found.items()
    ]


def _without_acks(refusal: KafkaError, topic: Topic | None, data: ProduceRequestPartition, version: int) -> KafkaError:
    """Returns the error of one partition in a request whose acks are invalid: an error of the partition itself, else
    `refusal`."""
    if topic is None:
        return UnknownTopicIdError() if version >= _FIRST_WITH_IDS else UnknownTopicOrPartitionError()
    if not 0 <= data.index < len(topic.partitions):
        return UnknownTopicOrPartitionError()
    if version >= _FIRST_WITH_BATCHES and not isinstance(data.records, memoryview):
        return InvalidRecordError("a partition without records")
    return _ill_formed(data, version) or refusal


def _ill_formed(data: ProduceRequestPartition, version: int) -> KafkaError | None:
    """Returns the error of malformed records, or None if they are well-formed. The partition's log is not read. The
    result is always None for versions below 3 and for a partition without records."""
    records = data.records
    if version < _FIRST_WITH_BATCHES or not isinstance(records, memoryview):
        return None
    if not _is_one_batch(records):
        return InvalidRecordError("a partition without one whole batch")
    if version < _FIRST_WITH_ZSTD and records[LOW_ATTRIBUTES_OFFSET] & CODEC_MASK == Codec.ZSTD:
        return UnsupportedCompressionTypeError("zstd needs Produce 7 or later")
    return None


def _was_in_the_log(error: KafkaError, records: memoryview | None) -> bool:
    """Returns False for an error that Kafka finds before it reads the partition's log."""
    if error.code == ErrorCode.INVALID_RECORD:
        return records is not None and _is_one_batch(records)
    return isinstance(error, RecordErrors) or error.code not in _BEFORE_THE_LOG


def _is_one_batch(records: memoryview) -> bool:
    return (
        len(records) > LOW_ATTRIBUTES_OFFSET and records[MAGIC_OFFSET] == MAGIC_V2 and _size_of(records) == len(records)
    )


def _size_of(records: memoryview) -> int:
    """Returns the size of the first batch in bytes, from its length field. The length is read as unsigned, so that a
    negative length is larger than any batch."""
    return int.from_bytes(records[BATCH_LENGTH_OFFSET:LEADER_EPOCH_OFFSET], "big") + LENGTH_OVERHEAD


def _kind_of(records: memoryview) -> int:
    """Returns the kind of the first batch: _PLAIN, _OF_TRANSACTION or _UNREADABLE. An incomplete batch counts as
    plain, even if its attributes say that it is transactional."""
    size = len(records)
    if size <= MAGIC_OFFSET:
        return _PLAIN
    magic = records[MAGIC_OFFSET]
    if magic != MAGIC_V2:
        return _UNREADABLE if magic > MAGIC_V2 else _PLAIN
    if size <= LOW_ATTRIBUTES_OFFSET or not records[LOW_ATTRIBUTES_OFFSET] & TRANSACTIONAL_BIT:
        return _PLAIN
    return _OF_TRANSACTION if _size_of(records) <= size else _PLAIN


def _version_of_checks(version: int) -> int:
    """Returns the version of Produce for the rules by which a batch is checked. A version below 3 should contain
    message sets; if it contains a batch, the newest version's rules apply."""
    return version if version >= _FIRST_WITH_BATCHES else NEWEST_PRODUCE_VERSION


def _is_message_set(records: memoryview, version: int) -> bool:
    """Returns True if the records are a message set (formats v0 and v1). As in Kafka, a request below version 3 may
    also contain a batch."""
    return version < _FIRST_WITH_BATCHES and not (len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] == MAGIC_V2)


def _convert_at_once(item: _Item, log: PartitionLog, records: memoryview, budget_bytes: int) -> int:
    """Converts a message set to a batch, or leaves this to the thread pool if it would take too long. Returns the
    number of bytes that it used of the budget for decompression."""
    cost = len(records) * COST_OF_CONVERTING
    if cost > budget_bytes:
        return 0
    rules = item.rules
    assert rules is not None
    if rules.codec >= 0:
        return 0  # the pool compresses
    try:
        made = to_batch(records, rules, budget_bytes // COST_OF_RECOMPRESSING)
    except TakesLongerError:
        return budget_bytes
    if made is None:
        return 0
    _require_format(log, made.header)
    item.records, item.checked = memoryview(made.batch), [made.header]
    return max(cost, made.unpacked_bytes * COST_OF_RECOMPRESSING)


def _require_format(log: PartitionLog, header: BatchHeader) -> None:
    """Raises an error for a batch that consumers of a topic with an old message format could not read after
    conversion."""
    if log.config.message_magic < MAGIC_V2:
        if header.producer_id >= 0:
            raise UnsupportedForMessageFormatError(
                "idempotent producers need a topic with message.format.version 0.11.0 or later"
            )
        if header.attributes & CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCompressionTypeError("zstd needs a topic with message.format.version 0.11.0 or later")


def _recompress(item: _Item, rules: CheckRules) -> None:
    """Compresses a valid batch again, with the codec of its topic's compression.type."""
    assert item.records is not None
    batch, header = recompress(item.records, Codec(rules.codec), rules.level, rules.decompressed_max_bytes)
    if len(batch) > rules.max_message_bytes:
        raise MessageTooLargeError(
            f"the batch takes {len(batch)} bytes with the topic's compression.type, more than max.message.bytes allows"
        )
    item.records, item.checked = memoryview(batch), [header]


def _check_all(items: list[_Item], version: int) -> None:
    """Checks the records of these partitions, and converts or recompresses them if necessary. Runs in the thread
    pool."""
    for item in items:
        assert item.records is not None
        assert item.rules is not None
        try:
            if not _is_message_set(item.records, version):
                item.checked = check_batches(item.records, item.rules, _version_of_checks(version))
            elif (made := to_batch(item.records, item.rules)) is not None:
                item.records, item.checked = memoryview(made.batch), [made.header]
            if item.checked is not None:
                assert item.partition is not None
                _require_format(item.partition.leader_log(), item.checked[0])
                if item.rules.wants_other_codec(item.checked[0]):
                    _recompress(item, item.rules)
        except KafkaError as error:
            item.error = error
        except Exception:
            logger.exception("the check of a batch failed")
            item.error = UnknownServerError("the check of a batch failed")
