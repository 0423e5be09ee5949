"""kafka-reassign-partitions of 0.8.2.2 and 1.0.2 with --zookeeper, on our brokers and our tree, and ours with
--zookeeper: 1.0.2's and ours say the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.metadata import paths
from jesenska.metadata.nodes import decode_config
from jesenska.metadata.tree_operations import NoNodeError
from jesenska.metadata.zookeeper.client.client import connect
from tests.cluster.cluster import BrokerCluster, until
from tests.conformance.conftest import need
from tests.conformance.reassignment_steps import TOOL, Steps
from tests.conformance.test_reassign_tool import our_tool
from tests.peers.tools import Tools

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

#: What a tool has printed, from its arguments.
Print = Callable[[Sequence[str]], str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    need("java", "mvn")
    running = BrokerCluster(tmp_path_factory.mktemp("cluster"), session_ms=60_000)
    try:
        yield running.begin(range(3))
    finally:
        running.end()


def _steps(cluster: BrokerCluster, tmp_path: Path, prefix: str) -> Steps:
    return Steps(cluster.bootstrap, tmp_path, tmp_path, our_tool, prefix)


def _cancel(cluster: BrokerCluster) -> None:
    async def work(client: Cluster) -> Mapping[TopicPartition, KafkaError | None]:
        admin = Admin(client)
        return await admin.alter_reassignments(dict.fromkeys(await admin.list_reassignments()))

    assert set(cluster.ask(work).values()) <= {None}


def _settings(cluster: BrokerCluster, entity: str) -> dict[str, Any]:
    """The settings in a node. The replicas in a list are sorted: 1.0.2's tool has no order."""

    async def work(client: Cluster) -> dict[str, str]:
        store = await connect(cluster.tree.address, session_timeout_ms=30_000)
        try:
            return decode_config((await store.get(f"{paths.CONFIG}/{entity}"))[0])
        except NoNodeError:
            return {}
        finally:
            await store.close()

    return {name: sorted(value.split(",")) for name, value in cluster.ask(work).items()}


def _told(cluster: BrokerCluster, tmp_path: Path, prefix: str, say: Print) -> list[Any]:
    """Whole reassignments with throttles, and what is printed about them and written into the tree."""
    at = _steps(cluster, tmp_path, prefix)
    told: list[Any] = []

    def step(*arguments: object) -> None:
        lines = at.lines(say(["--zookeeper", cluster.tree.address, *map(str, arguments)]))
        told.append(_without_order(lines))

    small = at.topic("small", [[0, 1], [1, 2]])
    big = at.topic("big", [[0, 1]], megabytes=3)
    plan = at.plan((small, 0, [1, 2]), (small, 1, [2, 0]))
    step("--verify", "--reassignment-json-file", plan)
    step("--execute", "--reassignment-json-file", plan, "--throttle", 5_000_000)
    at.until_quiet()
    until(lambda: not _is_requested(cluster), "the node is not deleted")
    told.append(_settings(cluster, f"topics/{small}"))
    step("--verify", "--reassignment-json-file", plan)
    told.append([_settings(cluster, f"topics/{small}"), _settings(cluster, "brokers/0")])
    slow = at.plan((big, 0, [2, 1]))
    step("--execute", "--reassignment-json-file", slow, "--throttle", 1000)
    told.append(
        [_settings(cluster, f"topics/{big}"), *(_settings(cluster, f"brokers/{number}") for number in range(3))]
    )
    step("--verify", "--reassignment-json-file", slow)
    at.until_quiet(but={TopicPartition(big, 0)})
    step("--execute", "--reassignment-json-file", slow, "--throttle", 2000)
    told.append([_settings(cluster, f"brokers/{number}") for number in range(3)])
    _cancel(cluster)
    step("--verify", "--reassignment-json-file", slow)
    step("--verify", "--reassignment-json-file", plan)
    return told


def _without_order(lines: Sequence[str]) -> list[Any]:
    """The lines; an assignment is sorted, since 1.0.2's tool has no order."""
    found: list[Any] = []
    for line in lines:
        if line.startswith("{"):
            found.append(sorted(json.loads(line)["partitions"], key=lambda item: (item["topic"], item["partition"])))
        else:
            found.append(line)
    return found


def _is_requested(cluster: BrokerCluster) -> bool:
    async def work(client: Cluster) -> bool:
        store = await connect(cluster.tree.address, session_timeout_ms=30_000)
        try:
            return await store.exists(paths.REASSIGN_PARTITIONS) is not None
        finally:
            await store.close()

    return cluster.ask(work)


def test_1_0_2s_tool_and_ours_say_and_write_the_same(cluster: BrokerCluster, tmp_path: Path) -> None:
    with Tools("1.0.2") as tools:
        theirs = _told(cluster, tmp_path, "theirs", lambda arguments: tools.run(TOOL, *arguments).output)
    ours = _told(cluster, tmp_path, "ours", lambda arguments: our_tool(TOOL, arguments).output)
    assert ours == theirs
    assert "Throttle was removed." in theirs[3]
    assert theirs[8] == ["There is an existing assignment running."]


def test_0_8_2_2s_tool_moves_partitions_of_our_brokers(cluster: BrokerCluster, tmp_path: Path) -> None:
    at = _steps(cluster, tmp_path, "oldest")
    small, big = at.topic("small", [[0, 1], [1, 2]]), at.topic("big", [[0, 1]], megabytes=3)
    with Tools("0.8.2.2") as tools:

        def say(*arguments: str) -> list[str]:
            return at.lines(tools.run(TOOL, "--zookeeper", cluster.tree.address, *arguments).output)

        plan = at.plan((small, 0, [1, 2]), (small, 1, [2, 0]))
        assert say("--execute", "--reassignment-json-file", plan)[-1].startswith(
            "Successfully started reassignment of partitions"
        )
        at.until_quiet()
        until(lambda: not _is_requested(cluster), "the node is not deleted")
        assert say("--verify", "--reassignment-json-file", plan)[1:] == [
            "Reassignment of partition [small,0] completed successfully",
            "Reassignment of partition [small,1] completed successfully",
        ]
        at.crawl(big)
        slow = at.plan((big, 0, [2, 1]))
        say("--execute", "--reassignment-json-file", slow)
        assert say("--verify", "--reassignment-json-file", slow)[1:] == [
            "Reassignment of partition [big,0] is still in progress"
        ]
        at.until_quiet(but={TopicPartition(big, 0)})
        assert at("--list") == (
            0,
            ["Current partition reassignments:", "big-0: replicas: 2,1,0. adding: 2. removing: 0."],
        )
        _cancel(cluster)
        assert say("--verify", "--reassignment-json-file", slow)[-1] == "Reassignment of partition [big,0] failed"
