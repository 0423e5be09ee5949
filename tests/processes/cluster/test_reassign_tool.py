"""kafka-reassign-partitions on a cluster: JSON, throttles, brokers that are down, and the request in the tree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment import (
    kafka_reassign_partitions,
    reassignment_in_tree,
    reassignment_on_brokers,
)
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.client.cluster import Cluster
from jesenska.metadata.store import Store
from tests.cluster.cluster import BrokerCluster, ours_only, until

TOOL = "kafka-reassign-partitions"
_UNLIMITED = str(2**63 - 1)


class Tool:
    """The tool on a cluster, and what it prints."""

    def __init__(self, cluster: BrokerCluster, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.files, self.capsys = cluster, files, capsys

    def plan(self, *items: tuple[str, int, Sequence[int]]) -> str:
        path = self.files / f"{len(list(self.files.iterdir()))}.json"
        partitions = [{"topic": topic, "partition": number, "replicas": [*ids]} for topic, number, ids in items]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(path)

    def __call__(self, action: str, plan: str | None, *more: object, in_tree: bool = False) -> str:
        """What the tool prints on stdout when it succeeds."""
        code, output, errors = self.run(action, plan, *more, in_tree=in_tree)
        assert code == 0, errors
        return output

    def refusal(self, action: str, plan: str | None, *more: object, in_tree: bool = False) -> str:
        """The sentence of a tool that does not succeed."""
        code, output, errors = self.run(action, plan, *more, in_tree=in_tree)
        assert (code, output) == (1, "")
        assert errors.startswith(f"{TOOL}: ")
        return errors.removeprefix(f"{TOOL}: ")

    def run(self, action: str, plan: str | None, *more: object, in_tree: bool = False) -> tuple[int, str, str]:
        where = (
            ("--zookeeper", self.cluster.tree.address)
            if in_tree
            else ("--bootstrap-server", ",".join(self.cluster.brokers[at].advertised for at in self.cluster.answering))
        )
        file = [] if plan is None else ["--reassignment-json-file", plan]
        self.capsys.readouterr()
        try:
            code = kafka_reassign_partitions.main([*where, f"--{action}", *file, *map(str, more)])
        except SystemExit as end:
            assert isinstance(end.code, int)
            code = end.code
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def document(self, action: str, plan: str | None, *more: object, in_tree: bool = False) -> Any:
        return json.loads(self(action, plan, *more, "--output", "json", in_tree=in_tree))

    def ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        async def work(client: Cluster) -> dict[TopicPartition, OngoingReassignment]:
            return await Admin(client).list_reassignments()

        return self.cluster.ask(work)

    def until_done(self) -> None:
        until(lambda: not self.ongoing(), "the reassignment does not end")

    def throttles(self, topic: str) -> dict[str, str]:
        """The throttles of the brokers that answer, and of a topic."""

        async def work(client: Cluster) -> dict[str, str]:
            admin = Admin(client)
            found = {}
            for kind, name in ((TOPIC, topic), *((BROKER, str(at)) for at in self.cluster.answering)):
                for item in await admin.describe_configs(kind, name):
                    if "replication.throttled" in item.name and item.value not in (None, "", _UNLIMITED):
                        found[f"{name} {item.name.split('.')[0]}"] = item.value or ""
            return found

        return self.cluster.ask(work)

    def until_throttles(self, topic: str, wanted: Mapping[str, str]) -> None:
        """Returns when the brokers have these throttles, of which they hear one after the other."""
        until(lambda: self.throttles(topic) == wanted, f"the throttles are not {wanted}")


@pytest.fixture
def tool(cluster: BrokerCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(cluster, tmp_path, capsys)


def _slow_topic(tool: Tool, name: str) -> str:
    """A topic whose partition needs long to be moved with a throttle of 1000 bytes per second."""
    topic = tool.cluster.create(name, placed=[[1, 2]])
    tool.cluster.write(topic, [bytes(1000)] * 3000)
    return topic


def test_the_life_of_a_move_as_json(tool: Tool) -> None:
    topic = _slow_topic(tool, "json_life")
    plan = tool.plan((topic, 0, [3, 2]))
    assert tool.document("list", None) == {"reassignments": []}
    begun = tool.document("execute", plan, "--throttle", 1000)
    assert begun["started"] == [f"{topic}-0"]
    assert [(item["topic"], item["replicas"], len(item["log_dirs"])) for item in begun["before"]] == [
        (topic, [1, 2], 2)
    ]
    throttles = {
        f"{topic} leader": "0:1,0:2",
        f"{topic} follower": "0:3",
        **{f"{at} {role}": "1000" for at in (1, 2, 3) for role in ("leader", "follower")},
    }
    tool.until_throttles(topic, throttles)
    assert tool.document("list", None) == {
        "reassignments": [{"partition": f"{topic}-0", "replicas": [3, 2, 1], "adding": [3], "removing": [1]}]
    }
    assert tool.document("verify", plan) == {
        "partitions": [{"partition": f"{topic}-0", "state": "in progress", "replicas": [3, 2, 1]}],
        "movesBetweenLogDirs": [],
        "throttlesRemoved": False,
    }
    assert tool.throttles(topic) == throttles
    assert tool.document("cancel", plan) == {
        "cancelled": [f"{topic}-0"],
        "movesBetweenLogDirs": [],
        "throttlesRemoved": True,
    }
    tool.until_throttles(topic, {})
    tool.document("execute", plan)
    tool.until_done()
    assert tool.document("verify", plan)["partitions"] == [
        {"partition": f"{topic}-0", "state": "completed", "replicas": [3, 2]}
    ]


def test_a_proposal_is_a_file_that_can_be_executed(tool: Tool) -> None:
    topic = tool.cluster.create("proposed", placed=[[1, 2], [2, 1], [1, 2]])
    topics = tool.files / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    found = tool.document("generate", None, "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    assert [item["replicas"] for item in found["current"]] == [[1, 2], [2, 1], [1, 2]]
    assert all(set(item["replicas"]) == {2, 3} for item in found["proposed"])
    plan = tool.files / "proposed.json"
    plan.write_text(json.dumps({"version": 1, "partitions": found["proposed"]}))
    tool("execute", str(plan))
    tool.until_done()
    assert tool("verify", str(plan)).count("is completed.") == 3


def test_kafka_topics_shows_a_move_and_does_not_count_adding_replicas(
    tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = _slow_topic(tool, "shown")
    plan = tool.plan((topic, 0, [1, 2, 3]))
    tool("execute", plan, "--throttle", 1000)
    shown: dict[bool, Any] = {}
    for filters in (False, True):
        capsys.readouterr()
        arguments = ["--bootstrap-server", tool.cluster.bootstrap, "--describe", "--topic", topic, "--output", "json"]
        assert kafka_topics.main([*arguments, *(["--under-replicated-partitions"] if filters else [])]) == 0
        shown[filters] = json.loads(capsys.readouterr().out)
    assert shown[True] == []
    assert shown[False][0]["replicationFactor"] == 2
    (partition,) = shown[False][0]["partitions"]
    assert (partition["replicas"], partition["addingReplicas"], partition["removingReplicas"]) == ([1, 2, 3], [3], [])
    tool("cancel", plan)


def test_nothing_is_sent_if_any_part_of_a_file_is_wrong(tool: Tool) -> None:
    topic = tool.cluster.create("all_or_nothing", placed=[[1, 2], [1, 2]])
    good = (topic, 0, [3, 2])
    for bad, sentence in (
        ((topic, 7, [1]), f"Unable to find partition: {topic}-7"),
        ((topic, 1, [1, 9]), "Unknown broker id 9: the brokers that are up are 1, 2, 3."),
        (("never-was", 0, [1]), "Unable to find partition: never-was-0"),
    ):
        assert tool.refusal("execute", tool.plan(good, bad), "--throttle", 1).startswith(sentence)
    assert tool.refusal("execute", tool.plan(good, (topic, 1, [1])), "--disallow-replication-factor-change").startswith(
        f"{topic}-1: The replication factor is changed from 2 to 1: name 2 brokers"
    )
    assert tool.ongoing() == {}
    assert tool.throttles(topic) == {}


def test_a_refusal_of_the_brokers_names_the_partition_and_the_remedy(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = tool.cluster.create("not_moved", placed=[[1, 2], [1, 2]])
    plan = tool.plan((topic, 0, [1, 2]), (topic, 1, [1, 9]))

    async def unchecked(self: Any, wanted: Any, moves: Any, ongoing: Any) -> dict[TopicPartition, tuple[int, ...]]:
        return dict.fromkeys(wanted, (1, 2))

    monkeypatch.setattr(reassignment_on_brokers.ReassignmentOnBrokers, "_checked", unchecked)
    code, _, errors = tool.run("execute", plan)
    assert code == 1
    assert f"1 of 2 reassignments were refused ({topic}-1: The manual partition assignment includes broker 9" in errors


@ours_only
def test_a_broker_that_is_down_keeps_its_throttle_with_a_line_about_it(
    frail: BrokerCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = Tool(frail, tmp_path, capsys)
    topic = frail.create("down", placed=[[1, 2, 3]])
    plan = tool.plan((topic, 0, [1, 2, 3]))
    tool("execute", plan, "--throttle", 5000)
    frail.brokers[3].kill()
    frail.until(lambda view: view.of(topic).isr in ((1, 2), (2, 1)))
    code, output, errors = tool.run("verify", plan)
    assert code == 0
    assert "Clearing broker-level throttles on brokers 1,2,3" in output
    assert errors == "Broker 3 is not up, and keeps its throttles: run this again when it is.\n"
    frail.brokers[3].start()
    frail.until_whole()
    tool.until_throttles(topic, {f"3 {role}": "5000" for role in ("leader", "follower")})
    tool("verify", plan)
    tool.until_throttles(topic, {})


def test_a_request_in_the_tree_is_carried_out_with_its_throttle(tool: Tool) -> None:
    topic = _slow_topic(tool, "in_tree")
    plan = tool.plan((topic, 0, [3, 2]))
    assert tool.document("execute", plan, "--throttle", 1000, in_tree=True)["started"] == [f"{topic}-0"]
    until(lambda: len(tool.throttles(topic)) == 8, "the brokers do not hear of the throttle")
    until(lambda: bool(tool.ongoing()), "the controller does not begin")
    assert tool.document("verify", plan, in_tree=True) == {
        "partitions": [{"partition": f"{topic}-0", "state": "is still in progress"}],
        "throttlesRemoved": False,
    }
    assert tool.refusal("execute", plan, in_tree=True).startswith(
        f"There is an existing assignment running for {topic}-0: wait"
    )
    tool("execute", plan, "--throttle", 50_000_000, in_tree=True)
    tool.until_done()
    until(
        lambda: "completed successfully" in tool("verify", plan, in_tree=True),
        "the request is not taken out of the tree",
    )
    tool.until_throttles(topic, {})


def test_nothing_is_written_into_the_tree_if_any_part_of_a_file_is_wrong(tool: Tool) -> None:
    topic = tool.cluster.create("tree_or_nothing", placed=[[1, 2], [1, 2]])
    good = (topic, 0, [3, 2])
    for bad, sentence in (
        ((topic, 7, [1]), f"The proposed assignment contains non-existent partitions: {topic}-7"),
        (("a/b", 0, [1]), "The proposed assignment contains non-existent partitions: a/b-0"),
        ((topic, 1, [9, 1]), "The proposed assignment contains non-existent brokerIDs: 9"),
    ):
        plan = tool.plan(good, bad)
        assert tool.refusal("execute", plan, in_tree=True).startswith(sentence)
    directories = tool.files / "directories.json"
    item = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["/a"]}
    directories.write_text(json.dumps({"partitions": [item]}))
    assert "give --bootstrap-server in place of --zookeeper" in tool.refusal("execute", str(directories), in_tree=True)
    for action in ("list", "cancel"):
        assert "cannot be used with --zookeeper: name a broker with" in tool.refusal(action, None, in_tree=True)
    assert tool.ongoing() == {}
    assert tool.throttles(topic) == {}


def test_a_request_that_another_tool_has_just_written_is_not_overwritten(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = _slow_topic(tool, "raced")
    plan = tool.plan((topic, 0, [3, 2]))
    tool("execute", plan, "--throttle", 1000, in_tree=True)
    until(lambda: bool(tool.ongoing()), "the controller does not begin")

    async def none(store: Store) -> None:
        """What the tool has read a moment before."""

    monkeypatch.setattr(reassignment_in_tree, "_requested", none)
    code, _, errors = tool.run("execute", tool.plan((topic, 0, [1])), "--throttle", 7, in_tree=True)
    assert code == 1
    assert "another client has just begun it; wait until it is done." in errors
    until(
        lambda: set(tool.throttles(topic).values()) == {"0:1,0:2", "0:3", "1000"},
        "the brokers do not hear of the throttle",
    )
    tool("cancel", plan)
