"""FindCoordinator (key 10), versions 0-6. Each line is what a version adds:

    0      groups only
    1      key types: 0 group, 1 transactional id
    4      several keys at once
    6      key type 2, share groups

A group's coordinator is the leader of the group's partition of the offsets topic. A transactional id's coordinator is
the leader of its partition of `__transaction_state`. If that partition has no leader, the answer is
COORDINATOR_NOT_AVAILABLE. The first request creates the topic. Clients without groups also send this request:
librdkafka compresses with lz4, and closes quickly, only if it finds a coordinator.

Share groups are not supported yet: INVALID_REQUEST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.coordinators.coordinated_topic import CoordinatedTopic
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

_GROUP, _TRANSACTION = 0, 1
_FIRST_WITH_SEVERAL = 4


@handles(FindCoordinatorRequest, GroupFamily)
def handle(uses: GroupFamily, request: FindCoordinatorRequest, context: Context) -> Outcome:
    if request.key_type not in (_GROUP, _TRANSACTION):
        return _answer(
            request,
            context,
            ErrorCode.INVALID_REQUEST,
            "share groups have no coordinator here: they are not served yet",
            (-1, "", -1),
        )
    return _find(uses, request, context)


async def _find(uses: GroupFamily, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    kept: CoordinatedTopic[Any] = uses.groups if request.key_type == _GROUP else uses.transactions
    try:
        await kept.ensure_topic()
    except KafkaError as error:
        return _answer(request, context, error.code, error.message, (-1, "", -1))
    return _response(
        request, context, [(key, *_coordinator(uses, kept, key, context)) for key in _keys(request, context)]
    )


def _keys(request: FindCoordinatorRequest, context: Context) -> list[str]:
    return [request.key] if context.version < _FIRST_WITH_SEVERAL else request.coordinator_keys


def _coordinator(
    uses: GroupFamily, kept: CoordinatedTopic[Any], key: str, context: Context
) -> tuple[ErrorCode, str | None, tuple[int, str, int]]:
    """Returns the coordinator of a group or transactional id, with its address: the leader of the key's partition."""
    leader = kept.leader_for(key)
    node = uses.view.brokers.get(leader)
    endpoint = None if node is None else node.endpoints.get(context.connection.listener_name)
    if endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None, (-1, "", -1)
    return ErrorCode.NONE, None, (leader, *endpoint)


def _answer(
    request: FindCoordinatorRequest, context: Context, error: ErrorCode, message: str | None, node: tuple[int, str, int]
) -> FindCoordinatorResponse:
    """Returns a response with the same result for every key of the request."""
    return _response(request, context, [(key, error, message, node) for key in _keys(request, context)])


def _response(
    request: FindCoordinatorRequest,
    context: Context,
    found: Sequence[tuple[str, ErrorCode, str | None, tuple[int, str, int]]],
) -> FindCoordinatorResponse:
    if context.version < _FIRST_WITH_SEVERAL:
        _, error, message, (node_id, host, port) = found[0]
        # If there is no error, Kafka's message is the name of the code, and from version 4 on the empty text.
        text = (message or error.name) if context.version else None
        return FindCoordinatorResponse(error_code=error, error_message=text, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponseCoordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message or ""
            )
            for key, error, message, (node_id, host, port) in found
        ]
    )
