"""Three brokers are stopped in order and started again, one after the other, while clients of librdkafka and of Apache
Kafka write, read and commit with their default settings. No client gets an error, and their history is clean.

All three are restarted once, and in the long run thirty times:

    JESENSKA_TESTS=everything python -m pytest tests/processes/crash/test_rolling_restarts.py -s
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jesenska.testing.faults import check, read_history
from tests.cluster.cluster import BrokerCluster
from tests.cluster.witness import Witness
from tests.processes.crash.client_process import JAVA, LIBRDKAFKA, Together, assert_clients_took_part, load_of
from tests.profiles import rounds

ROUNDS = rounds(quick=1, ci=1, everything=5)
_KINDS = (LIBRDKAFKA, JAVA)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 60 * ROUNDS)]


def test_clients_hear_of_no_error_while_all_brokers_are_restarted(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", session_ms=60_000) as cluster:
        cluster.create("rolling", 3)
        load = Together([load_of(kind, cluster.bootstrap, "rolling", tmp_path) for kind in _KINDS])
        with Witness(cluster):
            load.start()
            try:
                for _ in range(ROUNDS):
                    for broker in cluster.brokers.values():
                        broker.stop()
                        load.wait_for(30)
                        broker.start()
                        cluster.until_whole()
                        load.wait_for(30)
            finally:
                load.stop()
        cluster.until_logs_equal("rolling", 3)
    history = read_history(load.paths)
    print(
        f"{len(history)} operations; what clients were let know of connections: {len(load.notices)} lines; {load.stuck}"
    )
    for kind in _KINDS:
        assert_clients_took_part(history, kind)
    assert check(history) == []
    assert load.errors == []
