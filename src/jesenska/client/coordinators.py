"""Looks up the broker that coordinates a group, or the transactions of a transactional id."""

from __future__ import annotations

import asyncio

from jesenska.base.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError, error_name
from jesenska.client.cluster import Cluster
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

#: Key types of FindCoordinator requests.
GROUP, TRANSACTION = 0, 1
#: Errors after which the coordinator is looked up, or the request sent, again.
COORDINATOR_PASSES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_OF = {GROUP: "Group", TRANSACTION: "The transactional id"}
_ONE_KEY_PER_REQUEST = 3


async def find_coordinator(cluster: Cluster, key: str, key_type: int = GROUP) -> int:
    """Returns the id of the broker that coordinates a group or a transactional id. If there is no coordinator yet,
    waits for one up to the request timeout."""
    deadline = cluster.clock.monotonic() + cluster.request_timeout_seconds
    attempts = 0
    while True:
        attempts += 1
        answer = await cluster.ask_any(
            FindCoordinatorRequest(key=key, key_type=key_type), FindCoordinatorResponse, at_most=_ONE_KEY_PER_REQUEST
        )
        if answer.error_code == ErrorCode.NONE:
            if answer.node_id not in cluster.nodes:
                await cluster.refresh([])
            return answer.node_id
        error = KafkaError.of(answer.error_code, _why(answer, key, key_type))
        if not error.retriable or cluster.clock.monotonic() > deadline:
            raise (
                error
                if not isinstance(error, CoordinatorNotAvailableError)
                else CoordinatorNotAvailableError(f"{_OF[key_type]} {key} has no coordinator.")
            )
        await asyncio.sleep(cluster.retry_pause_seconds(attempts))


def _why(answer: FindCoordinatorResponse, key: str, key_type: int) -> str:
    """Returns the sentence for an answer without a coordinator. The broker's own text does not name the group."""
    if answer.error_code in (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return f"{_OF[key_type]} {key}: the broker answers {error_name(answer.error_code)}."
    return answer.error_message or f"{_OF[key_type]} {key} has no coordinator."
