"""A limit on the bytes per second that a broker sends to followers, or fetches as a follower. The limit holds only for
the replicas that a topic's settings name, and only while a follower is not in sync. So a replica that is being copied
leaves bandwidth for clients, and replicas that are in sync are never slowed down.

The broker sets the limit (leader.replication.throttled.rate, follower.replication.throttled.rate). The topic names the
replicas (leader.replication.throttled.replicas, follower.replication.throttled.replicas). All bytes of named replicas
are counted, also those of replicas in sync. Source: KIP-73."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, Protocol

from jesenska.quotas.rate import RateSinceOldest, Windows

#: The value of leader.replication.throttled.rate and follower.replication.throttled.rate that means no limit.
UNLIMITED: Final = 2**63 - 1


class Throttle(Protocol):
    """The part of a `ReplicationThrottle` that leaders and followers use. `is_active` is False while there is no
    limit."""

    is_active: bool

    def applies_to(self, topic: str, partition: int) -> bool: ...

    def is_exceeded(self, now_ms: int) -> bool: ...

    def record(self, size_bytes: int, now_ms: int) -> None: ...

    def wait_ms(self, now_ms: int) -> int: ...


class _EveryPartition:
    """All partitions of a topic."""

    __slots__ = ()

    def __contains__(self, partition: object) -> bool:
        return True


_EVERY_PARTITION: Final = _EveryPartition()


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> Container[int]:
    """Returns the partitions of a topic whose replicas on this broker are throttled. `replicas` is the value of a
    topic's setting: `*`, or pairs `partition:broker`. Other texts have no effect."""
    if "*" in replicas:
        return _EVERY_PARTITION
    found = set()
    for pair in replicas:
        partition, _, broker = pair.partition(":")
        if partition.isdecimal() and broker.isdecimal() and int(broker) == broker_id:
            found.add(int(partition))
    return found


class ReplicationThrottle:
    """The limit for one side of replication on one broker. `partitions_of` returns the throttled partitions of a topic
    (`throttled_partitions`). Times are milliseconds of a monotonic clock."""

    def __init__(self, windows: Windows, partitions_of: Callable[[str], Container[int]]) -> None:
        self._rate = RateSinceOldest(windows)
        self._partitions_of = partitions_of
        self._bytes_per_second = UNLIMITED
        self.is_active = False

    def limit(self, bytes_per_second: int) -> None:
        """Sets the limit in bytes per second. `UNLIMITED` removes it. The bytes that were counted before remain."""
        self._bytes_per_second = bytes_per_second
        self.is_active = bytes_per_second < UNLIMITED

    def applies_to(self, topic: str, partition: int) -> bool:
        """Returns True if this broker's replica of the partition is throttled."""
        return self.is_active and partition in self._partitions_of(topic)

    def is_exceeded(self, now_ms: int) -> bool:
        """Returns True if the throttled replicas are above the limit."""
        return self.is_active and self._rate.value(now_ms) > self._bytes_per_second

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Counts bytes of throttled replicas."""
        self._rate.record(size_bytes, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time in milliseconds after which the rate is at the limit again, if no more bytes are
        counted. It is at most the length of all samples."""
        if not self.is_exceeded(now_ms):
            return 0
        longest_ms = self._rate.all_ms
        if self._bytes_per_second <= 0:
            return longest_ms
        return min(self._rate.throttle_ms(self._bytes_per_second, now_ms), longest_ms)


#: The throttle of a broker without limits.
NO_THROTTLE: Final[Throttle] = ReplicationThrottle(Windows(), lambda topic: ())
