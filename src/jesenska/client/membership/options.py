"""The options of a group's member."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.base.errors import InvalidRequestError
from jesenska.client.membership.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """The options of a group's member; the defaults are Kafka's. A member with a `group_instance_id` is a static
    member. Raises InvalidRequestError if an assignor does not exist, or if no assignor is named."""

    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    group_instance_id: str | None = None
    session_timeout_seconds: float = 45.0
    max_poll_interval_seconds: float = 300.0
    heartbeat_seconds: float = 3.0

    def __post_init__(self) -> None:
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise InvalidRequestError(f"partition.assignment.strategy names {unknown}: use {', '.join(ASSIGNORS)}.")
