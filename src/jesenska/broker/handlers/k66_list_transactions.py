"""ListTransactions (key 66), versions 0-2: lists the transactional ids that this broker coordinates (KIP-664). Each
line is what a version adds:

  0      filters by state and producer id; states in the filter that Kafka does not know are answered as unknown
  1      filter by duration: ids whose last transaction began longer ago than the duration (KIP-994). As in Apache
         Kafka 4.3.1, ids that never had a transaction match, too, because their start time is -1
  2      a pattern in RE2's syntax that the whole transactional id must match (KIP-1152); an empty pattern matches
         all ids

The answer is COORDINATOR_LOAD_IN_PROGRESS while one of the partitions of `__transaction_state` is being loaded. It is
INVALID_REGULAR_EXPRESSION if the pattern is invalid, or too large for `re2_pattern`. With a pattern, ids are matched
in slices, between which other requests are served."""

from __future__ import annotations

import logging

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.transactions.records import TransactionValue
from jesenska.transactions.states import TransactionState
from jesenska.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

logger = logging.getLogger(__name__)

_STATES = {state.label: state for state in TransactionState}


@handles(ListTransactionsRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: ListTransactionsRequest, context: Context) -> Outcome:
    return _list(uses, request)


async def _list(uses: TransactionFamily, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        shards = uses.transactions.shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    pattern = None
    if request.transactional_id_pattern:
        # The library is imported here, because few requests have a pattern and the broker does not need it to start.
        from jesenska.base.re2_pattern import PatternError, Re2Pattern

        try:
            pattern = Re2Pattern(request.transactional_id_pattern)
        except PatternError as refused:
            logger.info(
                "the pattern %.200r of transactional ids is refused: %s", request.transactional_id_pattern, refused
            )
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    response = ListTransactionsResponse(
        unknown_state_filters=[state for state in dict.fromkeys(request.state_filters) if state not in _STATES]
    )
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids, now_ms = set(request.producer_id_filters), uses.clock.now_ms()

    def wanted(value: TransactionValue) -> bool:
        if value.state is TransactionState.DEAD:
            return False
        if request.state_filters and value.state not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        return request.duration_filter < 0 or now_ms - value.started_ms > request.duration_filter

    found = [
        ListTransactionsResponseTransaction(
            transactional_id=name, producer_id=value.producer_id, transaction_state=value.state.label
        )
        for shard in shards
        for name, value in shard.all()
        if wanted(value)
    ]
    if pattern is None:
        response.transaction_states = found
        return response
    between = Slices(uses.clock)
    for item in found:
        await between()
        if pattern.matches(item.transactional_id):
            response.transaction_states.append(item)
    return response
