"""The internal topics of Apache Kafka, with the partitions and settings of automatic creation.

    __consumer_offsets      groups and their committed offsets             compact
    __transaction_state     transactions                                   compact, uncompressed, no unclean leader
    __share_group_state     share groups                                   records are never deleted
    __cluster_metadata      the log of a KRaft controller                  never created (`controller.plans.topics`)

If a client creates one of the first three topics by CreateTopics, the topic is created as the request says, as in
Kafka. An automatically created topic has the numbers of partitions and replicas in the broker's settings. If there are
fewer brokers than the replication factor, the topic begins with one replica on each broker, and min.insync.replicas is
at most that number. It gets the missing replicas when more brokers register (`plan_raised`). As long as replicas are
missing, all its partitions are on the same brokers. If they are not, an administrator has moved partitions, and they
keep their replicas."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from jesenska.config.layers import BrokerConfig
from jesenska.controller.context import ControllerContext, PartitionView, TopicView
from jesenska.controller.plans.partition_states import Change, changed
from jesenska.controller.plans.topics import TopicCreation
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.metadata.tree_operations import Operation, SetData

CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
)
#: The internal topics to which a controller adds missing replicas.
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
_FACTORS: Final = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.replication.factor",
}


def automatic_topic(name: str, config: BrokerConfig, brokers: int) -> TopicCreation:
    """Returns the request that creates a topic automatically. `brokers` is the number of brokers."""
    if name == CONSUMER_OFFSETS:
        prefix = "offsets.topic"
        settings = {"cleanup.policy": "compact", "compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix = "transaction.state.log"
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_GROUP_STATE:
        prefix = "share.coordinator.state.topic"
        settings = {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"}
    else:
        return TopicCreation(name)
    factor = min(config.integer(f"{prefix}.replication.factor"), max(1, brokers))
    if name != CONSUMER_OFFSETS:
        settings["min.insync.replicas"] = str(min(config.integer(f"{prefix}.min.isr"), factor))
    settings["segment.bytes"] = str(config.integer(f"{prefix}.segment.bytes"))
    return TopicCreation(name, config.integer(f"{prefix}.num.partitions"), factor, configs=settings)


class RaisePlan(NamedTuple):
    """The operations to write together to the metadata tree, the topic after these operations, and the numbers of the
    partitions that get more replicas."""

    operations: tuple[Operation, ...]
    topic: TopicView
    numbers: tuple[int, ...]


def plan_raised(view: ControllerContext, topic: TopicView, config: BrokerConfig) -> RaisePlan | None:
    """Plans more replicas for an internal topic, up to the replication factor in the settings. The new replicas are
    placed on the brokers with the fewest replicas of the topic. The partitions begin a new leader epoch, so that every
    broker applies the new replicas. Returns None if the topic has enough replicas, or if there are no more brokers.
    Also returns None if partitions are being moved, or are on different brokers: more replicas would undo the request
    of an administrator."""
    if topic.node.adding or topic.node.removing or len({frozenset(on) for on in topic.node.replicas.values()}) > 1:
        return None
    up = [place.broker_id for place in view.places() if place.broker_id not in view.stopping]
    factor = min(config.integer(_FACTORS[topic.name]), len(up))
    held = Counter(broker_id for replicas in topic.node.replicas.values() for broker_id in replicas)
    assigned = dict(topic.node.replicas)
    partitions = dict(topic.partitions)
    operations: list[Operation] = []
    for number, replicas in sorted(topic.node.replicas.items()):
        known = topic.partitions.get(number)
        if known is None:
            return None
        if len(replicas) >= factor:
            continue
        lacking = sorted(
            (broker_id for broker_id in up if broker_id not in replicas),
            key=lambda broker_id: (held[broker_id], broker_id),
        )
        more = lacking[: factor - len(replicas)]
        held.update(more)
        assigned[number] = (*replicas, *more)
        state = PartitionStateNode(
            known.state.leader, known.state.leader_epoch + 1, known.state.isr, view.controller_epoch
        )
        changed(Change.MORE_REPLICAS, known.state, state, view.live(topic.name, number))
        partitions[number] = PartitionView(state, known.version + 1)
        operations.append(SetData(paths.partition_state(topic.name, number), state.encode(), known.version))
    if not operations:
        return None
    node = TopicNode(assigned, topic.topic_id, topic.node.adding, topic.node.removing)
    operations.insert(0, SetData(paths.topic(topic.name), node.encode(), topic.version))
    numbers = tuple(number for number in sorted(assigned) if assigned[number] != topic.node.replicas[number])
    return RaisePlan(
        tuple(operations), TopicView(topic.name, node, topic.version + 1, partitions, topic.deleting), numbers
    )
