"""Clusters that tests share. One is for tests that stop no broker. In the other one brokers die, and each test starts
with all brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import BrokerCluster


@pytest.fixture(scope="package")
def _steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("steady"), session_ms=60_000) as running:
        yield running


@pytest.fixture
def cluster(_steady: BrokerCluster) -> BrokerCluster:
    """Three brokers that keep their places in the tree even on a slow machine. All stops are orderly."""
    _steady.heal()
    return _steady


@pytest.fixture(scope="package")
def _frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("frail"), session_ms=1500) as running:
        yield running


@pytest.fixture
def frail(_frail: BrokerCluster) -> BrokerCluster:
    """Three brokers that lose their places in the tree soon after they have died. On a slow machine they may lose them
    without having died, so tests wait for the final state."""
    _frail.heal()
    return _frail
