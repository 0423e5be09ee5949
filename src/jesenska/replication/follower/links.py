"""Divides the partitions that this broker follows among its links. A link is one connection to a leader. There are
num.replica.fetchers links to each leader, and a partition is always on the same link."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from zlib import crc32

from jesenska.base.clock import Clock
from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.quotas.replication_throttle import NO_THROTTLE, Throttle
from jesenska.replication.follower.fetcher import FollowerState
from jesenska.replication.follower.link import FollowerLink, LeaderChannel, LinkSettings


class FollowerLinks:
    """The links of one broker, on the running event loop. `connect` opens a connection to a broker. `changed` is
    called for each partition whose log has new records, or whose offsets have moved. `throttle` limits the bytes per
    second of all links together."""

    def __init__(
        self,
        connect: Callable[[int], Awaitable[LeaderChannel]],
        clock: Clock,
        settings: LinkSettings,
        per_leader: int,
        changed: Callable[[TopicPartition], None],
        throttle: Throttle = NO_THROTTLE,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._settings = settings
        self._per_leader = per_leader
        self._changed = changed
        self._throttle = throttle
        #: The links by leader and number (0 to num.replica.fetchers - 1).
        self._links: dict[tuple[int, int], FollowerLink] = {}
        self._followed_on: dict[TopicPartition, tuple[int, int]] = {}
        #: The leader and the leader epoch of each followed partition.
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of links."""
        return len(self._links)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Returns the id of the broker from which this broker fetches a partition; None if the partition is not
        followed."""
        found = self._followed_on.get(topic_partition)
        return None if found is None else found[0]

    def state(self, topic_partition: TopicPartition) -> FollowerState | None:
        """Returns the state of a partition. Returns None if the partition is not followed, or if its log still has
        queued changes from the time before."""
        found = self._followed_on.get(topic_partition)
        return None if found is None else self._links[found].state(topic_partition)

    def follow(
        self, topic_partition: TopicPartition, log: PartitionLog, topic_id: uuid.UUID, leader_id: int, leader_epoch: int
    ) -> None:
        """Begins to follow the leader of a partition in this leader epoch. Ends following an earlier leader or epoch.
        A call with the same leader and epoch changes nothing."""
        if self._closed or self._epochs.get(topic_partition) == (leader_id, leader_epoch):
            return
        key = leader_id, crc32(f"{topic_partition.topic}-{topic_partition.partition}".encode()) % self._per_leader
        if self._followed_on.get(topic_partition) != key:
            self.leave(topic_partition)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = FollowerLink(
                leader_id,
                partial(self._connect, leader_id),
                self._clock,
                self._settings,
                self._changed,
                self._throttle,
            )
        self._followed_on[topic_partition] = key
        self._epochs[topic_partition] = leader_id, leader_epoch
        link.follow(topic_partition, log, topic_id, leader_epoch)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stops following a partition. A link without partitions is closed."""
        key = self._followed_on.pop(topic_partition, None)
        self._epochs.pop(topic_partition, None)
        if key is None:
            return
        link = self._links[key]
        link.leave(topic_partition)
        if not len(link):
            del self._links[key]
            link.close()

    def divide(self, per_leader: int) -> bool:
        """Changes the number of links to each leader (num.replica.fetchers). Returns True if the number is different.
        In this case no partition is followed any more, and the caller must call `follow` for each partition again."""
        if per_leader == self._per_leader:
            return False
        self._per_leader = per_leader
        for topic_partition in list(self._followed_on):
            self.leave(topic_partition)
        return True

    def look(self) -> None:
        """Closes connections to leaders that do not answer in time, and reads the log start offsets. Called
        periodically."""
        for link in self._links.values():
            link.look()

    def close(self) -> None:
        """Stops following all partitions, and closes all links."""
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._followed_on.clear()
        self._epochs.clear()
