"""The limits of replication traffic on one broker: as leader (leader.replication.throttled.rate and .replicas) and as
follower (follower.replication.throttled.rate and .replicas). They follow the settings of the broker and of the
topics."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from jesenska.broker.metadata_cache import MetadataCache
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.quotas.rate import Windows
from jesenska.quotas.replication_throttle import ReplicationThrottle, throttled_partitions

#: The maximum number of topics whose throttled partitions are remembered. Deleted topics also count.
_TOPICS_MAX: Final = 10_000


class _ThrottledPartitions:
    """The throttled partitions of the topics in the metadata cache (the view), from the topic setting with this name.
    A list is read again after the settings of the topic were changed."""

    def __init__(self, setting: str, view: MetadataCache, broker_id: int) -> None:
        self._setting = setting
        self._view = view
        self._broker_id = broker_id
        self._read: dict[str, tuple[TopicConfig, Container[int]]] = {}

    def of(self, topic: str) -> Container[int]:
        shown = self._view.topics.get(topic)
        if shown is None:
            return ()
        config, read = shown.config, self._read.get(topic)
        if read is not None and read[0] is config:
            return read[1]
        if len(self._read) >= _TOPICS_MAX:
            self._read.clear()
        found = throttled_partitions(config.strings(self._setting), self._broker_id)
        self._read[topic] = config, found
        return found


class ReplicationThrottles:
    """`leader` limits what this broker sends to followers, `follower` what it fetches from leaders."""

    def __init__(self, broker_id: int, config: BrokerConfig, view: MetadataCache) -> None:
        windows = Windows(
            config.integer("replication.quota.window.num"),
            config.integer("replication.quota.window.size.seconds") * 1000,
        )
        leader = _ThrottledPartitions("leader.replication.throttled.replicas", view, broker_id)
        follower = _ThrottledPartitions("follower.replication.throttled.replicas", view, broker_id)
        self.leader = ReplicationThrottle(windows, leader.of)
        self.follower = ReplicationThrottle(windows, follower.of)
        self.reconfigure(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies limits that were changed while the broker runs."""
        self.leader.limit(config.integer("leader.replication.throttled.rate"))
        self.follower.limit(config.integer("follower.replication.throttled.rate"))
