"""Every state of a transactional id, every request, every producer: what Apache Kafka 3.9.1 and 4.3.1 answer, and what
we do. Ours is 4.3.1's but for one case where that one gives two producers one epoch; where 3.9.1 differs from it is
named here, by what it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from jesenska.testing.faults.processes import wait_until_stopped
from tests.cluster.cluster import BrokerCluster
from tests.conformance.conftest import need
from tests.conformance.transaction_table import MARKING, SETTINGS, STATES, Cell, marking_table, table
from tests.peers.apache_kafka import ApacheKafka

# Two tables of a thousand cells, one after the other, on a busy machine.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]

_NOT_SERVED = "not served"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, str]:
    with BrokerProcess(tmp_path_factory.mktemp("ours") / "data", settings=SETTINGS) as broker:
        return table(broker.bootstrap)


@pytest.fixture(scope="module")
def ours_marking(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, str]:
    with BrokerCluster(tmp_path_factory.mktemp("marking") / "brokers", brokers=2, session_ms=60_000, settings=SETTINGS) as cluster:
        addresses = {number: broker.address for number, broker in cluster.brokers.items()}
        try:
            return marking_table(addresses, lambda number: cluster.brokers[number].pause())
        finally:
            for broker in cluster.brokers.values():
                broker.resume()


def _theirs_marking(release: str, directory: Path) -> dict[Cell, str]:
    need("java", "mvn")
    with ApacheKafka(release, directory, nodes=2, heap="400m", settings=SETTINGS) as kafka:
        addresses = dict(enumerate(kafka.bootstrap.split(",")))
        paused: list[int] = []

        def stand_still(number: int) -> None:
            paused.append(kafka.pids[number])
            os.kill(paused[0], signal.SIGSTOP)
            wait_until_stopped(paused[0])

        try:
            return marking_table(addresses, stand_still)
        finally:
            for pid in paused:
                os.kill(pid, signal.SIGCONT)


def _theirs(release: str, directory: Path) -> dict[Cell, str]:
    need("java", "mvn")
    with ApacheKafka(release, directory, heap="400m", settings=SETTINGS) as kafka:
        return table(kafka.bootstrap)


def test_every_cell_is_what_apache_kafka_4_answers(ours: dict[Cell, str], tmp_path: Path) -> None:
    theirs = _theirs("4.3.1", tmp_path)
    assert len(theirs) > 1000
    assert {state for state, _, _ in theirs} == set(STATES)
    assert {cell for cell, answer in theirs.items() if ours[cell] != answer} == {cell for cell in theirs if _is_stricter(cell)}
    assert {ours[cell].partition(" ")[0] for cell in theirs if _is_stricter(cell)} == {"PRODUCER_FENCED"}


def _is_stricter(cell: Cell) -> bool:
    """A producer whose epochs are raised, and that another one without raised epochs has replaced, asks to end its
    transaction, after that one has ended one of its own. Apache Kafka takes this for a repeated request where both
    ends are the same, and gives two producers one epoch, and INVALID_TXN_STATE where they are not."""
    state, request, who = cell
    return state in ("CompleteCommit", "CompleteAbort") and request in ("EndTxn 5, commit", "EndTxn 5, abort") and who == "an epoch older"


def _differs(cell: Cell) -> bool:
    state, request, who = cell
    if state in ("fenced", "timed out") and request in ("InitProducerId 3", "InitProducerId 4", "InitProducerId 5"):
        # With transaction.version 2 a producer whose transaction was aborted for it may ask for its next epoch.
        return who == "an epoch older"
    # 3.9.1 lets a batch of a newer epoch into a transaction that is open without asking the coordinator.
    return state == "Ongoing, written" and request in ("Produce 9", "Produce 11", "Produce 9, out of order") and who == "an epoch newer"


@pytest.mark.hour("src/jesenska/transactions")
def test_apache_kafka_3_differs_in_what_is_named_and_in_nothing_else(ours: dict[Cell, str], tmp_path: Path) -> None:
    theirs = _theirs("3.9.1", tmp_path)
    served = {cell: answer for cell, answer in theirs.items() if answer != _NOT_SERVED}
    assert len(served) > 500
    assert {cell for cell, answer in served.items() if ours[cell] != answer} == {cell for cell in served if _differs(cell)}


def test_while_markers_are_on_their_way_every_cell_is_what_apache_kafka_4_answers(ours_marking: dict[Cell, str], tmp_path: Path) -> None:
    theirs = _theirs_marking("4.3.1", tmp_path)
    assert {state for state, _, _ in theirs} == set(MARKING)
    assert all(answer.rpartition(" -> ")[2].startswith("Prepare") for answer in theirs.values())
    assert {cell: (ours_marking[cell], answer) for cell, answer in theirs.items() if ours_marking[cell] != answer} == {}
