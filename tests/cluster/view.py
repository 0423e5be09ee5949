"""What one broker tells its clients."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.raw_connection import RawConnection

_METADATA_VERSION = 12


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as a broker tells it: -1 where nobody leads. The ISR is sorted, and so are those who cannot
    read their replicas."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """All replicas are in sync, and one of them leads."""
        return self.leader in self.replicas and self.isr == tuple(sorted(self.replicas))


_UNKNOWN = PartitionView(-1, -1, (), ())


@dataclass(frozen=True, slots=True)
class View:
    """What one broker tells its clients: brokers by id with their addresses, topics with their partitions."""

    brokers: Mapping[int, str]
    controller: int
    cluster_id: str | None
    topics: Mapping[str, tuple[PartitionView, ...]]
    topic_ids: Mapping[str, uuid.UUID]

    def of(self, topic: str, number: int = 0) -> PartitionView:
        """A partition; one without anything where the broker does not know it."""
        partitions = self.topics.get(topic, ())
        return partitions[number] if number < len(partitions) else _UNKNOWN


def view_of(address: str, seconds: float = 20.0) -> View:
    """Asks one broker for everything. OSError, TimeoutError or ClosedByBrokerError where it does not answer."""
    with RawConnection(address, seconds) as connection:
        answer = connection.ask(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), _METADATA_VERSION, MetadataResponse
        )
    topics = {}
    for topic in answer.topics:
        found = sorted(topic.partitions, key=lambda item: item.partition_index)
        topics[topic.name or ""] = tuple(
            PartitionView(
                item.leader_id,
                item.leader_epoch,
                tuple(item.replica_nodes),
                tuple(sorted(item.isr_nodes)),
                tuple(sorted(item.offline_replicas)),
            )
            for item in found
        )
    return View(
        {item.node_id: f"{item.host}:{item.port}" for item in answer.brokers},
        answer.controller_id,
        answer.cluster_id,
        topics,
        {topic.name or "": topic.topic_id for topic in answer.topics},
    )
