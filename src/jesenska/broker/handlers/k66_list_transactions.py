"""ListTransactions (key 66), versions 0-2: none, as no transactions are coordinated here yet (KIP-664).

0      filters by state and producer id; states that Kafka does not know are named
1      filter by duration (KIP-994)
2      a pattern of transactional ids; one that is no regular expression is INVALID_REGULAR_EXPRESSION (KIP-1152)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode
from jesenska.base.re2_syntax import is_re2
from jesenska.broker.connection import Context, Outcome
from jesenska.broker.gate import handles
from jesenska.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from jesenska.broker.services import Services

_STATES = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "Dead", "PrepareEpochFence"))


@handles(ListTransactionsRequest, 0, 2)
def handle(broker: Services, request: ListTransactionsRequest, context: Context) -> Outcome:
    if request.transactional_id_pattern and not is_re2(request.transactional_id_pattern):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(unknown_state_filters=[state for state in dict.fromkeys(request.state_filters) if state not in _STATES])
