"""A broker that never returns: topics that were deleted without it can be created again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError, TopicAlreadyExistsError
from jesenska.cli.jesenska import main
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.metadata import paths
from tests.cluster.cluster import BrokerCluster, ours_only

pytestmark = [ours_only, pytest.mark.timeout(300)]


def _create(cluster: BrokerCluster, name: str) -> KafkaError | None:
    async def work(client: Cluster) -> KafkaError | None:
        return (await Admin(client).create_topics([NewTopic(name, 1, 1, {}, [[1]])]))[name]

    return cluster.ask(work)


def test_a_topic_that_was_deleted_without_a_broker_can_be_made_again(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create("again", placed=[[3, 1]])
    cluster.create("kept", placed=[[1, 3], [3, 2]])

    def forget(*words: str, code: int) -> str:
        capsys.readouterr()
        assert main(["forget-broker", *words, "--zookeeper", cluster.tree.address]) == code
        said = capsys.readouterr()
        return said.err if code == 1 else said.out

    assert "Broker 3 is registered: stop it first" in forget("3", "--yes", code=1)
    cluster.brokers[3].stop()
    try:
        cluster.until(lambda view: view.of("again").leader == 1, brokers=[1, 2])
        assert "No deletion waits for broker 3.\n" in forget("3", code=0)
        assert cluster.ask(lambda client: Admin(client).delete_topics(["again"])) == {"again": None}
        assert isinstance(_create(cluster, "again"), TopicAlreadyExistsError)
        assert "The deletion of again waits for broker 3: give --yes" in forget("3", code=1)
        assert cluster.node(paths.topic("again")) is not None
        done = json.loads(forget("3", "--yes", "--output", "json", code=0))
        assert done.pop("partitions") >= 2
        assert done == {"brokers": [3], "deleted": ["again"], "waiting": []}
        assert cluster.node(paths.LOST_BROKERS) is None
        assert cluster.node(paths.delete_topic("again")) is None
        assert _create(cluster, "again") is None
        cluster.write("again", [b"new"])
    finally:
        cluster.brokers[3].start()
    # The broker does return: its data of the first topic disturb nothing.
    cluster.until_whole()
    assert cluster.values("again") == [b"new"]
    assert (cluster.brokers[3].data / "again-0").is_dir()
    assert "again-0 is not known to the metadata" in cluster.brokers[3].log


def test_two_brokers_are_forgotten_at_once_or_the_second_is_waited_for(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create("far", placed=[[2, 3]])
    for number in (2, 3):
        cluster.brokers[number].stop()
    try:
        cluster.until(lambda view: sorted(view.brokers) == [1], brokers=[1])
        assert cluster.ask(lambda client: Admin(client).delete_topics(["far"])) == {"far": None}
        assert main(["forget-broker", "3", "--zookeeper", cluster.tree.address, "--yes"]) == 4
        assert "Not deleted yet, since other brokers are gone or slow: far." in capsys.readouterr().out
        assert main(["forget-broker", "2", "3", "--zookeeper", cluster.tree.address, "--yes"]) == 0
        assert capsys.readouterr().out.startswith("Deleted: far.\n")
    finally:
        for number in (2, 3):
            cluster.brokers[number].start()
    cluster.until_whole()


def test_a_tree_that_nobody_serves_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forget-broker", "3", "--data", str(tmp_path)]) == 1
    assert (
        f"No tree is served from {tmp_path}: start its brokers, or name the tree with --zookeeper."
        in capsys.readouterr().err
    )
