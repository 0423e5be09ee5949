"""For tests of programs that use Kafka: a real broker in its own process, on a port that the system chose, or several
brokers as a cluster.

A name's module is imported at its first use: pytest reads this package at every start."""

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
