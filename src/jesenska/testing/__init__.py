"""Test support for programs that use Kafka. A test can start a real broker in its own process, on a free port, or
several brokers as a cluster.

The classes are imported when they are first used, since pytest imports this package at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jesenska.testing.broker import BrokerProcess
    from jesenska.testing.cluster import ClusterProcesses
    from jesenska.testing.secured import SecuredBroker

__all__ = ["BrokerProcess", "ClusterProcesses", "SecuredBroker"]


def __getattr__(name: str) -> Any:
    if name == "BrokerProcess":
        from jesenska.testing.broker import BrokerProcess

        return BrokerProcess
    if name == "ClusterProcesses":
        from jesenska.testing.cluster import ClusterProcesses

        return ClusterProcesses
    if name == "SecuredBroker":
        from jesenska.testing.secured import SecuredBroker

        return SecuredBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
