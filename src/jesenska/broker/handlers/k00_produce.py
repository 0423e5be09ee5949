"""Produce (key 0), versions 0-13.

    0-2    message sets: announced, because librdkafka stops compressing without them, and answered UNSUPPORTED_FOR_MESSAGE_FORMAT for now
    3      record batches v2, transactional id
    5      answers the log start offset
    7      zstd (below it UNSUPPORTED_COMPRESSION_TYPE)
    8      errors by record and error messages
    9      compact
    10     hints of a new leader
    13     topic ids instead of names

Each partition's records are checked (header, CRC, the records inside) and appended where the request's bytes lie. Small uncompressed batches are
checked at once; compressed ones and those over 64 KB in the thread pool, all of one request in one go, before any of the request is appended.
The connection takes no further request meanwhile, which keeps the order of its batches.

acks 0 has no answer; an error closes the connection, as Kafka does, so that the producer learns of it. acks 1 and all are the same on a lone
broker, except that all asks for min.insync.replicas first.

Left out: transactions (INVALID_REQUEST), message sets, quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTopicException,
    KafkaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from jesenska.base.limits import INLINE_CHECK_MAX_BYTES
from jesenska.broker.cluster_view import Topic
from jesenska.broker.dispatch import LATER, NO_ANSWER, Context, Outcome, handles
from jesenska.records.batch import ATTRIBUTES_OFFSET, HEADER_SIZE, MAGIC_OFFSET, BatchHeader, Codec
from jesenska.records.check import CheckRules, check_batches
from jesenska.records.faults import RecordsRejectedError
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponseCurrentLeader,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.server import Broker

_ACKS = (1, -1, 0)
_FIRST_BATCHES = 3
_FIRST_ZSTD = 7
_ADMIN_CLIENT = "__admin_client"


class _Item:
    """One partition of a request on its way into the log."""

    __slots__ = ("checked", "error", "index", "partition", "records", "rules")

    def __init__(self, index: int) -> None:
        self.index = index
        self.partition: Partition | None = None
        self.records: memoryview | None = None
        self.rules: CheckRules | None = None
        self.checked: list[BatchHeader] | None = None
        self.error: KafkaError | None = None


@handles(ProduceRequest, 0, 13)
def handle(broker: Broker, request: ProduceRequest, context: Context) -> Outcome:
    acks, version = request.acks, context.version
    pooled: list[_Item] = []
    plan: list[tuple[ProduceResponseTopic, list[_Item]]] = []
    refusal = _refuse_all(request, version)
    for wanted in request.topic_data:
        topic = broker.view.by_id.get(wanted.topic_id) if version >= 13 else broker.view.topics.get(wanted.name)
        items: list[_Item] = []
        for data in wanted.partition_data:
            item = _Item(data.index)
            items.append(item)
            if refusal is not None:
                item.error = refusal
                continue
            try:
                _prepare(broker, item, topic, data.records, version, context.client_id)
            except KafkaError as error:
                item.error = error
                continue
            if item.checked is None:
                pooled.append(item)
        plan.append((ProduceResponseTopic(name=wanted.name, topic_id=wanted.topic_id), items))
    if not pooled:
        return _append(broker, plan, acks, context)
    for _, items in plan:
        for item in items:
            if item.records is not None:
                item.records = context.keep(item.records)

    def finish() -> None:
        if not context.gone:
            outcome = _append(broker, plan, acks, context)
            if isinstance(outcome, ProduceResponse):
                context.answer(outcome)
            elif not context.gone:
                context.no_answer()

    broker.pool.submit(lambda: _check_all(pooled), finish)
    return LATER


def _refuse_all(request: ProduceRequest, version: int) -> KafkaError | None:
    if request.acks not in _ACKS:
        return InvalidRequiredAcksError(f"acks is {request.acks}; it may be 0, 1 or -1 (all)")
    if request.transactional_id is not None:
        return InvalidRequestError("transactions are not served yet")
    if version < _FIRST_BATCHES:
        return UnsupportedForMessageFormatError("message sets (Produce 0 to 2) are not served yet; produce record batches (Produce 3 and later)")
    return None


def _prepare(broker: Broker, item: _Item, topic: Topic | None, records: object, version: int, client_id: str | None) -> None:
    """Finds the partition and checks the records, unless they are for the pool."""
    if topic is None:
        if version >= 13:
            raise UnknownTopicIdError("this broker knows no topic of that id")
        raise UnknownTopicOrPartitionError("this broker knows no topic of that name")
    if not 0 <= item.index < len(topic.partitions):
        raise UnknownTopicOrPartitionError(f"{topic.name} has {len(topic.partitions)} partitions, none with the number {item.index}")
    if topic.is_internal and client_id != _ADMIN_CLIENT:
        raise InvalidTopicException(f"clients do not write to the internal topic {topic.name}")
    partition = topic.partitions[item.index]
    partition.leader_log()
    item.partition = partition
    assert isinstance(records, memoryview | None)
    if records is None or not records:
        raise InvalidRequestError("a partition without records")
    item.records = records
    item.rules = broker.check_rules(topic)
    size = len(records)
    if size >= HEADER_SIZE:
        attributes = records[ATTRIBUTES_OFFSET + 1] & 0x07 if records[MAGIC_OFFSET] == 2 else 0
        if attributes == Codec.ZSTD and version < _FIRST_ZSTD:
            raise UnsupportedCompressionTypeError("zstd is for Produce 7 and later")
        if attributes or size > INLINE_CHECK_MAX_BYTES:
            return
    item.checked = check_batches(records, item.rules)


def _check_all(items: list[_Item]) -> None:
    """Runs in the pool."""
    for item in items:
        assert item.records is not None
        assert item.rules is not None
        try:
            item.checked = check_batches(item.records, item.rules)
        except KafkaError as error:
            item.error = error


def _append(broker: Broker, plan: list[tuple[ProduceResponseTopic, list[_Item]]], acks: int, context: Context) -> Outcome:
    now_ms = broker.clock.now_ms()
    failed: KafkaError | None = None
    for answer, items in plan:
        partitions = answer.partition_responses
        for item in items:
            if item.error is None:
                partition = item.partition
                assert partition is not None
                assert item.records is not None
                assert item.checked is not None
                try:
                    result = partition.append(item.records, item.checked, acks, now_ms)
                except KafkaError as error:
                    item.error = error
                else:
                    broker.waiting.notify(partition.topic_partition)
                    if acks:
                        partitions.append(
                            ProduceResponsePartition(
                                index=item.index,
                                base_offset=result.base_offset,
                                log_append_time_ms=result.log_append_time_ms,
                                log_start_offset=result.log_start_offset,
                            )
                        )
                    continue
            failed = item.error
            if acks:
                partitions.append(_refused(broker, item, context))
    if acks:
        response = ProduceResponse(responses=[answer for answer, _ in plan])
        if failed is not None and context.version >= 10 and failed.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            response.node_endpoints = [
                ProduceResponseNodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in broker.endpoints_for(context.connection.listener_name)
            ]
        return response
    if failed is not None:
        context.close(f"a produce request without acks failed: {failed}")
    return NO_ANSWER


def _refused(broker: Broker, item: _Item, context: Context) -> ProduceResponsePartition:
    error = item.error
    assert error is not None
    answer = ProduceResponsePartition(index=item.index, error_code=error.code, base_offset=-1, error_message=error.message or None)
    if context.version < _FIRST_ZSTD + 1 and error.code == ErrorCode.INVALID_RECORD:
        answer.error_code = ErrorCode.CORRUPT_MESSAGE  # INVALID_RECORD is known from version 8 on
    if isinstance(error, RecordsRejectedError):
        answer.record_errors = [
            ProduceResponseRecordError(batch_index=rejected.batch_index, batch_index_error_message=rejected.message) for rejected in error.rejected
        ]
    if item.partition is not None:
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            answer.current_leader = ProduceResponseCurrentLeader(leader_id=item.partition.leader, leader_epoch=item.partition.leader_epoch)
        if item.partition.log is not None:
            answer.log_start_offset = item.partition.log.log_start_offset
    return answer
