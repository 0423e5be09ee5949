"""TxnOffsetCommit (key 28), versions 0-5: writes offsets of a group that become valid when the transaction is
committed. Each line is what a version adds:

  2      leader epochs
  3      the group's generation and member, so that former members are fenced (KIP-447)
  4      TRANSACTION_ABORTABLE in place of INVALID_TXN_STATE if the group was not added to the transaction
  5      this broker adds the group to the transaction (KIP-890)

As in Apache Kafka, a known topic without partitions is not answered. A topic that is named twice is answered once if
anything in the request is unknown.

Before the first offsets of a transaction are written, the transaction coordinator is asked if the group is in the
transaction. If the producer epoch is older than the epoch that the group's partition knows, the coordinator is not
asked, and the answer is INVALID_PRODUCER_EPOCH."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.transaction_verification import Guards, Results, must_be_verified
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.merged_topics import merged_topics
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
    commit = _Commit(uses, request, context, errors, offsets)
    if not offsets:
        return commit.response(ErrorCode.NONE)
    if not request.group_id:
        return commit.response(ErrorCode.INVALID_GROUP_ID)
    try:
        guards = commit.guards()
        if guards is None:
            commit.submit()
            return LATER
    except KafkaError as error:
        return commit.response(error.code)
    uses.verification.ask(request.transactional_id, guards, partial(commit.verified, guards))
    return LATER


class _Commit:
    """A TxnOffsetCommit request. `errors` contains the errors of unknown partitions, `offsets` the offsets of known
    partitions."""

    __slots__ = ("_context", "_errors", "_offsets", "_producer", "_request", "_uses")

    def __init__(
        self,
        uses: GroupFamily,
        request: TxnOffsetCommitRequest,
        context: Context,
        errors: dict[TopicPartition, ErrorCode],
        offsets: dict[TopicPartition, CommittedOffset],
    ) -> None:
        self._uses = uses
        self._request = request
        self._context = context
        self._errors = errors
        self._offsets = offsets
        self._producer = Producer(request.producer_id, request.producer_epoch)

    def guards(self) -> Guards | None:
        """Returns guards, which notice if the transaction ends while the transaction coordinator is asked about it.
        Returns None if the coordinator need not be asked."""
        uses, group_id = self._uses, self._request.group_id
        uses.groups.coordinator_of(group_id)
        partition = uses.view.topics[OFFSETS_TOPIC].partitions[uses.groups.partition_for(group_id)]
        adds = self._context.version >= _FIRST_THAT_ADDS
        if not must_be_verified(partition, self._producer) or not (adds or uses.verification.is_enabled):
            return None
        return Guards(
            self._producer,
            {partition: NO_SEQUENCE},
            uses.clock.now_ms,
            adds=adds,
            knows_abortable=self._context.version >= _FIRST_WITH_ABORTABLE,
        )

    def verified(self, guards: Guards, results: Results) -> None:
        """Called when the transaction coordinator has answered: commits the offsets, or answers the error."""
        (error,) = results.values()
        if error is ErrorCode.NONE and not guards.hold():
            error = ErrorCode.INVALID_TXN_STATE
        elif error is ErrorCode.NETWORK_EXCEPTION:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is ErrorCode.NONE:
            try:
                self.submit()
                return
            except KafkaError as failure:
                error = failure.code
        self._context.answer(self.response(error))

    def submit(self) -> None:
        """Commits the offsets. Raises KafkaError if the group coordinator refuses them at once."""
        request = self._request
        make = partial(
            CommitOffsets,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            offsets=tuple(self._offsets.items()),
            within=OfTransaction(*self._producer),
        )
        self._uses.groups.submit(request.group_id, make, self._replied)

    def _replied(self, answer: PartitionsAnswer) -> None:
        self._context.answer(self.response(answer.error, answer.partitions))

    def response(
        self, otherwise: ErrorCode, found: Mapping[TopicPartition, ErrorCode] = MappingProxyType({})
    ) -> TxnOffsetCommitResponse:
        """Returns the answer. `found` has the errors of known partitions. A known partition that is not in `found`
        gets the error `otherwise`."""
        if otherwise is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._context.version < _FIRST_WITH_LOAD_IN_PROGRESS:
            otherwise = ErrorCode.COORDINATOR_NOT_AVAILABLE
        known, errors, topics = self._uses.view.topics, self._errors, self._request.topics
        answers = []
        for asked in topics:
            if asked.partitions or asked.name not in known:
                partitions = []
                for item in asked.partitions:
                    key = TopicPartition(asked.name, item.partition_index)
                    error = errors.get(key) or found.get(key, otherwise)
                    partitions.append(
                        TxnOffsetCommitResponsePartition(partition_index=item.partition_index, error_code=error)
                    )
                answers.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=partitions))
        if errors or any(asked.name not in known for asked in topics):
            answers = merged_topics(answers)
        return TxnOffsetCommitResponse(topics=answers)
