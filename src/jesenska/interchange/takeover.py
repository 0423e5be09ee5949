"""Computes the metadata tree (ZooKeeper's nodes) of a cluster after one broker of jesenska has taken over the data of
one broker of Apache Kafka. The functions do no input or output.

    kept        topics, settings, quotas, users, ACLs, producer ids, features, offsets of Kafka 0.8, and all other
                nodes of Kafka. Nodes that jesenska does not use are also kept, so that an export contains them
    left out    the nodes of running brokers and of the controller (ephemeral), and notifications from one broker to
                other brokers, whose numbers start again
    changed     only if replicas of other brokers are dropped: assignment and state of those partitions

A tree that does not match the directories is refused, with one sentence that names the cause and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition, uuid_to_text
from jesenska.interchange.nodes import FoundTree, Node, children
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, PartitionStateNode, TopicNode, decode_cluster_id

MIGRATION = "/migration"
#: Nodes whose children are notifications to running brokers.
_NOTES = (
    paths.CONFIG_CHANGES,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
#: Nodes that describe operations in progress. The operations have ended, or brokers and tools request them again.
_UNDER_WAY = (paths.CONTROLLER, paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION)
_TOPIC_CONFIGS = paths.CONFIG + "/topics"
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Source:
    """The data that is taken over, in addition to the metadata tree. `where` is the name of the tree in messages."""

    where: str
    broker_id: int
    #: The cluster id in the directories. None if they contain no cluster id, since they are older than cluster ids.
    cluster_id: str | None
    #: The partitions in the directories, with the topic ids from their partition.metadata files.
    partitions: Mapping[TopicPartition, UUID | None]
    #: A remedy for the message about replicas on other brokers. The message also offers to drop those replicas.
    beside_others: str = "start brokers of jesenska on that ZooKeeper (zookeeper.connect)"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options by which the operator accepts a loss."""

    #: True: replicas on other brokers are dropped.
    only_this_broker: bool = False
    #: True: partitions of this broker that are not in the directories begin empty.
    allow_missing: bool = False


@dataclass(frozen=True, slots=True)
class Takeover:
    """The nodes of the new metadata tree, and notes for the operator."""

    nodes: Mapping[str, Node]
    last_zxid: int
    cluster_id: str | None
    topics: int
    partitions: int
    notes: list[str] = field(default_factory=list)


def plan_takeover(tree: FoundTree, source: Source, wishes: Wishes) -> Takeover:
    """Returns the metadata tree after the takeover. Raises JesenskaError if the old tree does not match the
    directories."""
    nodes, where = tree.nodes, source.where
    if paths.TOPICS not in nodes:
        raise JesenskaError(
            f"{where} has no node {paths.TOPICS}, so it is not a Kafka cluster's: give the path at the end of "
            "Kafka's zookeeper.connect."
        )
    cluster_id = _cluster_id(nodes, where)
    if source.cluster_id is not None and cluster_id is not None and source.cluster_id != cluster_id:
        raise JesenskaError(
            f"The directory belongs to cluster {source.cluster_id}, and {where} to cluster {cluster_id}: name the "
            f"ZooKeeper of that cluster."
        )
    _refuse_migration(nodes, where)
    if source.broker_id in tree.brokers_up:
        raise JesenskaError(
            f"Broker {source.broker_id} is registered in {where}: stop it. If it was killed, wait until its "
            "zookeeper.session.timeout.ms has passed."
        )
    topics = topics_in(nodes, where)
    kept = {path: node for path, node in nodes.items() if not is_left_out(path)}
    notes: list[str] = []
    _refuse_moves(topics, where)
    others = sorted(
        {broker for topic in topics.values() for replicas in topic.replicas.values() for broker in replicas}
        - {source.broker_id}
    )
    if others:
        if not wishes.only_this_broker:
            raise JesenskaError(
                f"{where} has replicas on {_brokers(others)}, too, and this directory is broker {source.broker_id}'s "
                f"alone: "
                f"{source.beside_others}, or drop the replicas of others with --only-this-broker."
            )
        topics = _drop_others(kept, topics, source.broker_id, notes)
    _refuse_strange_ids(topics, source)
    _check_presence(topics, kept, source, wishes, notes)
    return Takeover(
        kept,
        tree.last_zxid,
        cluster_id or source.cluster_id,
        len(topics),
        sum(len(topic.replicas) for topic in topics.values()),
        notes,
    )


def _cluster_id(nodes: Mapping[str, Node], where: str) -> str | None:
    node = nodes.get(paths.CLUSTER_ID)
    if node is None or not node.data:
        return None
    try:
        return decode_cluster_id(node.data)
    except NodeFormatError as error:
        raise _unreadable(where, paths.CLUSTER_ID, error) from error


def topics_in(nodes: Mapping[str, Node], where: str) -> dict[str, TopicNode]:
    """Returns the topics of a metadata tree. Raises JesenskaError with one sentence if a topic's node cannot be read.
    `where` is the name of the tree in this sentence."""
    found = {}
    for name in children(nodes, paths.TOPICS):
        path = paths.topic(name)
        try:
            found[name] = TopicNode.decode(nodes[path].data or b"")
        except NodeFormatError as error:
            raise _unreadable(where, path, error) from error
    return found


def _unreadable(where: str, path: str, error: NodeFormatError) -> JesenskaError:
    return JesenskaError(f"The node {path} of {where} cannot be read ({error}): correct it there, or restore a copy.")


def _refuse_migration(nodes: Mapping[str, Node], where: str) -> None:
    """Raises JesenskaError for a cluster that is being migrated to KRaft. Its metadata is already in KRaft, and the
    nodes in ZooKeeper may be outdated."""
    node = nodes.get(MIGRATION)
    if node is None or not node.data:
        return
    try:
        value = json.loads(node.data)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and isinstance(controller := value.get("kraft_controller_id"), int) and controller >= 0:
        raise JesenskaError(
            f"{where} is being migrated to KRaft (controller {controller}): finish that and import the KRaft "
            f"directory, or go back first."
        )


def _refuse_moves(topics: Mapping[str, TopicNode], where: str) -> None:
    moving = sorted(
        name for name, topic in topics.items() if any(topic.adding.values()) or any(topic.removing.values())
    )
    if moving:
        raise JesenskaError(
            f"Replicas of {_some(moving)} are being moved in {where}: let kafka-reassign-partitions finish, or "
            f"cancel it, then import."
        )


def is_left_out(path: str) -> bool:
    """Returns True for nodes that are not copied: nodes that describe only the current moment, and nodes that brokers
    make again by themselves."""
    is_under_way = (
        path in _UNDER_WAY
        or path.startswith(paths.BROKER_IDS + "/")
        or any(path.startswith(note + "/") for note in _NOTES)
    )
    # The nodes with the ids of brokers' starts are left out. The directories may be newer than a restored tree, or may
    # be other directories, and then the ids do not match.
    return is_under_way or path == paths.BROKER_STARTS or path.startswith(paths.BROKER_STARTS + "/")


def _drop_others(
    nodes: dict[str, Node], topics: Mapping[str, TopicNode], broker_id: int, notes: list[str]
) -> dict[str, TopicNode]:
    """Changes the nodes so that only this broker has replicas. Returns the topics of which this broker has a
    partition."""
    left: dict[str, TopicNode] = {}
    out_of_sync: list[str] = []
    empty: list[str] = []
    gone: list[str] = []
    for name, topic in topics.items():
        mine = {partition for partition, replicas in topic.replicas.items() if broker_id in replicas}
        if not mine:
            gone.append(name)
            continue
        empty += [f"{name}-{partition}" for partition in topic.replicas if partition not in mine]
        alone = TopicNode(dict.fromkeys(topic.replicas, (broker_id,)), topic.topic_id)
        at = paths.topic(name)
        nodes[at] = Node(alone.encode(), nodes[at].version + 1)
        for partition in topic.replicas:
            path = paths.partition_state(name, partition)
            if (node := nodes.get(path)) is None:
                continue
            try:
                state = PartitionStateNode.decode(node.data or b"")
            except NodeFormatError as error:
                raise _unreadable("the tree", path, error) from error
            if partition in mine and broker_id not in state.isr:
                out_of_sync.append(f"{name}-{partition}")
            alone_state = PartitionStateNode(broker_id, state.leader_epoch + 1, (broker_id,), state.controller_epoch)
            nodes[path] = Node(alone_state.encode(), node.version + 1)
        left[name] = alone
    for path in [path for path in nodes if (of := _topic_of(path)) is not None and of in topics and of not in left]:
        del nodes[path]
    if gone:
        notes.append(f"Left out, since this broker has no partition of them: {_some(gone)}.")
    if empty:
        notes.append(f"Empty here, since only other brokers have them: {_some(empty)}.")
    if out_of_sync:
        notes.append(f"Not in sync here, so the newest records may be missing: {_some(out_of_sync)}.")
    return left


def _topic_of(path: str) -> str | None:
    """Returns the topic to which a node below /brokers/topics or /config/topics belongs. Returns None for any other
    node."""
    steps = path.split("/", 4)
    return steps[3] if len(steps) > 3 and f"/{steps[1]}/{steps[2]}" in (paths.TOPICS, _TOPIC_CONFIGS) else None


def _refuse_strange_ids(topics: Mapping[str, TopicNode], source: Source) -> None:
    for at, topic_id in sorted(source.partitions.items()):
        topic = topics.get(at.topic)
        if topic is not None and None not in (topic_id, topic.topic_id) and topic_id != topic.topic_id:
            assert topic_id is not None and topic.topic_id is not None
            raise JesenskaError(
                f"The directory {at} has the topic id {uuid_to_text(topic_id)}, but {source.where} has "
                f"{uuid_to_text(topic.topic_id)} for that topic: name the ZooKeeper with which this data was "
                "written, or move the directory away."
            )


def _check_presence(
    topics: Mapping[str, TopicNode], nodes: Mapping[str, Node], source: Source, wishes: Wishes, notes: list[str]
) -> None:
    """Compares the partitions in the metadata tree with the partitions in the directories. Raises JesenskaError for
    partitions that only the tree has, unless the operator accepts that they begin empty. Adds notes about the
    differences."""
    doomed = set(children(nodes, paths.DELETE_TOPICS))
    known = {TopicPartition(name, partition) for name, topic in topics.items() for partition in topic.replicas}
    missing = sorted(
        at
        for at in known - source.partitions.keys()
        if at.topic not in doomed and paths.partition_state(*at) in nodes and _has_been_led(nodes, at)
    )
    if missing and not (wishes.allow_missing or wishes.only_this_broker):
        raise JesenskaError(
            f"The directories hold nothing of {_some(map(str, missing))}, which {source.where} has on broker "
            f"{source.broker_id}: "
            "name every directory of Kafka's log.dirs, or have them begin empty with --allow-missing."
        )
    if missing and wishes.allow_missing:
        notes.append(f"Empty, since the directories do not hold them: {_some(map(str, missing))}.")
    strange = sorted(source.partitions.keys() - known)
    if strange:
        notes.append(f"Not imported, since the metadata do not have them: {_some(map(str, strange))}.")


def _has_been_led(nodes: Mapping[str, Node], at: TopicPartition) -> bool:
    try:
        return PartitionStateNode.decode(nodes[paths.partition_state(*at)].data or b"").leader_epoch >= 0
    except NodeFormatError:
        return True


def _brokers(ids: list[int]) -> str:
    return (
        f"broker {ids[0]}"
        if len(ids) == 1
        else f"brokers {', '.join(map(str, ids[:_NAMED_MAX]))}{' and more' if len(ids) > _NAMED_MAX else ''}"
    )


def _some(names: Iterable[str]) -> str:
    """Returns a text with the first few names and the number of the names that are left out."""
    every = list(names)
    shown = ", ".join(every[:_NAMED_MAX])
    return shown if len(every) <= _NAMED_MAX else f"{shown} and {len(every) - _NAMED_MAX} more"
