"""Rebuilds the metadata tree of a cluster from the contents of its brokers' directories, and from a backup of the tree
if there is one. The functions only compute: they do no input or output.

    cluster id        the cluster id that all inventories contain
    topics            all topics in the directories. If a topic name has several topic ids, the id in most directories
                      is used; the others belong to topics that were deleted while their broker was stopped
    assignment        the assignment in the backup, if its brokers have the partition; else the brokers that have it.
                      A broker without an inventory stays in the assignment
    leader and ISR    the replicas whose log goes furthest: the newest leader epoch, then the highest offset.
                      Every record that was acknowledged with acks=all is on each member of the ISR, and no log of a
                      member goes further than the furthest log, so the furthest log has all these records.
                      A partition that begins empty has no state node, like a partition that was just created
    leader epoch      far above every epoch in any log or in the backup: elections after which nothing was
                      written are not in any log, and clients ignore an epoch that goes back. A second rebuilt tree
                      has higher epochs than the first, also for partitions without records
    settings          the settings in the backup. Without a backup: the usual settings of internal topics, `compact`
                      for topics that were compacted, and `retention.ms=-1` for all others, so that nothing is
                      deleted before an operator sets it
    producer ids      far above every producer id in a log, so that no two producers get the same id
    other nodes       users, quotas, ACLs, groups of Kafka 0.8 and features are taken from the backup, if there is one

`Rebuilt.notes` contains a sentence for each fact that is missing in the directories."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.internal_topics import INTERNAL_TOPICS, automatic_topic
from jesenska.interchange.inventory import Inventory, Replica
from jesenska.interchange.nodes import Node
from jesenska.interchange.takeover import is_left_out, topics_in
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    NodeFormatError,
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
    decode_cluster_id,
    decode_controller_epoch,
    encode_cluster_id,
    encode_config,
    encode_controller_epoch,
    encode_feature,
)

#: Some elections of a partition, and some allocated producer ids, may not have left a trace in any log. So the new
#: leader epochs and producer ids are higher than the known ones by these amounts.
_EPOCHS_UNHEARD_OF = 1000
_PRODUCER_IDS_UNHEARD_OF = 1_000_000
_PRODUCER_IDS_AT_ONCE = 1000
_FIRST_OWN_BROKER_ID = 1001
_NAMED_MAX = 5

_T = TypeVar("_T")
#: The replicas of a partition by broker id.
_Holders = Mapping[int, Replica]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The nodes of the rebuilt tree, the numbers of topics and partitions in it, and notes for the operator."""

    nodes: dict[str, Node]
    topics: int
    partitions: int
    notes: list[str] = field(default_factory=list)


def rebuild(
    inventories: Sequence[Inventory],
    new_uuid: Callable[[], UUID],
    *,
    backup: Mapping[str, Node] | None = None,
    allow_missing: bool = False,
) -> Rebuilt:
    """Returns the rebuilt metadata tree. Raises JesenskaError with one sentence if the inventories do not match each
    other. If `allow_missing` is True, partitions that are not in any directory begin empty. Otherwise such partitions
    are an error."""
    cluster_id = _cluster_of(inventories, backup)
    notes: list[str] = []
    held = _held(inventories, notes)
    old = {} if backup is None else _topics_of(backup)
    nodes = _nodes_of_cluster(cluster_id, inventories, backup)
    topics = _Topics(inventories, backup, nodes)
    for name in sorted(held):
        topics.add(name, *held[name], old.get(name), new_uuid)
    if topics.missing and not allow_missing:
        raise JesenskaError(
            f"No directory holds {_some(topics.missing)}: give the inventories of all brokers, or have them begin "
            f"empty with --allow-missing."
        )
    gone = sorted(old.keys() - held.keys())
    for name in gone:
        nodes.pop(paths.topic_config(name), None)
    notes += topics.notes(gone)
    return Rebuilt({path: nodes[path] for path in sorted(nodes)}, len(held), topics.partitions, notes)


def _nodes_of_cluster(
    cluster_id: str, inventories: Sequence[Inventory], backup: Mapping[str, Node] | None
) -> dict[str, Node]:
    """Returns the nodes that do not belong to a topic. They are taken from the backup, except the cluster id, the
    controller epoch and the producer ids. The controller epoch and the producer ids are set higher than in any log."""
    brokers = {item.broker_id for item in inventories}
    nodes = {} if backup is None else {path: node for path, node in backup.items() if not _is_rebuilt(path)}
    for path in paths.PERSISTENT_PATHS:
        nodes.setdefault(path, Node(None))
    nodes[paths.CLUSTER_ID] = Node(encode_cluster_id(cluster_id))
    nodes.setdefault(paths.FEATURE, Node(encode_feature()))
    nodes[paths.CONTROLLER_EPOCH] = Node(encode_controller_epoch(_controller_epoch(backup) + _EPOCHS_UNHEARD_OF))
    newest_id = max(item.producer_id for item in inventories) + _PRODUCER_IDS_UNHEARD_OF
    first_id = max(newest_id, _next_producer_id(backup) + _PRODUCER_IDS_UNHEARD_OF)
    nodes[paths.PRODUCER_ID_BLOCK] = Node(
        ProducerIdBlock(min(brokers), first_id, first_id + _PRODUCER_IDS_AT_ONCE - 1).encode()
    )
    sequence = max(max(brokers) - _FIRST_OWN_BROKER_ID + 1, nodes[paths.BROKER_SEQUENCE].version, 0)
    nodes[paths.BROKER_SEQUENCE] = Node(nodes[paths.BROKER_SEQUENCE].data, sequence)
    return nodes


class _Topics:
    """Adds topics to the nodes of the rebuilt tree, and collects facts for the notes."""

    def __init__(
        self, inventories: Sequence[Inventory], backup: Mapping[str, Node] | None, nodes: dict[str, Node]
    ) -> None:
        self._nodes = nodes
        self._brokers = {item.broker_id for item in inventories}
        self._compacted = {name for item in inventories for name in item.compacted}
        self._controller_epoch = _controller_epoch(backup) + _EPOCHS_UNHEARD_OF
        self._leader_epoch = _newest_epoch(inventories, backup) + _EPOCHS_UNHEARD_OF
        #: The number of partitions that were added.
        self.partitions = 0
        #: Partitions that are not in any directory.
        self.missing: list[TopicPartition] = []
        #: Topics whose settings are in no backup.
        self._guessed: list[str] = []

    def add(
        self,
        name: str,
        topic_id: UUID | None,
        partitions: Mapping[int, _Holders],
        known: TopicNode | None,
        new_uuid: Callable[[], UUID],
    ) -> None:
        """Adds a topic with the partitions that were found in the directories. `known` is the topic of the same name
        in the backup, or None."""
        nodes = self._nodes
        if known is not None and topic_id is not None and known.topic_id not in (None, topic_id):
            known = None  # deleted and created again since
        assignment = _assignment(partitions, known, self._brokers)
        self.missing += [TopicPartition(name, number) for number in assignment if number not in partitions]
        self.partitions += len(assignment)
        topic_id = topic_id or (known.topic_id if known is not None else None) or new_uuid()
        nodes[paths.topic(name)] = Node(TopicNode(assignment, topic_id).encode())
        nodes[paths.partitions(name)] = Node(None)
        for number, replicas in assignment.items():
            nodes[paths.partition(name, number)] = Node(None)
            if number in partitions:
                state = _state(replicas, partitions[number], self._leader_epoch, self._controller_epoch)
                nodes[paths.partition_state(name, number)] = Node(state.encode())
        if known is None or paths.topic_config(name) not in nodes:
            settings = _settings(name, name in self._compacted, len(self._brokers))
            nodes[paths.topic_config(name)] = Node(encode_config(settings))
            if name not in INTERNAL_TOPICS:
                self._guessed.append(name)

    def notes(self, gone: Sequence[str]) -> list[str]:
        """Returns notes for the operator about the topics. `gone` are topics that are only in the backup."""
        notes = []
        if self.missing:
            begin = "begins" if len(self.missing) == 1 else "begin"
            notes.append(f"No directory holds {_some(self.missing)}, which {begin} empty.")
        if gone:
            notes.append(
                f"Topics of the backup that are in no directory are left out, because they were deleted after the "
                f"backup: {_some(gone)}."
            )
        if self._guessed:
            notes.append(
                f"The settings of {_some(self._guessed)} are not known: their records are kept permanently "
                "(retention.ms=-1, or compact) until kafka-configs sets something else."
            )
        return notes


def raised(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Returns the nodes of a restored tree, with all epochs and producer ids raised by a large amount. Brokers may
    have used higher epochs and producer ids after the backup was made."""
    changed = dict(nodes)
    for path, node, state in _states_of(nodes):
        changed[path] = Node(
            replace(state, leader_epoch=state.leader_epoch + _EPOCHS_UNHEARD_OF).encode(), node.version
        )
    changed[paths.CONTROLLER_EPOCH] = Node(encode_controller_epoch(_controller_epoch(nodes) + _EPOCHS_UNHEARD_OF))
    first_id = _next_producer_id(nodes) + _PRODUCER_IDS_UNHEARD_OF
    changed[paths.PRODUCER_ID_BLOCK] = Node(ProducerIdBlock(0, first_id, first_id + _PRODUCER_IDS_AT_ONCE - 1).encode())
    return changed


def _cluster_of(inventories: Sequence[Inventory], backup: Mapping[str, Node] | None) -> str:
    clusters = sorted({item.cluster_id for item in inventories})
    if len(clusters) > 1:
        raise JesenskaError(f"The directories belong to different clusters ({', '.join(clusters)}): name those of one.")
    twice = [broker_id for broker_id, count in Counter(item.broker_id for item in inventories).items() if count > 1]
    if twice:
        raise JesenskaError(
            f"Broker {twice[0]} has two inventories: take one inventory of all its directories together."
        )
    if backup is not None and paths.CLUSTER_ID in backup:
        said = _decoded(lambda: decode_cluster_id(backup[paths.CLUSTER_ID].data or b""), paths.CLUSTER_ID)
        if said != clusters[0]:
            raise JesenskaError(
                f"The backup is of cluster {said}, and the directories are of cluster {clusters[0]}: give the backup "
                f"of this one."
            )
    return clusters[0]


def _is_rebuilt(path: str) -> bool:
    """Returns True for nodes that are not taken from the backup: topics, partition states, and nodes that describe
    only the current moment."""
    return is_left_out(path) or path.startswith((paths.TOPICS + "/", paths.DELETE_TOPICS + "/"))


def _topics_of(backup: Mapping[str, Node]) -> dict[str, TopicNode]:
    """Returns the topics of the backup, without topics that were being deleted."""
    return {
        name: topic for name, topic in topics_in(backup, "the backup").items() if paths.delete_topic(name) not in backup
    }


def _held(
    inventories: Iterable[Inventory], notes: list[str]
) -> dict[str, tuple[UUID | None, dict[int, dict[int, Replica]]]]:
    """Returns, for each topic, its topic id and the replicas of its partitions by broker id."""
    found: dict[str, list[tuple[int, int, Replica]]] = defaultdict(list)
    for item in inventories:
        for at, replica in item.replicas.items():
            found[at.topic].append((at.partition, item.broker_id, replica))
    held: dict[str, tuple[UUID | None, dict[int, dict[int, Replica]]]] = {}
    for name, replicas in found.items():
        ids = Counter(replica.topic_id for _, _, replica in replicas if replica.topic_id is not None)
        newest = {
            topic_id: max(replica.end for _, _, replica in replicas if replica.topic_id == topic_id) for topic_id in ids
        }
        chosen = max(ids, key=lambda topic_id: (ids[topic_id], newest[topic_id], str(topic_id)), default=None)
        partitions: dict[int, dict[int, Replica]] = defaultdict(dict)
        strangers = set()
        for number, broker_id, replica in replicas:
            if replica.topic_id in (None, chosen):
                partitions[number][broker_id] = replica
            else:
                strangers.add(broker_id)
        if strangers:
            which = (
                f"broker {min(strangers)}"
                if len(strangers) == 1
                else f"brokers {', '.join(map(str, sorted(strangers)))}"
            )
            notes.append(
                f"{which[0].upper()}{which[1:]} still has another topic of the name {name}, which was deleted: it is "
                f"left out."
            )
        held[name] = (chosen, dict(partitions))
    return held


def _assignment(
    partitions: Mapping[int, _Holders], known: TopicNode | None, brokers: set[int]
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas (broker ids) of each partition from partition 0 on. The preferred leader is the first
    replica."""
    count = max([*partitions, *(known.replicas if known is not None else ())]) + 1
    factor = max(len(holders) for holders in partitions.values())
    assignment = {}
    for number in range(count):
        holders = sorted(partitions.get(number, ()))
        before = known.replicas.get(number, ()) if known is not None else ()
        # If a broker has an inventory but not the partition, it has lost the partition, or the partition was moved.
        kept = [broker_id for broker_id in before if broker_id in holders or broker_id not in brokers]
        if number not in partitions and not kept:
            kept = list(before) or _some_brokers(sorted(brokers), number, factor)
        turn = number % len(holders) if holders else 0
        kept += [broker_id for broker_id in holders[turn:] + holders[:turn] if broker_id not in kept]
        assignment[number] = tuple(kept)
    return assignment


def _some_brokers(brokers: Sequence[int], number: int, factor: int) -> list[int]:
    return [brokers[(number + step) % len(brokers)] for step in range(min(factor, len(brokers)))]


def _newest_epoch(inventories: Iterable[Inventory], backup: Mapping[str, Node] | None) -> int:
    """Returns the newest leader epoch of any partition in the inventories and the backup. Returns 0 if there is no
    leader epoch."""
    in_logs = (
        max(replica.last_epoch, replica.newest_epoch) for item in inventories for replica in item.replicas.values()
    )
    in_backup = (state.leader_epoch for _, _, state in _states_of(backup or {}))
    return max(0, *in_logs, *in_backup)


def _states_of(nodes: Mapping[str, Node]) -> Iterator[tuple[str, Node, PartitionStateNode]]:
    """Yields the states of all partitions of a metadata tree, each as path, node and decoded state."""
    for name, topic in _topics_of(nodes).items():
        for number in topic.replicas:
            path = paths.partition_state(name, number)
            if (node := nodes.get(path)) is not None:
                yield path, node, _decoded(partial(PartitionStateNode.decode, node.data or b""), path)


def _state(replicas: Sequence[int], holders: _Holders, leader_epoch: int, controller_epoch: int) -> PartitionStateNode:
    furthest = max((replica.last_epoch, replica.end) for replica in holders.values())
    in_sync = tuple(
        broker_id
        for broker_id in replicas
        if broker_id in holders and (holders[broker_id].last_epoch, holders[broker_id].end) == furthest
    )
    return PartitionStateNode(in_sync[0], leader_epoch, in_sync, controller_epoch)


def _settings(name: str, was_compacted: bool, brokers: int) -> dict[str, str]:
    if name in INTERNAL_TOPICS:
        return {
            key: text
            for key, text in automatic_topic(name, BrokerConfig(), brokers).configs.items()
            if text is not None
        }
    return {"cleanup.policy": "compact"} if was_compacted else {"retention.ms": "-1"}


def _controller_epoch(backup: Mapping[str, Node] | None) -> int:
    node = None if backup is None else backup.get(paths.CONTROLLER_EPOCH)
    return 0 if node is None else _decoded(lambda: decode_controller_epoch(node.data or b""), paths.CONTROLLER_EPOCH)


def _next_producer_id(backup: Mapping[str, Node] | None) -> int:
    node = None if backup is None else backup.get(paths.PRODUCER_ID_BLOCK)
    if node is None or not node.data:
        return 0
    data = node.data
    return _decoded(lambda: ProducerIdBlock.decode(data).last + 1, paths.PRODUCER_ID_BLOCK)


def _decoded(decode: Callable[[], _T], path: str) -> _T:
    try:
        return decode()
    except NodeFormatError as error:
        raise JesenskaError(f"The node {path} of the backup cannot be read ({error}): give another backup.") from error


def _some(names: Sequence[object]) -> str:
    named = ", ".join(map(str, names[:_NAMED_MAX]))
    return named if len(names) <= _NAMED_MAX else f"{named} and {len(names) - _NAMED_MAX} more"
