"""Transactions on several brokers: markers reach every leader although brokers are killed or paused, and a coordinator
that takes over carries out earlier decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.coordination.placement import partition_for
from tests.cluster.cluster import BrokerCluster, ours_only, until
from tests.conformance.test_java_transactions import create_topics, expected, fill, program, values
from tests.conformance.transaction_table import TOPIC, Asked, Broker, Who
from tests.raw_connection import ClosedByBrokerError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_STATE = "__transaction_state"
_SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "min.insync.replicas": "2",
    "num.partitions": "3",
}
#: With these another broker can take over, and writes go on with two of three.
_REPLICATED = {
    **_SETTINGS,
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "2000",
}
_RELEASE = "4.3.1"


@pytest.fixture
def transactional(tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path / "brokers", session_ms=1500, settings=_SETTINGS) as running:
        running.create(TOPIC, 3)
        yield running


def _at(cluster: BrokerCluster, broker_id: int) -> Broker:
    return Broker(cluster.brokers[broker_id].address)


def _coordinator(cluster: BrokerCluster, name: str) -> int:
    """The broker that coordinates a transactional id. The request creates its topic."""

    def found() -> int:
        for broker_id in cluster.brokers:
            try:
                broker = _at(cluster, broker_id)
            except OSError:
                continue
            try:
                leader = broker.coordinator_of(name)
            except (ClosedByBrokerError, TimeoutError):
                continue
            finally:
                broker.close()
            if leader >= 0:
                return leader
        return -1

    until(lambda: found() >= 0, "no coordinator is named")
    return found()


def _leader(cluster: BrokerCluster, partition: int) -> int:
    return cluster.view().topics[TOPIC][partition].leader


def _produce_to_all(cluster: BrokerCluster, asked: Asked) -> None:
    """Produces a record to each partition, at its leader, which adds the partition to the transaction."""
    for partition in range(3):

        def sent(partition: int = partition) -> bool:
            broker = _at(cluster, _leader(cluster, partition))
            try:
                return broker.produce(asked, asked.producer, 12, partition=partition) == ErrorCode.NONE
            finally:
                broker.close()

        until(sent, f"partition {partition} takes no record")


def _begun(cluster: BrokerCluster, name: str) -> tuple[int, Asked]:
    coordinator = _coordinator(cluster, name)
    broker = _at(cluster, coordinator)
    try:
        return coordinator, Asked(name, broker.init(name))
    finally:
        broker.close()


def _state(cluster: BrokerCluster, name: str) -> str:
    broker = _at(cluster, _coordinator(cluster, name))
    try:
        return broker.describe(name)[1]
    finally:
        broker.close()


def _stable(cluster: BrokerCluster, partition: int) -> int:
    broker = _at(cluster, _leader(cluster, partition))
    try:
        return broker.last_stable_offset(TOPIC, partition)
    finally:
        broker.close()


def _is_stable(cluster: BrokerCluster, partition: int) -> bool:
    stable = _stable(cluster, partition)
    return stable > 1 and stable == cluster.high_watermark(_leader(cluster, partition), TOPIC, partition)


@ours_only
def test_markers_reach_the_leaders_of_every_partition_on_whatever_broker(transactional: BrokerCluster) -> None:
    assert {_leader(transactional, number) for number in range(3)} == {1, 2, 3}
    coordinator, asked = _begun(transactional, "everywhere")
    assert coordinator == transactional.view().topics[_STATE][partition_for("everywhere", 3)].leader
    _produce_to_all(transactional, asked)
    assert [_stable(transactional, number) for number in range(3)] == [0, 0, 0]
    broker = _at(transactional, coordinator)
    assert broker.end(asked, asked.producer, 5, commits=True).error_code == ErrorCode.NONE
    broker.close()
    until(lambda: [_stable(transactional, number) for number in range(3)] == [2, 2, 2], "a marker is missing")
    until(lambda: _state(transactional, "everywhere") == "CompleteCommit", "it is not complete")


@ours_only
@pytest.mark.parametrize("commits", (True, False))
def test_what_was_decided_is_carried_out_by_the_coordinator_that_takes_over(tmp_path: Path, commits: bool) -> None:
    """A leader is paused, so that the decision is in the log but not carried out. Then the coordinator is killed."""
    with BrokerCluster(tmp_path / "brokers", session_ms=6000, settings=_SETTINGS) as cluster:
        cluster.create(TOPIC, 3)
        coordinator, asked = _begun(cluster, "decided")
        _produce_to_all(cluster, asked)
        still = next(number for number in (1, 2, 3) if number != coordinator)
        cluster.brokers[still].pause()
        try:
            broker = _at(cluster, coordinator)
            answered = broker.end(asked, asked.producer, 5, commits=commits)
            assert answered.error_code == ErrorCode.NONE
            assert broker.describe("decided")[1] == ("PrepareCommit" if commits else "PrepareAbort")
            following = Asked("decided", Who(answered.producer_id, answered.producer_epoch))
            assert broker.add(following, following.producer, 4) == ErrorCode.CONCURRENT_TRANSACTIONS
            broker.close()
            cluster.brokers[coordinator].kill()
        finally:
            cluster.brokers[still].resume()
        cluster.brokers[coordinator].start()
        cluster.until_whole()
        wanted = "CompleteCommit" if commits else "CompleteAbort"
        until(lambda: _state(cluster, "decided") == wanted, "it is not complete")
        until(lambda: all(_is_stable(cluster, number) for number in range(3)), "a marker is missing")


@ours_only
@pytest.mark.parametrize("ends", ("commits", "aborts", "begins again", "is timed out"))
def test_another_broker_takes_over_an_open_transaction(tmp_path: Path, ends: str) -> None:
    """Its coordinator is killed and does not return."""
    with BrokerCluster(tmp_path / "brokers", settings=_REPLICATED) as cluster:
        cluster.create(TOPIC, 3)
        coordinator, asked = _begun(cluster, "open")
        until(
            lambda: all(part.is_whole for part in cluster.view().topics[_STATE]),
            "the coordinators' log has not all replicas",
        )
        if ends == "is timed out":
            broker = _at(cluster, coordinator)
            who = broker.init("open", timeout_ms=1000)
            broker.close()
            asked = Asked("open", who)
        _produce_to_all(cluster, asked)
        cluster.brokers[coordinator].kill()
        others = [number for number in cluster.brokers if number != coordinator]
        cluster.until(lambda view: view.topics[_STATE][partition_for("open", 3)].leader in others)

        def ended() -> bool:
            broker = _at(cluster, _coordinator(cluster, "open"))
            try:
                if ends == "begins again":
                    return broker.ask_init("open").error_code == ErrorCode.NONE
                return (
                    ends == "is timed out"
                    or broker.end(asked, asked.producer, 5, commits=ends == "commits").error_code == ErrorCode.NONE
                )
            finally:
                broker.close()

        until(ended, "the transaction is not ended")
        until(lambda: all(_is_stable(cluster, number) for number in range(3)), "a marker is missing")
        wanted = {"commits": "CompleteCommit", "begins again": "Empty"}.get(ends, "CompleteAbort")
        until(lambda: _state(cluster, "open") == wanted, "it is not complete")


@ours_only
def test_nothing_is_lost_or_twice_when_coordinators_and_leaders_are_killed(transactional: BrokerCluster) -> None:
    """Java's consume-transform-produce while three brokers are killed in turn: the coordinator of its id, the leader
    of an output and the coordinator of its group."""
    cluster, count = transactional, 600
    bootstrap = cluster.bootstrap
    asyncio.run(create_topics(bootstrap, "input", "output", replicas=3, partitions=3))
    cluster.until_whole()
    asyncio.run(fill(bootstrap, "input", 0, count, partitions=3))
    with program(_RELEASE, "loop", bootstrap, "input", "output", "group", "loop", str(count + 300)) as loop:
        victims: tuple[Callable[[], int], ...] = (
            lambda: _coordinator(cluster, "loop"),
            lambda: cluster.view().topics["output"][0].leader,
            lambda: cluster.coordinator("group"),
        )
        for number, victim in enumerate(victims):
            loop.wait_for("committed", 2 + 3 * number)
            killed = victim()
            cluster.brokers[killed].kill()
            asyncio.run(fill(bootstrap, "input", count + 100 * number, 100, partitions=3))
            cluster.brokers[killed].start()
            cluster.until_whole()
        loop.wait_for("ended")
    assert values(_RELEASE, bootstrap, "output") == expected(count + 300)
