"""This broker's knowledge of the cluster, in memory: topics, partitions, brokers, the controller. Requests read it
without the tree; the controller's orders change it (`broker.replicas.replica_manager`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from jesenska.base.identifiers import TopicPartition
from jesenska.config.layers import TopicConfig
from jesenska.controller.orders.requests import Metadata
from jesenska.log.log_config import LogConfig
from jesenska.records.check import MovingRules
from jesenska.replication.partition import Partition

#: Topics that Kafka itself writes; clients may read them, not write them.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class Topic:
    """A topic with its partitions in order and its settings in force."""

    name: str
    topic_id: uuid.UUID
    partitions: list[Partition]
    config: TopicConfig
    log_config: LogConfig
    #: The rules for the check of produced batches.
    rules: MovingRules
    is_internal: bool


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A registered broker: for each listener's name the host and port that clients of that listener use."""

    broker_id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None


@dataclass(slots=True)
class MetadataCache:
    """All topics by name and by id, and the brokers."""

    cluster_id: str
    controller_id: int
    topics: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    #: Partitions of all topics.
    partition_count: int = 0
    _offline: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)

    def has(self, topic_partition: TopicPartition) -> bool:
        """True if there is such a partition."""
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and 0 <= topic_partition.partition < len(topic.partitions)

    def offline_replicas(self, partition: Partition, broker_id: int) -> list[int]:
        """The replicas of a partition that cannot be read, as far as `broker_id`, the owner of this view, knows: their
        brokers are gone, the controller says so, or it has no log of its own replica."""
        unread = self._offline.get(partition.topic_partition, ())
        return [
            number
            for number in partition.replicas
            if number not in self.brokers or number in unread or (number == broker_id and not partition.has_log)
        ]

    def endpoints_for(self, listener_name: str) -> Iterator[tuple[BrokerNode, str, int]]:
        """Every broker with its host and port on a listener of that name; a broker without one is left out, as Kafka
        does."""
        for node in self.brokers.values():
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield node, endpoint[0], endpoint[1]

    def rack_of(self, broker_id: int, listener_name: str) -> str | None:
        """The rack of a broker that has a listener of that name; None if it has no such listener, or no rack."""
        node = self.brokers.get(broker_id)
        return node.rack if node is not None and listener_name in node.endpoints else None

    def tell_offline(self, metadata: Metadata) -> None:
        """Takes the controller's list of replicas that cannot be read."""
        for part in metadata.topics:
            for number in part.numbers:
                self._offline.pop(TopicPartition(part.topic.name, number), None)
        self._offline.update(metadata.offline)

    def identify(self, topic: Topic, topic_id: uuid.UUID) -> None:
        """A topic has got an id that it did not have."""
        self.by_id.pop(topic.topic_id, None)
        topic.topic_id = topic_id
        self.by_id[topic_id] = topic

    def add(self, topic: Topic) -> None:
        before = self.topics.get(topic.name)
        if before is not None:
            self.partition_count -= len(before.partitions)
            if before.topic_id != topic.topic_id:
                self.by_id.pop(before.topic_id, None)
        self.topics[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self.partition_count += len(topic.partitions)

    def remove(self, name: str) -> Topic | None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.by_id.pop(topic.topic_id, None)
            self.partition_count -= len(topic.partitions)
        return topic
