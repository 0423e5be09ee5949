"""The tree is paused for a while. Records are still accepted and returned, changes of the cluster wait, and all work
goes on when the tree is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.cluster.cluster import BrokerCluster
from tests.cluster.witness import Witness
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@contextmanager
def _standing_still(cluster: BrokerCluster) -> Iterator[None]:
    cluster.tree.pause()
    try:
        yield
    finally:
        cluster.tree.resume()


def _create_request(name: str, timeout_ms: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreateTopicsRequestTopic(name=name, num_partitions=3, replication_factor=3)], timeout_ms=timeout_ms
    )


def _goes_round(cluster: BrokerCluster, topic: str, begin: int) -> int:
    """Writes to every partition with acks=all and reads the records back. Returns the number of records in each."""
    for number in range(3):
        values = [b"%d" % (begin + item) for item in range(10)]
        # An idempotent producer may need a producer id from the tree.
        assert cluster.write(topic, values, partition=number, enable_idempotence=False) == list(
            range(begin, begin + 10)
        )
        assert cluster.values(topic, number) == [b"%d" % item for item in range(begin + 10)]
    return begin + 10


def test_records_come_and_go_while_the_tree_stands_still_for_less_than_a_session(frail: BrokerCluster) -> None:
    topic = frail.create("short", 3)
    with Witness(frail):
        count = _goes_round(frail, topic, 0)
        with _standing_still(frail):
            count = _goes_round(frail, topic, count)
        count = _goes_round(frail, topic, count)
        frail.until_whole()
        frail.create("after-short", 3)
    frail.until_logs_equal(topic, 3)


def test_everything_goes_on_after_the_tree_has_stood_still_for_longer_than_the_sessions(frail: BrokerCluster) -> None:
    topic = frail.create("long", 3)
    with Witness(frail):
        count = _goes_round(frail, topic, 0)
        controller = frail.controller()
        with _standing_still(frail), RawConnection(frail.brokers[controller].address, 60) as connection:
            until = time.monotonic() + 2 * frail.session_seconds
            # It is answered, or waits: it cannot have been done.
            connection.send_frame(connection.frame(_create_request("meanwhile", 1000), 7))
            while time.monotonic() < until:
                count = _goes_round(frail, topic, count)
            assert not any("meanwhile" in view.topics for view in frail.views().values())
            frail.tree.resume()
            code = ErrorCode(connection.receive(7, CreateTopicsResponse).topics[0].error_code)
        if code == ErrorCode.NONE:
            frail.until(lambda view: view.of("meanwhile", 2).is_whole)
        frail.until_whole()
        count = _goes_round(frail, topic, count)
        # The controller elects and creates.
        gone = frail.view().of(topic).leader
        frail.brokers[gone].kill()
        frail.until(lambda view: all(view.of(topic, number).leader not in (-1, gone) for number in range(3)))
        count = _goes_round(frail, topic, count)
        frail.create("after-long", 3)
        frail.brokers[gone].start()
        frail.until_whole()
    frail.until_logs_equal(topic, 3)


def test_a_leader_that_dies_while_the_tree_stands_still_is_followed_when_it_is_back(frail: BrokerCluster) -> None:
    topic = frail.create("blind", 3)
    with Witness(frail):
        count = _goes_round(frail, topic, 0)
        gone = frail.view().of(topic).leader
        with _standing_still(frail):
            frail.brokers[gone].kill()
            # The controller cannot inform any broker.
            assert all(view.of(topic).leader == gone for view in frail.views().values())
        frail.until(lambda view: all(view.of(topic, number).leader not in (-1, gone) for number in range(3)))
        count = _goes_round(frail, topic, count)
        frail.brokers[gone].start()
        frail.until_whole()
    frail.until_logs_equal(topic, 3)


def test_groups_commit_while_the_tree_stands_still(frail: BrokerCluster) -> None:
    topic = frail.create("committing")
    frail.write(topic, [b"value"] * 5)
    key = TopicPartition(topic, 0)

    def commit(offset: int) -> None:
        async def work(client: Cluster) -> None:
            admin = Admin(client)
            assert await admin.alter_group_offsets("still", {key: offset}) == {key: None}
            assert (await admin.list_group_offsets("still"))[key].offset == offset

        frail.ask(work)

    frail.coordinator("still")
    commit(1)
    with _standing_still(frail):
        commit(2)
        assert frail.coordinator("still") in frail.brokers
    commit(3)
    frail.until_whole()


def test_the_tree_is_killed_and_comes_back_with_everything(frail: BrokerCluster) -> None:
    topic = frail.create("restarted", 3)
    with Witness(frail):
        count = _goes_round(frail, topic, 0)
        epoch = frail.controller_epoch()
        frail.tree.kill()
        count = _goes_round(frail, topic, count)
        frail.tree.start()
        frail.until_whole()
        assert frail.controller_epoch() >= epoch
        count = _goes_round(frail, topic, count)
        frail.create("after-restart", 3)
    frail.until_logs_equal(topic, 3)
