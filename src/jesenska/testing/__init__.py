"""Test support for programs that use Kafka: a real broker in its own process, on a free port, or several brokers as a
cluster.

The classes are imported at their first use, since pytest imports this package at every start."""

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
