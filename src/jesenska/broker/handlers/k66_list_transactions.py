"""ListTransactions (key 66), versions 0-1: the transactional ids that this broker coordinates (KIP-664).

0      filters by state and producer id; states that Kafka does not know are named
1      filter by duration: transactions that have been open for longer (KIP-994)

COORDINATOR_LOAD_IN_PROGRESS while one of the partitions is loaded.

Left out: version 2, a pattern of transactional ids (KIP-1152). It asks for a matcher whose time a pattern from the
network cannot make long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import KafkaError
from jesenska.broker.connection import Context, Outcome
from jesenska.broker.gate import handles
from jesenska.transactions.records import NO_TIME, TransactionValue
from jesenska.transactions.states import TransactionState
from jesenska.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse, ListTransactionsResponseTransaction

if TYPE_CHECKING:
    from jesenska.broker.services import Services

_STATES = {state.label: state for state in TransactionState}


@handles(ListTransactionsRequest, 0, 1)
def handle(broker: Services, request: ListTransactionsRequest, context: Context) -> Outcome:
    try:
        shards = broker.transactions.shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    response = ListTransactionsResponse(unknown_state_filters=[state for state in dict.fromkeys(request.state_filters) if state not in _STATES])
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids, now_ms = set(request.producer_id_filters), broker.clock.now_ms()

    def wanted(value: TransactionValue) -> bool:
        if request.state_filters and value.state not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        if request.duration_filter >= 0:
            return value.started_ms != NO_TIME and now_ms - value.started_ms > request.duration_filter
        return value.state is not TransactionState.DEAD

    response.transaction_states = [
        ListTransactionsResponseTransaction(transactional_id=name, producer_id=value.producer_id, transaction_state=value.state.label)
        for shard in shards
        for name, value in shard.all()
        if wanted(value)
    ]
    return response
