"""The base class of the classes with administrative calls, and the errors for error codes in responses."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.client.cluster import Cluster


class Administration:
    """The base class: it has the cluster to which administrative calls are sent. `timeout_ms` is the time that a
    broker may take for a change."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Returns the error for an error code in a response, with the broker's message if there is one. Returns None for
    the code NONE."""
    if code == ErrorCode.NONE:
        return None
    return KafkaError.of(code, message or f"The broker answers {error_name(code)}.")


def require(code: int, message: str | None = None) -> None:
    """Raises the error for an error code in a response. Does nothing for the code NONE."""
    error = error_of(code, message)
    if error is not None:
        raise error
