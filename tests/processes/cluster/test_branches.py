"""Branches on three brokers. Each broker with a replica of the source shares its files, and all replicas of a branch
become one log, whatever happens in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition, uuid_from_text
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import BRANCH_OF, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.controller.plans.branches import BranchPoint, branch_point
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode, decode_config, encode_config
from jesenska.metadata.tree_operations import Create
from jesenska.metadata.zookeeper.client.client import connect
from tests.cluster.cluster import BrokerCluster, ours_only, until

pytestmark = ours_only
_SMALL = {"segment.bytes": "3000"}


def _source(cluster: BrokerCluster, name: str, partitions: int = 2, count: int = 300) -> list[bytes]:
    async def create(client: Cluster) -> None:
        assert await Admin(client).create_topics([NewTopic(name, partitions, 3, configs=_SMALL)]) == {name: None}

    cluster.ask(create)
    cluster.until_whole()
    values = [b"%s-%d" % (name.encode(), number) for number in range(count)]
    for partition in range(partitions):
        for start in range(0, count, 20):
            cluster.write(name, values[start : start + 20], partition=partition)
    return values


def _branch(cluster: BrokerCluster, source: str, target: str) -> None:
    cluster.ask(lambda client: Admin(client).branch_topic(source, target))


def _settings(cluster: BrokerCluster, topic: str) -> dict[str, str]:
    """The settings of the topic itself, in the tree."""
    return dict(decode_config(cluster.node(paths.topic_config(topic)) or b""))


def _is_shared(cluster: BrokerCluster, topic: str, brokers: Collection[int] = (1, 2, 3)) -> bool:
    """True if each partition of the topic on these brokers shares all but two of its log files with another topic."""
    for broker_id in brokers:
        for directory in cluster.brokers[broker_id].data.glob(f"{topic}-[0-9]"):
            links = [path.stat().st_nlink for path in directory.glob("*.log")]
            if sum(count > 1 for count in links) < len(links) - 2:
                return False
    return True


def test_every_broker_branches_what_it_has(cluster: BrokerCluster) -> None:
    values = _source(cluster, "orders")
    cluster.until_logs_equal("orders", 2)
    _branch(cluster, "orders", "trial")
    cluster.until_whole()
    assert _is_shared(cluster, "trial")
    for partition in (0, 1):
        assert cluster.values("trial", partition) == values
        assert cluster.state("trial", partition).leader == cluster.state("orders", partition).leader
    cluster.write("trial", [b"of the branch"] * 3)
    cluster.write("orders", [b"of the source"] * 2)
    cluster.until_logs_equal("trial", 2)
    cluster.until_logs_equal("orders", 2)
    assert cluster.values("trial") == [*values, *[b"of the branch"] * 3]
    assert cluster.values("orders") == [*values, *[b"of the source"] * 2]

    assert _settings(cluster, "trial") == {**_SMALL, BRANCH_OF: "orders"}


def test_branches_under_load_are_a_beginning_of_what_their_source_has(cluster: BrokerCluster) -> None:
    """Replicas that branch at different high watermarks become one log."""
    values = _source(cluster, "busy", 1)
    ends = threading.Event()
    written: list[bytes] = []

    def load() -> None:
        while not ends.is_set():
            batch = [b"more-%d" % number for number in range(len(written), len(written) + 50)]
            cluster.write("busy", batch)
            written.extend(batch)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for number in range(5):
            _branch(cluster, "busy", f"busy-{number}")
            cluster.write(f"busy-{number}", [b"of the branch"])
    finally:
        ends.set()
        loading.join()
    cluster.until_whole()
    told = cluster.values("busy")
    assert told == [*values, *written]
    for number in range(5):
        cluster.until_logs_equal(f"busy-{number}")
        *shared, last = cluster.values(f"busy-{number}")
        assert last == b"of the branch"
        assert shared == told[: len(shared)]
        assert len(shared) >= len(values)
    cluster.until_logs_equal("busy")


def test_a_broker_that_was_away_fetches_the_branch(cluster: BrokerCluster) -> None:
    values = _source(cluster, "missed", 1)
    leader = cluster.state("missed").leader
    away = next(broker_id for broker_id in (1, 2, 3) if broker_id not in (leader, cluster.controller()))
    cluster.brokers[away].stop()
    _branch(cluster, "missed", "fetched")
    cluster.write("fetched", [b"last"])
    assert _is_shared(cluster, "fetched", {1, 2, 3} - {away})
    cluster.brokers[away].start()
    cluster.until_whole()
    cluster.until_logs_equal("fetched")
    assert cluster.values("fetched") == [*values, b"last"]


def test_a_branch_outlives_its_source_and_its_leader(cluster: BrokerCluster) -> None:
    values = _source(cluster, "gone", 1)
    _branch(cluster, "gone", "left")
    cluster.until_whole()

    async def delete(client: Cluster) -> None:
        assert await Admin(client).delete_topics(["gone"]) == {"gone": None}

    cluster.ask(delete)
    leader = cluster.state("left").leader
    cluster.brokers[leader].stop()
    cluster.until(lambda view: view.of("left").leader not in (-1, leader))
    cluster.write("left", [b"under another"])
    cluster.brokers[leader].start()
    cluster.until_whole()
    cluster.until_logs_equal("left")
    assert cluster.values("left") == [*values, b"under another"]


def test_a_leader_without_a_source_begins_no_empty_log(cluster: BrokerCluster) -> None:
    """A branch whose source was deleted before the branch was made. Another controller may leave such a branch."""
    point = BranchPoint("vanished", 3, uuid_from_text("9tbXHgBvRzO0K-63RUy5HQ"))
    node = TopicNode({0: (1, 2, 3)}, uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ"))

    async def write() -> None:
        store = await connect(cluster.tree.address, session_timeout_ms=20_000)
        try:
            await store.multi(
                [
                    Create(paths.topic_config("orphan"), encode_config({BRANCH_OF: point.text()})),
                    Create(paths.topic("orphan"), node.encode()),
                ]
            )
        finally:
            await store.close()

    asyncio.run(write())
    cluster.until(lambda view: "orphan" in view.topics and view.of("orphan").leader != -1)
    leader = cluster.state("orphan").leader
    until(
        lambda: "it is to be a branch of vanished" in cluster.brokers[leader].log,
        "the leader does not say that it has no source",
    )

    async def ask(client: Cluster) -> None:
        key = TopicPartition("orphan", 0)
        await list_offsets(client, {key: LATEST})

    with pytest.raises((KafkaError, TimeoutError)):
        cluster.ask(ask, 3)
    assert not (cluster.brokers[leader].data / "orphan-0").exists()
    assert branch_point(_settings(cluster, "orphan")) == point

    async def delete(client: Cluster) -> None:
        assert await Admin(client).delete_topics(["orphan"]) == {"orphan": None}

    cluster.ask(delete)


def test_a_broker_that_dies_meanwhile_leaves_the_whole_branch_or_none(frail: BrokerCluster) -> None:
    values = _source(frail, "risky", 2)
    for number, victim in enumerate([frail.controller(), frail.state("risky").leader]):
        name = f"risky-{number}"
        asked = threading.Event()

        def ask(name: str = name, asked: threading.Event = asked) -> None:
            async def work(client: Cluster) -> None:
                asked.set()
                await Admin(client, timeout_ms=5000).branch_topic("risky", name)

            try:
                frail.ask(work)
            except (KafkaError, TimeoutError):
                pass

        asking = threading.Thread(target=ask)
        asking.start()
        asked.wait()
        frail.brokers[victim].kill()
        asking.join()
        frail.brokers[victim].start()
        frail.until_whole()
        if name in frail.view().topics:
            for partition in (0, 1):
                assert frail.values(name, partition) == values
            frail.until_logs_equal(name, 2)
