"""Reassignments on a cluster: partitions move with their records while clients write, through the deaths of brokers
and of the controller, and a broker that was away deletes what is not its own any more."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from jesenska.base.errors import KafkaError, NoReassignmentInProgressError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.client.cluster import Cluster
from tests.cluster.cluster import BrokerCluster, ours_only, until

_RATE = "follower.replication.throttled.rate"


def _alter(
    cluster: BrokerCluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError]:
    """The errors of the refused requests."""

    async def work(client: Cluster) -> dict[TopicPartition, KafkaError | None]:
        return await Admin(client).alter_reassignments(targets)

    return {key: error for key, error in cluster.ask(work).items() if error is not None}


def _ongoing(cluster: BrokerCluster) -> dict[TopicPartition, OngoingReassignment]:
    async def work(client: Cluster) -> dict[TopicPartition, OngoingReassignment]:
        return await Admin(client).list_reassignments()

    return cluster.ask(work)


def _move(cluster: BrokerCluster, topic: str, target: Sequence[int], number: int = 0) -> None:
    """Moves a partition, and waits for the end."""
    assert _alter(cluster, {TopicPartition(topic, number): target}) == {}
    _until_moved(cluster, topic, target, number)


def _until_moved(cluster: BrokerCluster, topic: str, target: Sequence[int], number: int = 0) -> None:
    until(lambda: not _ongoing(cluster), f"the reassignment of {topic} does not end")
    cluster.until(
        lambda view: view.of(topic, number).replicas == tuple(target) and set(view.of(topic, number).isr) == set(target)
    )


def _has_log(cluster: BrokerCluster, broker_id: int, topic: str, number: int = 0) -> bool:
    return (cluster.brokers[broker_id].data / f"{topic}-{number}").exists()


def _crawl(cluster: BrokerCluster, topic: str, brokers: Sequence[int]) -> None:
    """Throttles the followers of a topic so much that no move ends; an empty list ends this."""

    async def work(client: Cluster) -> None:
        admin = Admin(client)
        listed = ",".join(f"{number}:{broker_id}" for number in range(3) for broker_id in brokers)
        await admin.alter_configs(TOPIC, topic, [ConfigChange("follower.replication.throttled.replicas", listed)])
        for broker_id in cluster.answering:
            await admin.alter_configs(BROKER, str(broker_id), [ConfigChange(_RATE, "1000")])

    cluster.ask(work)


def test_a_partition_moves_with_its_records_while_a_client_writes(cluster: BrokerCluster) -> None:
    topic = cluster.create("moving", placed=[[1, 2]])
    cluster.write(topic, [b"before"] * 100)
    ends, written = threading.Event(), [0]

    def write() -> None:
        while not ends.is_set():
            cluster.write(topic, [b"meanwhile"] * 10)
            written[0] += 10

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for target in ([3, 2], [2, 1], [1, 3], [3], [3, 1, 2], [1, 2]):
            _move(cluster, topic, target)
    finally:
        ends.set()
        writer.join()
    assert cluster.values(topic) == [b"before"] * 100 + [b"meanwhile"] * written[0]
    until(lambda: not _has_log(cluster, 3, topic), "broker 3 keeps its log")
    cluster.until_logs_equal(topic)


def test_a_cancelled_move_leaves_nothing_behind(cluster: BrokerCluster) -> None:
    topic = cluster.create("cancelled", placed=[[1, 2]])
    cluster.write(topic, [bytes(1000)] * 2000)
    _crawl(cluster, topic, [3])
    key = TopicPartition(topic, 0)
    assert _alter(cluster, {key: [3, 2]}) == {}
    assert _ongoing(cluster) == {key: OngoingReassignment((3, 2, 1), (3,), (1,))}
    until(lambda: _has_log(cluster, 3, topic), "broker 3 does not begin")
    assert _alter(cluster, {key: None}) == {}
    assert _ongoing(cluster) == {}
    until(lambda: not _has_log(cluster, 3, topic), "broker 3 keeps its log")
    assert [type(error) for error in _alter(cluster, {key: None}).values()] == [NoReassignmentInProgressError]
    cluster.until(lambda view: set(view.of(topic).replicas) == {1, 2})


@ours_only
def test_a_broker_that_was_away_deletes_its_moved_replica(frail: BrokerCluster) -> None:
    topic = frail.create("away", placed=[[1, 2]])
    frail.write(topic, [b"x"] * 100)
    frail.brokers[2].kill()
    frail.until(lambda view: view.of(topic).isr == (1,))
    _move(frail, topic, [1, 3])
    assert _has_log(frail, 2, topic)
    frail.brokers[2].start()
    until(lambda: not _has_log(frail, 2, topic), "broker 2 keeps its log")
    assert frail.values(topic) == [b"x"] * 100


def test_the_next_controller_ends_the_move(frail: BrokerCluster) -> None:
    controller = frail.controller()
    first, second = (broker_id for broker_id in frail.brokers if broker_id != controller)
    topic = frail.create("goes_on", placed=[[first]])
    frail.write(topic, [bytes(1000)] * 2000)
    _crawl(frail, topic, [second])
    assert _alter(frail, {TopicPartition(topic, 0): [second]}) == {}
    frail.brokers[controller].kill()
    until(lambda: frail.controller() != controller, "there is no next controller")
    assert _ongoing(frail) != {}
    _crawl(frail, topic, [])
    _until_moved(frail, topic, [second])
    frail.brokers[controller].start()
    frail.until_whole()
    assert len(frail.values(topic)) == 2000


def test_a_partition_of_the_coordinators_moves_with_its_groups(cluster: BrokerCluster) -> None:
    topic = cluster.create("coordinated", partitions=1)
    cluster.write(topic, [b"x"])
    before = cluster.coordinator("movers")
    others = [broker_id for broker_id in cluster.brokers if broker_id != before]
    for number in range(3):
        _move(cluster, "__consumer_offsets", others, number)
    until(lambda: cluster.coordinator("movers") in others, "the group keeps its coordinator")
    for number in range(3):
        _move(cluster, "__consumer_offsets", [1, 2, 3], number)
