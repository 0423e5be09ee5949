"""This broker's copy of the cluster's metadata, in memory: topics, partitions, brokers, the controller. Clients are
answered from this cache, not from the metadata tree (ZooKeeper's nodes). The controller's requests (LeaderAndIsr,
UpdateMetadata) change it (`broker.replicas.replica_manager`)."""

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

#: Internal topics, which only brokers write. Clients may read them but not write to them.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class Topic:
    """A topic with its current settings. The index of a partition in `partitions` is its number."""

    name: str
    topic_id: uuid.UUID
    partitions: list[Partition]
    config: TopicConfig
    log_config: LogConfig
    #: The limits and formats for checking produced batches.
    rules: MovingRules
    is_internal: bool


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A registered broker. `endpoints` maps each listener name to the host and port that its clients use."""

    broker_id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None


@dataclass(slots=True)
class MetadataCache:
    """All topics, by name and by id, and all registered brokers."""

    cluster_id: str
    controller_id: int
    topics: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    #: The number of partitions of all topics.
    partition_count: int = 0
    _offline: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)

    def has(self, topic_partition: TopicPartition) -> bool:
        """Returns True if the partition exists."""
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and 0 <= topic_partition.partition < len(topic.partitions)

    def offline_replicas(self, partition: Partition, broker_id: int) -> list[int]:
        """Returns the brokers whose replica of a partition is offline, as far as this broker (`broker_id`) knows. A
        replica is offline if its broker is not registered, if the controller reports it, or if it is this broker's own
        replica and has no log."""
        unread = self._offline.get(partition.topic_partition, ())
        return [
            number
            for number in partition.replicas
            if number not in self.brokers or number in unread or (number == broker_id and not partition.has_log)
        ]

    def endpoints_for(self, listener_name: str) -> Iterator[tuple[BrokerNode, str, int]]:
        """Yields every broker with its host and port on the listener of that name. A broker without such a listener is
        left out, as in Kafka."""
        for node in self.brokers.values():
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield node, endpoint[0], endpoint[1]

    def rack_of(self, broker_id: int, listener_name: str) -> str | None:
        """Returns the rack of a broker, or None if the broker has no rack or no listener of that name."""
        node = self.brokers.get(broker_id)
        return node.rack if node is not None and listener_name in node.endpoints else None

    def tell_offline(self, metadata: Metadata) -> None:
        """Replaces the offline replicas of the partitions that the controller's UpdateMetadata names."""
        for part in metadata.topics:
            for number in part.numbers:
                self._offline.pop(TopicPartition(part.topic.name, number), None)
        self._offline.update(metadata.offline)

    def identify(self, topic: Topic, topic_id: uuid.UUID) -> None:
        """Sets the id of a topic that had no id."""
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
