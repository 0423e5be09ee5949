"""DescribeTransactions (key 65), version 0: answers the state of transactional ids that this broker coordinates
(KIP-664). An unknown id is answered TRANSACTIONAL_ID_NOT_FOUND."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import numbers_by_topic
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
)


@handles(DescribeTransactionsRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: DescribeTransactionsRequest, context: Context) -> Outcome:
    return DescribeTransactionsResponse(
        transaction_states=[_described(uses, name) for name in request.transactional_ids]
    )


def _described(uses: TransactionFamily, name: str) -> DescribeTransactionsResponseTransaction:
    answer = DescribeTransactionsResponseTransaction(transactional_id=name)
    if not name:
        answer.error_code = ErrorCode.INVALID_REQUEST
        return answer
    try:
        found = uses.transactions.shard_of(name).get(name)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if found is None:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    answer.transaction_state = found.state.label
    answer.transaction_timeout_ms = found.timeout_ms
    answer.transaction_start_time_ms = found.started_ms
    answer.producer_id, answer.producer_epoch = found.producer_id, found.producer_epoch
    answer.topics = [
        DescribeTransactionsResponseTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(found.partitions).items()
    ]
    return answer
