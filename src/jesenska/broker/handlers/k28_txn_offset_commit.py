"""TxnOffsetCommit (key 28), versions 0-5: offsets of a group that count when the transaction is committed.

    2      leader epochs
    3      the group's generation and member, which fence earlier members (KIP-447)
    4      TRANSACTION_ABORTABLE for a group that was not added to the transaction; before it INVALID_TXN_STATE
    5      this broker adds the group to the transaction (KIP-890)

As in Apache Kafka, a known topic without partitions is not answered, and one that is named twice is answered once if
anything is unknown.

Before the first such commit of a transaction is written, the transaction's coordinator is asked if the group is in the
transaction. An epoch that is older than the one in the group's partition is INVALID_PRODUCER_EPOCH before that.
"""

from __future__ import annotations

from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.transaction_verification import Guards, Results, for_producers
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.coordination.shard import OfTransaction
from jesenska.groups.events import CommitOffsets, CommittedOffset, PartitionsAnswer
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.records.header import NO_SEQUENCE
from jesenska.transactions.events import Producer
from jesenska.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_WITH_LOAD_IN_PROGRESS = 2
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5


@handles(TxnOffsetCommitRequest, GroupFamily)
def handle(uses: GroupFamily, request: TxnOffsetCommitRequest, context: Context) -> Outcome:
    version = context.version
    now_ms = uses.clock.now_ms()
    errors: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        for item in topic.partitions:
            key = TopicPartition(topic.name, item.partition_index)
            if uses.view.has(key):
                offsets[key] = CommittedOffset(
                    item.committed_offset, item.committed_leader_epoch, item.committed_metadata or "", now_ms
                )
            else:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def build(found: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> TxnOffsetCommitResponse:
        if otherwise is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOAD_IN_PROGRESS:
            otherwise = ErrorCode.COORDINATOR_NOT_AVAILABLE
        merges = bool(errors) or any(asked.name not in uses.view.topics for asked in request.topics)
        answered: dict[str, TxnOffsetCommitResponseTopic] = {}
        response = TxnOffsetCommitResponse()
        for asked in request.topics:
            if not asked.partitions and asked.name in uses.view.topics:
                continue
            topic = answered.get(asked.name) if merges else None
            if topic is None:
                topic = answered[asked.name] = TxnOffsetCommitResponseTopic(name=asked.name)
                response.topics.append(topic)
            for item in asked.partitions:
                key = TopicPartition(asked.name, item.partition_index)
                error = errors.get(key) or found.get(key, otherwise)
                topic.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=item.partition_index, error_code=error)
                )
        return response

    if not offsets:
        return build({}, ErrorCode.NONE)
    if not request.group_id:
        return build({}, ErrorCode.INVALID_GROUP_ID)
    producer = Producer(request.producer_id, request.producer_epoch)
    make = partial(
        CommitOffsets,
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=tuple(offsets.items()),
        within=OfTransaction(*producer),
    )

    def reply(answer: PartitionsAnswer) -> None:
        context.answer(build(answer.partitions, answer.error))

    try:
        uses.groups.coordinator_of(request.group_id)
        keeper = TopicPartition(OFFSETS_TOPIC, uses.groups.partition_for(request.group_id))
        partition = uses.view.topics[OFFSETS_TOPIC].partitions[keeper.partition]
        adds = version >= _FIRST_THAT_ADDS
        producers = partition.leader_log().producers
        producers.check_epoch(*producer)
        if producers.has_open_transaction(*producer) or not (adds or uses.verification.is_enabled):
            uses.groups.submit(request.group_id, make, reply)
            return LATER
    except KafkaError as error:
        return build({}, error.code)
    guards = Guards(producer, {partition: NO_SEQUENCE}, uses.clock.now_ms, adds=adds)

    def verified(results: Results) -> None:
        error = for_producers(results[keeper], knows_abortable=version >= _FIRST_WITH_ABORTABLE)
        if error is ErrorCode.NONE and not guards.hold():
            error = ErrorCode.INVALID_TXN_STATE
        if error is not ErrorCode.NONE:
            context.answer(
                build({}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error is ErrorCode.NETWORK_EXCEPTION else error)
            )
            return
        try:
            uses.groups.submit(request.group_id, make, reply)
        except KafkaError as failure:
            context.answer(build({}, failure.code))

    uses.verification.ask(request.transactional_id, guards, verified)
    return LATER
