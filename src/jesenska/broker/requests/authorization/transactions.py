"""Checks requests about producers and transactions. Each check returns None, a refusal, or an Amend (see `access`)."""

from __future__ import annotations

from typing import Any, Final

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.authorization.access import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Access,
    Rule,
    Verdict,
    added,
    merged_refusals,
)
from jesenska.security.acls import CLUSTER_NAME, AclOperation
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from jesenska.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from jesenska.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from jesenska.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)
from jesenska.wire.messages.k66_list_transactions import ListTransactionsResponse

_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_FIRST_ADDITION_OF_BROKERS: Final = 4


def init_producer(access: Access, request: InitProducerIdRequest, version: int) -> Verdict:
    """Checks InitProducerId: it needs WRITE on the transactional id. A request without a transactional id needs
    IDEMPOTENT_WRITE on the cluster or WRITE on any topic."""
    name = request.transactional_id
    if name is not None:
        allowed, error = access.allows(_WRITE, TRANSACTIONAL_ID, name), _REFUSED
    else:
        allowed = (
            access.may(AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
            or access.may_any(_WRITE, TOPIC)
            or access.cluster(AclOperation.IDEMPOTENT_WRITE)
        )
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if allowed else InitProducerIdResponse(error_code=error, producer_epoch=-1)


def add_partitions(access: Access, request: AddPartitionsToTxnRequest, version: int) -> Verdict:
    """Checks AddPartitionsToTxn: clients need WRITE on the transactional id and on each topic, brokers CLUSTER_ACTION
    on the cluster. If one topic is refused, no partition is added."""
    if version >= _FIRST_ADDITION_OF_BROKERS:
        if access.cluster(AclOperation.CLUSTER_ACTION):
            return None
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = request.v3_and_below_topics

    def answered(errors: dict[str, ErrorCode], otherwise: ErrorCode) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnResponseTopic(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnResponsePartition(
                            partition_index=number, partition_error_code=errors.get(topic.name, otherwise)
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    if not access.allows(_WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return answered({}, _REFUSED)
    _, refused = access.split(_WRITE, TOPIC, topics, lambda topic: topic.name)
    if not refused:
        return None
    response = answered(
        {topic.name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in refused}, ErrorCode.OPERATION_NOT_ATTEMPTED
    )
    response.results_by_topic_v3_and_below = merged_refusals(
        response.results_by_topic_v3_and_below, "results_by_partition", "partition_index"
    )
    return response


def add_offsets(access: Access, request: AddOffsetsToTxnRequest, version: int) -> Verdict:
    if not access.allows(_WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_REFUSED)
    if not access.allows(_READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return None


def end(access: Access, request: EndTxnRequest, version: int) -> Verdict:
    allowed = access.allows(_WRITE, TRANSACTIONAL_ID, request.transactional_id)
    return None if allowed else EndTxnResponse(error_code=_REFUSED)


def commit_offsets(access: Access, request: TxnOffsetCommitRequest, version: int) -> Verdict:
    """Checks TxnOffsetCommit: it needs WRITE on the transactional id, READ on the group and READ on each topic.
    Refused topics come first in the answer."""

    def answered(topics: list[TxnOffsetCommitRequestTopic], error: ErrorCode) -> list[TxnOffsetCommitResponseTopic]:
        return [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]

    if not access.allows(_WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return TxnOffsetCommitResponse(topics=answered(request.topics, _REFUSED))
    if not access.allows(_READ, GROUP, request.group_id):
        return TxnOffsetCommitResponse(topics=answered(request.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    kept, refused = access.split(_READ, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    failed = answered(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not kept:
        return TxnOffsetCommitResponse(topics=failed)
    request.topics = kept
    return added("topics", failed, first=True)


def describe(access: Access, request: DescribeTransactionsRequest, version: int) -> Verdict:
    """Checks DescribeTransactions: it needs DESCRIBE on each transactional id. Topics that the user may not describe
    are left out of the answer."""
    order = request.transactional_ids
    kept, refused = access.split(_DESCRIBE, TRANSACTIONAL_ID, order, lambda name: name)
    forbidden = set(refused)
    request.transactional_ids = kept

    def amend(response: DescribeTransactionsResponse) -> None:
        for transaction in response.transaction_states:
            transaction.topics = [topic for topic in transaction.topics if access.may(_DESCRIBE, TOPIC, topic.topic)]
        found = iter(response.transaction_states)
        response.transaction_states = [
            DescribeTransactionsResponseTransaction(transactional_id=name, error_code=_REFUSED)
            if name in forbidden
            else next(found)
            for name in order
        ]

    return amend


def list_transactions(access: Access, request: Any, version: int) -> Verdict:
    """Checks ListTransactions: transactional ids that the user may not describe are left out of the answer."""

    def amend(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            item
            for item in response.transaction_states
            if access.may(_DESCRIBE, TRANSACTIONAL_ID, item.transactional_id)
        ]

    return amend


TRANSACTION_RULES: Final[dict[int, Rule]] = {
    22: init_producer,
    24: add_partitions,
    25: add_offsets,
    26: end,
    28: commit_offsets,
    65: describe,
    66: list_transactions,
}
