"""Syncs the logs of partitions that have too few in-sync replicas. The remaining replicas must have acknowledged
records on the disk, so that they survive a loss of power. `replication.replicas` decides which logs must be synced;
this module does input and output.

  event                                        the log is synced
  a leader proposes an ISR with fewer than     before the ISR is written
  min.insync.replicas members
  a broker is told an ISR with fewer members   at once
  the sync has failed                          again every second; the ISR is not written before the sync succeeds

If other brokers have stopped, a broker may lead thousands of partitions with too few in-sync replicas. Only _AT_ONCE
syncs at a time are passed to the flushing threads; the other partitions wait here. A log that is already synced is not
flushed again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 10


class Syncing(Protocol):
    """A partition with a replica on this broker: the members that `IsrSyncs` uses."""

    topic_partition: TopicPartition

    @property
    def is_to_be_synced(self) -> bool: ...

    def sync(self, done: Callable[[KafkaError | None], None]) -> None: ...


class IsrSyncs:
    """The syncs of one broker, on its event loop."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[Syncing, Callable[[], None]]] = {}
        #: Partitions whose sync has failed, with the function that is called after a sync.
        self._failed: dict[TopicPartition, tuple[Syncing, Callable[[], None]]] = {}
        self._working = 0
        self._begins = False
        self._closed = False

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._working

    def ask(self, partition: Syncing, synced: Callable[[], None] | None = None) -> None:
        """Syncs the partition's log when its turn comes, if the sync is still necessary. `synced` is called when the
        log need not be synced any more."""
        if self._closed:
            return
        if not partition.is_to_be_synced:
            if synced is not None:
                synced()
            return
        _put(self._waiting, partition, synced or _nothing)
        self._begin()

    def try_again(self) -> None:
        """Tries failed syncs again. Called periodically."""
        failed, self._failed = self._failed, {}
        for partition, synced in failed.values():
            self.ask(partition, synced)

    def close(self) -> None:
        """Drops the waiting syncs and begins no more."""
        self._closed = True
        self._waiting.clear()
        self._failed.clear()

    def _begin(self) -> None:
        # If a log is already synced, `sync` calls its callback at once, and the callback calls this method again. The
        # flag prevents this recursion.
        if self._begins:
            return
        self._begins = True
        try:
            while self._waiting and self._working < _AT_ONCE:
                topic_partition = next(iter(self._waiting))
                partition, synced = self._waiting.pop(topic_partition)
                self._working += 1
                partition.sync(partial(self._ended, partition, synced))
        finally:
            self._begins = False

    def _ended(self, partition: Syncing, synced: Callable[[], None], failure: KafkaError | None) -> None:
        self._working -= 1
        if failure is None:
            # The log is synced again if the ISR or the proposal has changed during the sync.
            self.ask(partition, synced)
        elif not self._closed:
            _put(self._failed, partition, synced)
            logger.warning(
                "%s has too few replicas in sync, and its log could not be synced: %s It is tried again every second.",
                partition.topic_partition,
                failure.message,
                extra={"once_a_minute": (partition.topic_partition.topic, "not synced")},
            )
        self._begin()


def _put(
    place: dict[TopicPartition, tuple[Syncing, Callable[[], None]]], partition: Syncing, synced: Callable[[], None]
) -> None:
    """Adds a partition with its callback. The empty default callback does not replace a callback that was added
    earlier."""
    known = place.get(partition.topic_partition)
    if known is None or known[0] is not partition or synced is not _nothing:
        place[partition.topic_partition] = (partition, synced)


def _nothing() -> None:
    """Does nothing. It is the default callback."""
