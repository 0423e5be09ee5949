"""In-sync replicas: paused followers leave the ISR and return, no record is committed without the ISR, and
min.insync.replicas is obeyed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.cluster.cluster import BrokerCluster, until
from tests.cluster.one_request import fetch, list_offset, produce
from tests.raw_connection import RawConnection

_LAG_SECONDS, _FETCH_WAIT_SECONDS = 1.5, 0.3
_MANY = 30


@pytest.fixture(scope="module")
def _lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    settings = {
        "replica.lag.time.max.ms": str(int(_LAG_SECONDS * 1000)),
        "replica.fetch.wait.max.ms": str(int(_FETCH_WAIT_SECONDS * 1000)),
    }
    with BrokerCluster(tmp_path_factory.mktemp("lagging"), session_ms=60_000, settings=settings) as running:
        yield running


@pytest.fixture
def lagging(_lagging: BrokerCluster) -> BrokerCluster:
    """Brokers that soon remove others from the ISR, but consider them dead only after an orderly stop. So only the
    leaders notice a paused broker."""
    _lagging.heal()
    return _lagging


def _followers(cluster: BrokerCluster, topic: str) -> tuple[int, list[int]]:
    """The leader and the others. The first of the others is not the controller, without which no ISR changes."""
    leader, controller = cluster.view().of(topic).leader, cluster.controller()
    return leader, sorted(
        (broker_id for broker_id in cluster.brokers if broker_id != leader),
        key=lambda broker_id: broker_id == controller,
    )


def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(lagging: BrokerCluster) -> None:
    topic = lagging.create("still")
    lagging.write(topic, [b"before"] * 100)
    leader, (follower, other) = _followers(lagging, topic)
    lagging.brokers[follower].pause()
    # Every broker still believes that it is in sync: the leader waits for it until it leaves the ISR.
    assert produce(lagging.brokers[leader].address, topic, b"meanwhile", timeout_ms=60_000) == (ErrorCode.NONE, 100)
    assert set(lagging.state(topic).isr) == {leader, other}
    lagging.until(lambda view: view.of(topic).isr == tuple(sorted((leader, other))))
    lagging.write(topic, [b"after"] * 100)
    lagging.brokers[follower].resume()
    lagging.until(lambda view: view.of(topic).is_whole)
    assert lagging.view().of(topic).leader == leader
    lagging.until_logs_equal(topic)
    assert lagging.values(topic) == [b"before"] * 100 + [b"meanwhile"] + [b"after"] * 100
    until(
        lambda: lagging.high_watermark(follower, topic) == 201, "the follower's high watermark does not come to the end"
    )


def test_an_idle_partitions_follower_stays_in_sync(lagging: BrokerCluster) -> None:
    """A follower that has all records is in sync, no matter how long ago the last write was. Meanwhile another topic's
    follower leaves."""
    controller = lagging.controller()
    paused, other = (broker_id for broker_id in lagging.brokers if broker_id != controller)
    idle, busy = (
        lagging.create("idle", placed=[[controller, other]]),
        lagging.create("busy", placed=[[controller, paused]]),
    )
    lagging.write(idle, [b"value"])
    lagging.brokers[paused].pause()
    assert produce(lagging.brokers[controller].address, busy, timeout_ms=60_000)[0] == ErrorCode.NONE
    lagging.until(lambda view: view.of(busy).isr == (controller,))
    assert lagging.view().of(idle).isr == tuple(sorted((controller, other)))
    assert lagging.state(idle).leader_epoch == lagging.view().of(idle).leader_epoch


def test_a_follower_that_is_told_of_a_topic_before_its_leader_stays_in_sync(lagging: BrokerCluster) -> None:
    controller = lagging.controller()
    leader, follower = (broker_id for broker_id in lagging.brokers if broker_id != controller)
    # So that the follower asks that leader for something already.
    lagging.create("earlier", placed=[[leader, follower]])
    placed = [
        CreateTopicsRequestAssignment(partition_index=number, broker_ids=[leader, follower]) for number in range(_MANY)
    ]
    topic = CreateTopicsRequestTopic(name="sooner", num_partitions=-1, replication_factor=-1, assignments=placed)
    with RawConnection(lagging.brokers[controller].address, 60) as connection:
        lagging.brokers[leader].pause()
        connection.send_frame(connection.frame(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7))
        until(
            lambda: len(list(lagging.brokers[follower].data.glob("sooner-*"))) == _MANY,
            "the follower is not told of the topic",
        )
        # Longer than a fetch waits, so that the follower's next fetch arrives as soon as the leader goes on.
        time.sleep(2 * _FETCH_WAIT_SECONDS)
        lagging.brokers[leader].resume()
        assert connection.receive(7, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE
    lagging.until(lambda view: view.of("sooner", _MANY - 1).leader == leader)
    ends = time.monotonic() + 2 * _LAG_SECONDS
    while time.monotonic() < ends:
        assert all(partition.is_whole for partition in lagging.view(leader).topics["sooner"])
        assert [len(lagging.state("sooner", number).isr) for number in range(_MANY)] == [2] * _MANY


def test_consumers_see_nothing_that_a_replica_in_sync_has_not_got(lagging: BrokerCluster) -> None:
    topic = lagging.create("committed")
    lagging.write(topic, [b"old"])
    leader, (follower, _) = _followers(lagging, topic)
    address = lagging.brokers[leader].address
    lagging.brokers[follower].pause()
    assert produce(address, topic, b"new", acks=1) == (ErrorCode.NONE, 1)

    def is_seen() -> bool:
        _, high_watermark, values = fetch(address, topic)
        _, end = list_offset(address, topic)
        seen = high_watermark == 2 or values == [b"old", b"new"] or end == 2
        # The ISR is read afterwards: a follower that is out of it by now may have been out of it before.
        assert not seen or follower not in lagging.state(topic).isr
        return seen

    until(is_seen, "the record is never committed")
    assert fetch(address, topic) == (ErrorCode.NONE, 2, [b"old", b"new"])
    assert list_offset(address, topic) == (ErrorCode.NONE, 2)


def test_a_write_that_waits_for_replicas_is_told_when_its_time_is_up(lagging: BrokerCluster) -> None:
    topic = lagging.create("timed")
    leader, (follower, _) = _followers(lagging, topic)
    address = lagging.brokers[leader].address
    lagging.brokers[follower].pause()
    code, _ = produce(address, topic, b"value", timeout_ms=1)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    # The record is in the log all the same.
    until(lambda: fetch(address, topic)[2] == [b"value"], "the record is never committed")


def test_min_insync_replicas_holds_with_two_of_three_stopped(lagging: BrokerCluster) -> None:
    topic = lagging.create("strict", configs={"min.insync.replicas": "2"})
    lagging.write(topic, [b"first"])
    leader, others = _followers(lagging, topic)
    address = lagging.brokers[leader].address
    lagging.brokers[others[0]].stop()
    lagging.until(lambda view: len(view.of(topic).isr) == 2)
    assert produce(address, topic, b"second") == (ErrorCode.NONE, 1)
    lagging.brokers[others[1]].stop()
    lagging.until(lambda view: view.of(topic).isr == (leader,))
    assert produce(address, topic, b"refused")[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert list_offset(address, topic) == (ErrorCode.NONE, 2)
    assert produce(address, topic, b"third", acks=1) == (ErrorCode.NONE, 2)
    lagging.brokers[others[1]].start()
    lagging.until(lambda view: len(view.of(topic).isr) == 2)
    assert produce(address, topic, b"fourth") == (ErrorCode.NONE, 3)
    lagging.brokers[others[0]].start()
    lagging.until_whole()
    lagging.until_logs_equal(topic)
    assert lagging.values(topic) == [b"first", b"second", b"third", b"fourth"]


def test_a_follower_that_stands_still_again_and_again_loses_nothing(lagging: BrokerCluster) -> None:
    topic = lagging.create("again", 2)
    _, (follower, _) = _followers(lagging, topic)
    values: list[bytes] = []
    with ThreadPoolExecutor(1) as thread:
        for turn in range(3):
            lagging.brokers[follower].pause()
            wanted = [b"%d-%d" % (turn, number) for number in range(300)]
            written = thread.submit(lagging.write, topic, wanted, batch_size=500)
            if turn % 2:
                lagging.until(lambda view: follower not in view.of(topic).isr)
            lagging.brokers[follower].resume()
            assert written.result() == list(range(len(values), len(values) + len(wanted)))
            values += wanted
    lagging.until(lambda view: view.of(topic).is_whole)
    lagging.until_logs_equal(topic)
    assert lagging.values(topic) == values
