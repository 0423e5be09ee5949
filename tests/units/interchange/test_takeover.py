"""The trees that are taken over, the parts of them, and the sentence for each tree that is refused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.interchange.handover import plan_handover
from jesenska.interchange.nodes import FoundTree, Node, below
from jesenska.interchange.takeover import Source, Takeover, Wishes, plan_takeover
from jesenska.interchange.zookeeper_copy import changes
from jesenska.metadata.nodes import PartitionStateNode, TopicNode, encode_cluster_id, encode_config

_ID = uuid.UUID(int=77)
_OTHER_ID = uuid.UUID(int=78)


def _tree(topics: Mapping[str, list[tuple[int, ...]]], **more: Any) -> dict[str, Node]:
    """Returns a tree with these topics: for each partition its replicas, the first of which leads; all are in sync."""
    nodes = {
        "/brokers": Node(None),
        "/brokers/ids": Node(None),
        "/brokers/topics": Node(None),
        "/cluster/id": Node(encode_cluster_id("one")),
        "/controller_epoch": Node(b"4"),
        "/config/changes": Node(None),
        "/config/changes/config_change_1": Node(b"{}"),
        "/isr_change_notification/isr_change_1": Node(b"{}"),
        "/consumers/g/offsets/t/0": Node(b"5", 3),
    }
    for name, partitions in topics.items():
        nodes[f"/brokers/topics/{name}"] = Node(TopicNode(dict(enumerate(partitions)), _ID).encode())
        nodes[f"/config/topics/{name}"] = Node(encode_config({"retention.ms": "1"}))
        for number, replicas in enumerate(partitions):
            nodes[f"/brokers/topics/{name}/partitions/{number}/state"] = Node(
                PartitionStateNode(replicas[0], 7, replicas, 3).encode(), 2
            )
    return nodes | {path.replace("__", "/"): node for path, node in more.items()}


def _plan(
    nodes: Mapping[str, Node],
    partitions: Mapping[str, uuid.UUID | None],
    *wishes: str,
    up: frozenset[int] = frozenset(),
) -> Takeover:
    held = {
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): topic_id
        for name, topic_id in partitions.items()
    }
    return plan_takeover(
        FoundTree(nodes, 9, up), Source("The tree", 1, "one", held), Wishes(**dict.fromkeys(wishes, True))
    )


def test_everything_is_kept_but_what_is_of_the_moment() -> None:
    nodes = _tree({"t": [(1,), (1,)]})
    moment = dict.fromkeys(
        ("/controller", "/brokers/ids/2", "/admin/reassign_partitions", "/admin/preferred_replica_election"),
        Node(b"{}"),
    )
    plan = _plan(nodes | moment, {"t-0": _ID, "t-1": None})
    assert plan.nodes == {path: node for path, node in nodes.items() if "_change_" not in path}
    assert (plan.topics, plan.partitions, plan.cluster_id, plan.last_zxid, plan.notes) == (1, 2, "one", 9, [])


@pytest.mark.parametrize("cluster_id", [Node(None), Node(b""), None])
def test_a_tree_that_names_no_cluster_is_of_the_one_that_the_directory_names(cluster_id: Node | None) -> None:
    nodes = _tree({"t": [(1,)]})
    del nodes["/cluster/id"]
    if cluster_id is not None:
        nodes["/cluster/id"] = cluster_id
    assert _plan(nodes, {"t-0": _ID}).cluster_id == "one"


def test_kafkas_nodes_are_known_among_those_of_other_programs() -> None:
    kafkas = [
        *(
            "/admin/delete_topics",
            "/brokers/seqid",
            "/cluster/id",
            "/config/users",
            "/consumers/g",
            "/controller",
            "/controller_epoch",
            "/delegation_token",
        ),
        *(
            "/feature",
            "/isr_change_notification/isr_change_1",
            "/kafka-acl/Topic",
            "/kafka-acl-changes",
            "/kafka-acl-extended/prefixed",
        ),
        *("/kafka-acl-extended-changes", "/latest_producer_id_block", "/log_dir_event_notification", "/migration"),
    ]
    others = ["/zookeeper/quota", "/hbase", "/brokers2", "/kafka-acl2/Topic"]
    nodes = {f"{chroot}{path}": Node(None) for chroot in ("", "/a") for path in (*kafkas, *others)}
    assert set(below(nodes, "")) == set(kafkas)
    assert set(below(nodes, "/a")) == set(kafkas)


@pytest.mark.parametrize(
    ("nodes", "held", "said"),
    [
        (
            {"/hbase": Node(b"")},
            {},
            "The tree has no node /brokers/topics, so it is not a Kafka cluster's: give the path",
        ),
        (
            _tree({}) | {"/cluster/id": Node(encode_cluster_id("two"))},
            {},
            "belongs to cluster one, and The tree to cluster two: name the ZooKeeper",
        ),
        (_tree({}) | {"/cluster/id": Node(b"{")}, {}, "The node /cluster/id of The tree cannot be read"),
        (_tree({}) | {"/brokers/topics/t": Node(b"[]")}, {}, "The node /brokers/topics/t of The tree cannot be read"),
        (
            _tree({}) | {"/migration": Node(b'{"version":0,"kraft_controller_id":3000}')},
            {},
            "is being migrated to KRaft (controller 3000): finish",
        ),
        (
            _tree({"t": [(1, 2)]}),
            {"t-0": None},
            "has replicas on broker 2, too, and this directory is broker 1's alone: start brokers of jesenska",
        ),
        (
            _tree({"t": [(1,), (1,)]}),
            {"t-0": None},
            "hold nothing of t-1, which The tree has on broker 1: name every directory",
        ),
        (
            _tree({"t": [(1,)]}),
            {"t-0": _OTHER_ID},
            "The directory t-0 has the topic id AAAAAAAAAAAAAAAAAAAATg, but The tree has AAAAAAAAAAAAAAAAAAAATQ",
        ),
        (
            _tree({}) | {"/brokers/topics/t": Node(TopicNode({0: (1,)}, None, {0: (2,)}).encode())},
            {"t-0": None},
            "Replicas of t are being moved in The tree: let kafka-reassign-partitions finish",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_one_sentence(
    nodes: Mapping[str, Node], held: Mapping[str, uuid.UUID | None], said: str
) -> None:
    with pytest.raises(JesenskaError) as caught:
        _plan(nodes, held)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_broker_that_is_up_is_refused() -> None:
    with pytest.raises(JesenskaError, match=r"Broker 1 is registered in The tree: stop it"):
        _plan(_tree({"t": [(1,)]}), {"t-0": None}, up=frozenset((1, 2)))
    assert _plan(_tree({"t": [(1,)]}), {"t-0": None}, up=frozenset((2,))).topics == 1


def test_one_broker_of_several_is_alone_with_its_replicas() -> None:
    nodes = _tree({"both": [(2, 1), (1, 2)], "some": [(1,), (2,)], "theirs": [(2,), (3,)]})
    nodes["/brokers/topics/both/partitions/0/state"] = Node(PartitionStateNode(2, 7, (2,), 3).encode(), 2)
    plan = _plan(nodes, {"both-0": None, "both-1": None, "some-0": None}, "only_this_broker")
    found = {
        path: TopicNode.decode(plan.nodes[f"/brokers/topics/{path}"].data or b"").replicas for path in ("both", "some")
    }
    assert found == {"both": {0: (1,), 1: (1,)}, "some": {0: (1,), 1: (1,)}}
    assert not [path for path in plan.nodes if "theirs" in path]
    for at in ("both/partitions/0", "both/partitions/1", "some/partitions/0"):
        state = PartitionStateNode.decode(plan.nodes[f"/brokers/topics/{at}/state"].data or b"")
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 8)
    assert plan.notes == [
        "Left out, since this broker has no partition of them: theirs.",
        "Empty here, since only other brokers have them: some-1.",
        "Not in sync here, so the newest records may be missing: both-0.",
    ]


def test_partitions_that_one_side_does_not_know() -> None:
    nodes = _tree({"t": [(1,), (1,)]})
    assert _plan(nodes, {"t-0": None}, "allow_missing").notes == ["Empty, since the directories do not hold them: t-1."]
    assert _plan(nodes, {"t-0": None, "t-1": None, "u-0": None}).notes == [
        "Not imported, since the metadata do not have them: u-0."
    ]
    doomed = nodes | {"/admin/delete_topics": Node(None), "/admin/delete_topics/t": Node(None)}
    assert _plan(doomed, {}).notes == []
    del nodes["/brokers/topics/t/partitions/1/state"]  # no controller has dealt with it yet
    assert _plan(nodes, {"t-0": None}).notes == []


# --- the way back ----------------------------------------------------------------------------------------------------


def test_what_is_handed_over_makes_the_target_the_same() -> None:
    own = _tree({"t": [(1,)], "new": [(1,)]})
    there = {
        "/brokers": Node(None),
        "/brokers/topics": Node(None),
        "/brokers/topics/old": Node(b"x"),
        "/cluster/id": own["/cluster/id"],
    }
    wanted = plan_handover(own, FoundTree(there), "The target", replace=True)
    assert "/config/changes/config_change_1" not in wanted
    assert {"/latest_producer_id_block", "/config/ips", "/consumers"} <= wanted.keys()
    operations = changes(there, wanted)
    assert operations[0].path == "/brokers/topics/old"
    assert [operation.path for operation in operations[1:]] == sorted(wanted.keys() - there.keys())
    assert changes(wanted, wanted) == []
    # The id of the cluster is written by itself, last.
    assert "/cluster/id" not in {operation.path for operation in changes({}, wanted)}


@pytest.mark.parametrize(
    ("there", "up", "said"),
    [
        (
            {"/cluster/id": Node(encode_cluster_id("two"))},
            (),
            "has cluster two, but these are the metadata of cluster one",
        ),
        (
            {"/cluster/id": Node(encode_cluster_id("one"))},
            (),
            "already has metadata of Kafka: overwrite them with --replace",
        ),
        ({"/brokers/topics/t": Node(b"")}, (), "already has metadata of Kafka"),
        ({}, (4,), r"Brokers are registered in The target \(4\): stop them"),
    ],
)
def test_a_target_that_is_in_use_is_refused(there: Mapping[str, Node], up: tuple[int, ...], said: str) -> None:
    with pytest.raises(JesenskaError, match=said):
        plan_handover(_tree({}), FoundTree(there, 0, frozenset(up)), "The target", replace=False)


def test_metadata_without_a_cluster_are_not_handed_over() -> None:
    with pytest.raises(JesenskaError, match="have no cluster id"):
        plan_handover({}, FoundTree({}), "The target", replace=False)
