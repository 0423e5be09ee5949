"""A broker that is stopped in order hands over its partitions before it ends. Its clients notice only a change of
leader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.wire.messages.k00_produce import ProduceResponse
from tests.cluster.cluster import BrokerCluster, until
from tests.cluster.loaded import loaded
from tests.cluster.one_request import PRODUCE_VERSION, produce_request, produced
from tests.cluster.witness import Witness
from tests.raw_connection import ClosedByBrokerError, RawConnection

pytestmark = pytest.mark.timeout(300)


class StrictProducer:
    """Writes one record after the other with acks=all to the current leader of partition 0. It repeats no request
    before it knows another leader, and notes every answer that is an error."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged: list[tuple[int, bytes]] = []
        #: The number of answers that reported another leader.
        self.moves = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def wait_for(self, more: int) -> None:
        with self._changed:
            wanted = len(self.acknowledged) + more
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted or self.failures, 60), (
                "the producer stands still"
            )
            assert self.failures == []

    def _run(self) -> None:
        try:
            leader = self._cluster.view().of(self._topic).leader
            while not self._stopping.is_set():
                leader = self._write_to(leader)
        except Exception as error:
            self._note(f"{error!r}")

    def _note(self, failure: str) -> None:
        with self._changed:
            self.failures.append(failure)
            self._changed.notify_all()

    def _write_to(self, leader: int) -> int:
        """Writes while this broker leads. Returns the next leader."""
        with RawConnection(self._cluster.brokers[leader].address, 60) as connection:
            while not self._stopping.is_set():
                value = b"%d" % len(self.acknowledged)
                try:
                    code, offset = produced(
                        connection.ask(produce_request(self._topic, value), PRODUCE_VERSION, ProduceResponse)
                    )
                except (ClosedByBrokerError, OSError) as error:
                    # It may have gone between two records, but only once it leads no more.
                    state = self._cluster.state(self._topic)
                    if state.leader == leader:
                        self._note(f"broker {leader} has gone, and leads still: {error!r}")
                    break
                if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    break
                if code != ErrorCode.NONE:
                    self._note(f"broker {leader} answers {code.name}")
                    break
                with self._changed:
                    self.acknowledged.append((offset, value))
                    self._changed.notify_all()
        if self._stopping.is_set() or self.failures:
            self._stopping.set()
            return leader
        self.moves += 1
        others = [broker_id for broker_id in self._cluster.answering if broker_id != leader]
        return (
            self._cluster.until(lambda view: view.of(self._topic).leader not in (-1, leader), others)
            .of(self._topic)
            .leader
        )


def test_leadership_moves_before_the_leader_goes(cluster: BrokerCluster) -> None:
    cluster.create("handed-over", 3)
    producer = StrictProducer(cluster, "handed-over")
    with Witness(cluster):
        producer.start()
        try:
            for _ in range(2):
                producer.wait_for(50)
                stopped = cluster.view().of("handed-over").leader
                cluster.brokers[stopped].stop()
                for number in range(3):
                    state = cluster.state("handed-over", number)
                    assert state.leader not in (-1, stopped)
                    assert stopped not in state.isr
                producer.wait_for(50)
                cluster.brokers[stopped].start()
                cluster.until_whole()
        finally:
            producer.stop()
    assert producer.failures == []
    assert producer.moves == 2
    records = [(record.offset, record.value) for record in cluster.read("handed-over")]
    # Records that were in flight when the leader changed may be in the log without having been acknowledged.
    assert [record for record in records if record in set(producer.acknowledged)] == producer.acknowledged
    assert len(records) <= len(producer.acknowledged) + producer.moves
    cluster.until_logs_equal("handed-over", 3)


def test_all_brokers_can_be_stopped_and_started_one_after_the_other_under_load(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    cluster.create("rolling", 3)
    with Witness(cluster), loaded(cluster, "rolling", tmp_path, members=1) as load:
        for broker in cluster.brokers.values():
            load.wait_for(50)
            broker.stop()
            cluster.until(lambda view, broker=broker: broker.broker_id not in view.brokers)  # type: ignore[misc]
            load.wait_for(50)
            broker.start()
            cluster.until_whole()
        load.wait_for(50)


def test_the_first_replica_leads_again_when_it_is_asked_for(cluster: BrokerCluster) -> None:
    cluster.create("preferred", placed=[[1, 2, 3]])
    cluster.write("preferred", [b"before"])
    cluster.brokers[1].stop()
    cluster.until(lambda view: view.of("preferred").leader == 2)
    cluster.write("preferred", [b"meanwhile"])
    cluster.brokers[1].start()
    cluster.until_whole()
    assert cluster.view().of("preferred").leader == 2
    cluster.elect_preferred("preferred")
    cluster.write("preferred", [b"after"])
    assert cluster.values("preferred") == [b"before", b"meanwhile", b"after"]
    cluster.until_logs_equal("preferred")


def test_a_stop_of_the_only_replica_leaves_nobody_leading_until_it_is_back(cluster: BrokerCluster) -> None:
    cluster.create("single", placed=[[3]])
    cluster.write("single", [b"value"])
    epoch = cluster.view().of("single").leader_epoch
    cluster.brokers[3].stop()
    cluster.until(lambda view: view.of("single").leader == -1)
    assert set(cluster.state("single").isr) == {3}
    cluster.brokers[3].start()
    cluster.until_whole()
    assert cluster.view().of("single").leader_epoch > epoch
    assert cluster.values("single") == [b"value"]


def test_all_brokers_stopped_in_order_have_everything_when_they_are_back(cluster: BrokerCluster) -> None:
    cluster.create("night", 3)
    for number in range(3):
        cluster.write("night", [b"evening"] * 50, partition=number)
    for broker in cluster.brokers.values():
        broker.stop()
    for broker in reversed(cluster.brokers.values()):
        broker.start()
    cluster.until_whole()
    for number in range(3):
        assert cluster.values("night", number) == [b"evening"] * 50
        cluster.write("night", [b"morning"], partition=number)
    cluster.until_logs_equal("night", 3)
    until(lambda: cluster.controller_epoch() > 1, "nobody was elected anew")
