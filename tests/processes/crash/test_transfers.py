"""Transfers between accounts, made in transactions, while brokers and clients are killed and paused. The sum of the
balances is right in every snapshot of committed records, and each transfer is made once.

JESENSKA_SEED chooses the rounds. The clients are librdkafka's and ours. The long run has thirty rounds, and also
clients of two releases of Apache Kafka:

    JESENSKA_TESTS=everything python -m pytest tests/processes/crash/test_transfers.py -s
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.feature_administration import SAFE_DOWNGRADE, UPGRADE
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import Schedule, apply, check, read_history
from jesenska.testing.faults.transaction_checkers import ABORTED, TORN
from tests.cluster.cluster import BrokerCluster
from tests.conformance.test_java_transactions import create_topics
from tests.processes.crash.bank import LIBRDKAFKA, OURS, Bank
from tests.processes.crash.kills_and_pauses import SETTINGS, drawn, targets_of
from tests.processes.crash.transfers import ENTRIES, PARTITIONS, TRANSFERS, Transfer, entries_of, wrong
from tests.processes.testing.made_history import MadeHistory
from tests.profiles import chosen, rounds

ROUNDS = rounds(quick=1, ci=2, everything=6)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
LOADS = chosen(quick=[LIBRDKAFKA, OURS], ci=[LIBRDKAFKA, OURS], everything=[OURS, LIBRDKAFKA, "3.9.1", "4.3.1"])

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 90 * ROUNDS)]

#: Of one broker.
_ALONE = {
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
#: Shorter than a session and longer, of brokers and of members.
_SECONDS = (0.1, 5.5)
_STEPS = (20, 120)


def _drawn(seed: int, rounds: int, brokers: list[str], clients: list[str]) -> Schedule:
    turns = [("kill", brokers), ("pause", clients), ("pause", brokers), ("kill", clients)]
    return drawn(seed, rounds, turns, seconds=_SECONDS, steps=_STEPS, hits_two=lambda _, chance: chance.random() < 0.5)


def test_the_sum_of_all_accounts_is_right_whatever_fails(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", session_ms=1500, settings=SETTINGS) as cluster:
        for topic in (TRANSFERS, ENTRIES):
            cluster.create(topic, PARTITIONS)
        # A watcher of each kind, librdkafka's first: that one writes the transfers.
        watchers = tuple(dict.fromkeys([LIBRDKAFKA, *(kind for kind in LOADS if kind != OURS)]))
        bank = Bank(cluster.bootstrap, LOADS, tmp_path, watchers=watchers)
        targets, brokers = targets_of(cluster, bank.workers.values())
        schedule = _drawn(SEED, ROUNDS, brokers, list(bank.workers))
        print(schedule.to_json())
        try:
            apply(schedule, targets, bank)
        finally:
            starts = {name: worker.starts for name, worker in bank.workers.items()}
            print(
                f"{bank.transfers} transfers; starts {starts}; errors {bank.said('error')}; ends {bank.said('fatal')}"
            )
        cluster.until_whole()
        cluster.until_logs_equal(ENTRIES, PARTITIONS)
    history = read_history(bank.paths)
    print(f"{len(history)} operations")
    assert bank.transfers > 10 * ROUNDS
    assert check(history) == []
    assert wrong(history, bank.transfers) == []


def test_transfers_go_on_while_transaction_version_goes_up_and_down(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=_ALONE, warm=True) as broker:
        asyncio.run(create_topics(broker.bootstrap, TRANSFERS, ENTRIES, partitions=PARTITIONS))
        bank = Bank(broker.bootstrap, [LIBRDKAFKA, OURS], tmp_path)
        bank.start()
        before = 2
        for level in (0, 1, 0, 2, 1, 2):
            asyncio.run(_set_level(broker.bootstrap, level, UPGRADE if level > before else SAFE_DOWNGRADE))
            wanted = bank.steps() + 10
            bank.until(lambda wanted=wanted: bank.steps() >= wanted, f"nothing is done at level {level}")  # type: ignore[misc]
            before = level
        bank.stop()
    history = read_history(bank.paths)
    assert check(history) == []
    assert wrong(history, bank.transfers) == []


async def _set_level(bootstrap: str, level: int, way: int) -> None:
    cluster = Cluster(bootstrap)
    try:
        await Admin(cluster).update_features({"transaction.version": level}, way)
    finally:
        await cluster.close()


def test_a_reader_of_uncommitted_records_is_found(tmp_path: Path) -> None:
    """The checkers must find a real mistake: a watcher that reads records of aborted transactions."""
    with BrokerProcess(tmp_path / "data", settings=_ALONE, warm=True) as broker:
        asyncio.run(create_topics(broker.bootstrap, TRANSFERS, ENTRIES, partitions=PARTITIONS))
        bank = Bank(broker.bootstrap, [LIBRDKAFKA], tmp_path, watched="read_uncommitted")
        bank.start()
        bank.until(lambda: bank.steps() > 60 and _has_read_aborted(bank), "nothing of an aborted transaction is seen")
        bank.stop()
    history = read_history(bank.paths)
    assert {finding.kind for finding in check(history)} >= {ABORTED}
    assert wrong(history, bank.transfers)


def _has_read_aborted(bank: Bank) -> bool:
    """True if a record of an aborted transaction has been read. The number of transfers does not show this, because a
    producer that aborts drops the records that it has not sent yet. A record of a transaction that is still open does
    not count."""
    findings = check(read_history(bank.paths))
    return any(finding.kind == ABORTED and "which was aborted" in finding.sentence for finding in findings)


def test_half_a_transfer_is_found() -> None:
    """A snapshot between a debit and its credit, and a full read that lacks one."""
    made = MadeHistory()
    worker, reader = made.client("w"), made.client("r")
    worker.transactional()
    transfer = Transfer(0, 0, PARTITIONS, 5)
    values = [value for _, value in entries_of(transfer, "w/1")]
    records = [(ENTRIES, 0, value) for value in values]
    for record in records:
        worker.sending(*record)
    worker.ended(worker.ending(records, commits=True), commits=True)
    key = TopicPartition(ENTRIES, 0)
    reader.polled(key, [(0, values[0])])
    reader.stable({key: 1})
    reader.full_read([key])
    reader.polled(key, [(0, values[0]), (1, values[1])])
    reader.full_read_ended({key: (0, 3)})
    assert [finding.kind for finding in check(made.operations)] == [TORN]
    assert wrong(made.operations, 1) == ["r saw -5 too much in partition 0 up to offset 1"]
    assert wrong(made.operations, 2) == [
        "r saw -5 too much in partition 0 up to offset 1",
        "r has 0 too many, like [], and lacks 2, like [(1, False), (1, True)]",
    ]
