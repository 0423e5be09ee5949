"""The topics that Apache Kafka keeps for itself, with the partitions and settings that its brokers give them, whoever
makes them come to be.

    __consumer_offsets      groups and what they commit                    compact
    __transaction_state     transactions                                   compact, uncompressed, no unclean leader
    __share_group_state     share groups                                   kept for ever
    __cluster_metadata      the log of a KRaft controller                  never created (`controller.topics`)

A CreateTopics that names one of the first three gets what it asks for, as in Kafka. Numbers are those of the broker's
settings; with fewer brokers than a factor asks for, a topic begins with as many replicas as there are brokers, and
min.insync.replicas with no more than those."""

from __future__ import annotations

from jesenska.config.layers import BrokerConfig
from jesenska.controller.topics import TopicCreation

CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE = "__consumer_offsets", "__transaction_state", "__share_group_state"


def automatic_topic(name: str, config: BrokerConfig, brokers: int) -> TopicCreation:
    """What to create for a topic that somebody uses and nobody has created. `brokers`: how many there are."""
    if name == CONSUMER_OFFSETS:
        prefix = "offsets.topic"
        settings = {"cleanup.policy": "compact", "compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix = "transaction.state.log"
        settings = {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
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
