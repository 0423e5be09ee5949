"""Clients that leave partitions to their leaders (KIP-890) begin a transaction while markers of the one before are on
their way: no write is refused, whichever broker coordinates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import BrokerCluster
from tests.conformance.conftest import need
from tests.conformance.short_transactions import PARTITIONS, SETTINGS, TOPIC, Coordinators, Load, transaction_version

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

_TRANSACTIONS = 100
_MOVES, _SECONDS_BETWEEN_MOVES = 2, 3.0


def test_the_first_write_of_each_transaction_is_taken(tmp_path: Path) -> None:
    need("java", "mvn", "go")
    with BrokerCluster(tmp_path, session_ms=10_000, settings=SETTINGS) as cluster:
        assert transaction_version(cluster.bootstrap) == 2
        cluster.create(TOPIC, PARTITIONS)
        load = Load()
        try:
            load.start_java(cluster.bootstrap, _TRANSACTIONS)
            load.start_go(cluster.bootstrap, _TRANSACTIONS)
            coordinators = Coordinators(cluster.bootstrap)
            for _ in range(_MOVES):
                if not load.has_ended(_SECONDS_BETWEEN_MOVES):
                    coordinators.move()
            load.wait()
        finally:
            load.end()
    assert load.errors == {}
    assert load.made == dict.fromkeys(("java produce", "java offsets", "go produce", "go offsets"), _TRANSACTIONS)
