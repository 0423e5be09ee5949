"""The common part of the families of administrative calls."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.client.cluster import Cluster


class Administration:
    """Administrative calls to a cluster. `timeout_ms`: the time that a broker may take for a change."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Returns the error of a code in an answer, with the broker's message if it gave one; None for NONE."""
    if code == ErrorCode.NONE:
        return None
    return KafkaError.of(code, message or f"The broker answers {error_name(code)}.")


def require(code: int, message: str | None = None) -> None:
    """Raises the error of a code in an answer, if it is one."""
    error = error_of(code, message)
    if error is not None:
        raise error
