"""For tests of whatever uses Kafka: a real broker in a process of its own, on a port that the system chose, or several
that are a cluster.

What a name stands for is imported when it is first asked for: pytest reads this package at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jesenska.testing.broker import BrokerProcess
    from jesenska.testing.cluster import ClusterProcesses

__all__ = ["BrokerProcess", "ClusterProcesses"]


def __getattr__(name: str) -> Any:
    if name == "BrokerProcess":
        from jesenska.testing.broker import BrokerProcess

        return BrokerProcess
    if name == "ClusterProcesses":
        from jesenska.testing.cluster import ClusterProcesses

        return ClusterProcesses
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
