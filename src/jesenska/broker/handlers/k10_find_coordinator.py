"""FindCoordinator (key 10), versions 0-6.

    0      groups only
    1      key types: 0 group, 1 transactional id
    4      several keys at once
    6      key type 2, share groups

On a lone broker every group is coordinated here; librdkafka compresses with lz4 and closes quickly only where it finds a coordinator.

Left out: transactional ids and share groups (INVALID_REQUEST), until their coordinators are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode
from jesenska.broker.dispatch import Context, Outcome, handles
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator

if TYPE_CHECKING:
    from jesenska.broker.server import Broker

_GROUP = 0
_FIRST_WITH_SEVERAL = 4


@handles(FindCoordinatorRequest, 0, 6)
def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> Outcome:
    host, port = broker.endpoint_for(context.connection.listener_name)
    refused = request.key_type != _GROUP
    message = "only groups have a coordinator here: transactions and share groups are not served yet" if refused else None
    error = ErrorCode.INVALID_REQUEST if refused else ErrorCode.NONE
    node_id, host, port = (-1, "", -1) if refused else (broker.broker_id, host, port)
    if context.version < _FIRST_WITH_SEVERAL:
        return FindCoordinatorResponse(error_code=error, error_message=message or "NONE", node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponseCoordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
