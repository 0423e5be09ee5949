"""The base class of the classes with administrative calls, and the errors of answers."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.client.cluster import Cluster


class Administration:
    """The connection of administrative calls to a cluster. `timeout_ms` is the time that a broker may take for a
    change."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Returns the error for an error code of an answer, with the broker's message if there is one; None for the code
    NONE."""
    if code == ErrorCode.NONE:
        return None
    return KafkaError.of(code, message or f"The broker answers {error_name(code)}.")


def require(code: int, message: str | None = None) -> None:
    """Raises the error for an error code of an answer, unless the code is NONE."""
    error = error_of(code, message)
    if error is not None:
        raise error
