"""Every state of a transactional id, every request, every producer, and scripts of several requests: what Apache Kafka
3.9.1 and 4.3.1 answer, and what we do. Ours is 4.3.1's but for one case where that one gives two producers one epoch;
where 3.9.1 differs from it is named here, by what it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from jesenska.testing import BrokerProcess
from jesenska.testing.faults.processes import wait_until_stopped
from tests.cluster.cluster import BrokerCluster
from tests.conformance.conftest import need
from tests.conformance.transaction_scripts import SCRIPTS, Step, answers, drawn
from tests.conformance.transaction_table import MARKING, SETTINGS, STATES, Broker, Cell, marking_table, table
from tests.peers.apache_kafka import ApacheKafka
from tests.profiles import rounds

# Two tables of a thousand cells, one after the other, on a busy machine.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]

_NOT_SERVED = "not served"
_SCRIPTS = SCRIPTS | {
    f"drawn with seed {seed}": drawn(seed) for seed in range(rounds(quick=20, ci=100, everything=1500))
}


class Answers(NamedTuple):
    """Those of one broker."""

    cells: dict[Cell, str]
    scripts: dict[str, list[str]]


def _answers(bootstrap: str, scripts: Mapping[str, tuple[Step, ...]]) -> Answers:
    broker = Broker(bootstrap)
    try:
        broker.prepare()
        return Answers(table(broker), {name: answers(broker, steps) for name, steps in scripts.items()})
    finally:
        broker.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with BrokerProcess(tmp_path_factory.mktemp("ours") / "data", settings=SETTINGS) as broker:
        return _answers(broker.bootstrap, _SCRIPTS)


@pytest.fixture(scope="module")
def theirs_4(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return _theirs("4.3.1", tmp_path_factory.mktemp("4.3.1"), _SCRIPTS)


@pytest.fixture(scope="module")
def ours_marking(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, str]:
    with BrokerCluster(
        tmp_path_factory.mktemp("marking") / "brokers", brokers=2, session_ms=60_000, settings=SETTINGS
    ) as cluster:
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


def _theirs(release: str, directory: Path, scripts: Mapping[str, tuple[Step, ...]]) -> Answers:
    need("java", "mvn")
    with ApacheKafka(release, directory, heap="400m", settings=SETTINGS) as kafka:
        return _answers(kafka.bootstrap, scripts)


def test_every_cell_is_what_apache_kafka_4_answers(ours: Answers, theirs_4: Answers) -> None:
    theirs = theirs_4.cells
    assert len(theirs) > 1000
    assert {state for state, _, _ in theirs} == set(STATES)
    assert {cell for cell, answer in theirs.items() if ours.cells[cell] != answer} == {
        cell for cell in theirs if _is_stricter(cell)
    }
    assert {ours.cells[cell].partition(" ")[0] for cell in theirs if _is_stricter(cell)} == {"PRODUCER_FENCED"}


def test_every_script_is_answered_as_by_apache_kafka_4(ours: Answers, theirs_4: Answers) -> None:
    differ = {
        name: list(zip(steps, ours.scripts[name], theirs_4.scripts[name], strict=True))
        for name, steps in _SCRIPTS.items()
    }
    assert {name: steps for name, steps in differ.items() if ours.scripts[name] != theirs_4.scripts[name]} == {}


def _is_stricter(cell: Cell) -> bool:
    """A producer whose epochs are raised, and that another one without raised epochs has replaced, asks to end its
    transaction, after that one has ended one of its own. Apache Kafka takes this for a repeated request where both
    ends are the same, and gives two producers one epoch, and INVALID_TXN_STATE where they are not."""
    state, request, who = cell
    return (
        state in ("CompleteCommit", "CompleteAbort")
        and request in ("EndTxn 5, commit", "EndTxn 5, abort")
        and who == "an epoch older"
    )


def _differs(cell: Cell) -> bool:
    state, request, who = cell
    if state in ("fenced", "timed out") and request in ("InitProducerId 3", "InitProducerId 4", "InitProducerId 5"):
        # With transaction.version 2 a producer whose transaction was aborted for it may ask for its next epoch.
        return who == "an epoch older"
    # 3.9.1 lets a batch of a newer epoch into a transaction that is open without asking the coordinator.
    return (
        state == "Ongoing, written"
        and request in ("Produce 9", "Produce 11", "Produce 9, out of order")
        and who == "an epoch newer"
    )


@pytest.mark.hour("src/jesenska/transactions")
def test_apache_kafka_3_differs_in_what_is_named_and_in_nothing_else(ours: Answers, tmp_path: Path) -> None:
    theirs = _theirs("3.9.1", tmp_path, {}).cells
    served = {cell: answer for cell, answer in theirs.items() if answer != _NOT_SERVED}
    assert len(served) > 500
    assert {cell for cell, answer in served.items() if ours.cells[cell] != answer} == {
        cell for cell in served if _differs(cell)
    }


def test_while_markers_are_on_their_way_every_cell_is_what_apache_kafka_4_answers(
    ours_marking: dict[Cell, str], tmp_path: Path
) -> None:
    theirs = _theirs_marking("4.3.1", tmp_path)
    assert {state for state, _, _ in theirs} == set(MARKING)
    assert all(answer.rpartition(" -> ")[2].startswith("Prepare") for answer in theirs.values())
    assert {cell: (ours_marking[cell], answer) for cell, answer in theirs.items() if ours_marking[cell] != answer} == {}
