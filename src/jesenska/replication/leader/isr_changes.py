"""Writes the ISRs that the leaders on this broker propose into the metadata tree (ZooKeeper's nodes). Each write is a
compare-and-set on the partition's state, so that it never overwrites a newer state that a controller has written.
`replication.replicas` makes the proposals; this module does input and output.

  outcome of the write               effect
  written                            the proposal is the ISR
  refused; the state is as before    written again at once
  refused; the state has another     that ISR is used: the controller has written it, or an earlier attempt of this
  ISR                                broker
  refused; another leader epoch      the proposal is dropped: the controller sends the new leader to this broker
  refused; the partition is gone     the proposal is dropped: the topic is being deleted
  no answer                          the state is read, and the write is tried again after a pause
  no connection to the tree          nothing is written, and the write is tried again after a pause. During the
                                     pause the leader may change or drop its proposal

If a proposed ISR has fewer members than min.insync.replicas, this broker first syncs its log (`isr_syncs`). Without
the sync, acknowledged records might have no copy on a disk.

Controllers read the changes from /isr_change_notification and inform all brokers, which answer their clients' Metadata
requests. One node names many partitions. If a node could not be written, its partitions are named in the next node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, PartitionStateNode, encode_partitions
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import BadVersionError, NoNodeError, TreeError
from jesenska.replication.leader.isr_syncs import IsrSyncs, Syncing

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 50
_PAUSE_SECONDS: Final = 0.25
_TELLING_PAUSE_SECONDS: Final = 1.0
#: The maximum number of partitions that are named in one node, because the size of a ZooKeeper node is limited.
_REPORTED_AT_ONCE: Final = 3000


class Proposing(Syncing, Protocol):
    """A partition that this broker leads, or has led: the members that `IsrChanges` uses."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def partition_epoch(self) -> int:
        """Returns the version of the partition's state on which the proposal is based."""
        ...

    @property
    def proposed_isr(self) -> tuple[int, ...] | None: ...

    @property
    def waits_for_sync(self) -> bool:
        """Returns True while the proposal must not be written, because the log must be synced first."""
        ...

    def proposal_sent(self) -> None:
        """Records that the proposal is being written to the metadata tree. From now on the tree may contain the
        proposal, even if no answer arrives."""
        ...

    def isr_written(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None: ...


class IsrChanges:
    """The ISR changes of one broker, on the running event loop. `controller_epoch` returns the newest known controller
    epoch."""

    def __init__(self, store: Store, broker_id: int, controller_epoch: Callable[[], int], syncs: IsrSyncs) -> None:
        self._store = store
        self._syncs = syncs
        self._broker_id = broker_id
        self._controller_epoch = controller_epoch
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[TopicPartition, Proposing] = {}
        self._working: dict[TopicPartition, asyncio.Task[None]] = {}
        self._unreported: dict[TopicPartition, None] = {}
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Returns True if every proposal was handled and every change was reported."""
        return (
            not self._waiting
            and not self._working
            and not self._unreported
            and self._telling is None
            and self._syncs.is_idle
        )

    def propose(self, partition: Proposing) -> None:
        """Writes the partition's proposal when its turn comes. Does nothing if the proposal has been dropped by
        then."""
        if self._closed:
            return
        if partition.waits_for_sync:
            self._syncs.ask(partition, partial(self.propose, partition))
        else:
            self._waiting[partition.topic_partition] = partition
            self._begin()

    async def close(self) -> None:
        """Cancels running writes. A change that is not written need not be repeated: the next leader detects by itself
        which followers are in sync."""
        self._closed = True
        self._waiting.clear()
        tasks = [*self._working.values(), *([self._telling] if self._telling is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        # Thousands of partitions may wait, and each of them calls this method. So only as many partitions are taken
        # from the queue as can be written now.
        while len(self._working) < _AT_ONCE:
            topic_partition = next((one for one in self._waiting if one not in self._working), None)
            if topic_partition is None:
                return
            partition = self._waiting.pop(topic_partition)
            if partition.waits_for_sync:
                self.propose(partition)
            else:
                self._working[topic_partition] = self._loop.create_task(self._work(partition))

    async def _work(self, partition: Proposing) -> None:
        try:
            is_done = await self._write(partition)
            while not is_done:
                await asyncio.sleep(_PAUSE_SECONDS)
                is_done = await self._write(partition)
        except Exception:
            logger.exception("the ISR of %s was not changed", partition.topic_partition)
        finally:
            del self._working[partition.topic_partition]
        self._begin()

    async def _write(self, partition: Proposing) -> bool:
        """Writes the proposed ISR. Returns False if the write must be tried again later."""
        name, number = partition.topic_partition
        path = paths.partition_state(name, number)
        while True:
            isr, leader_epoch, version = partition.proposed_isr, partition.leader_epoch, partition.partition_epoch
            if isr is None:
                return True
            if partition.waits_for_sync:
                # The proposal was made earlier. Since then min.insync.replicas was raised, or the in-sync replicas
                # have changed.
                self.propose(partition)
                return True
            if self._store.state is not SessionState.CONNECTED:
                return False
            partition.proposal_sent()
            node = PartitionStateNode(self._broker_id, leader_epoch, isr, self._controller_epoch())
            try:
                stat = await self._store.set(path, node.encode(), version)
            except NoNodeError:
                return True
            except BadVersionError:
                if await self._has_read_another(partition, path, leader_epoch, version):
                    return True
                continue
            except TreeError as error:
                logger.info("the ISR of %s is not changed yet: %s", partition.topic_partition, error)
                return await self._has_read_another(partition, path, leader_epoch, version)
            self._take(partition, isr, leader_epoch, stat.version)
            return True

    async def _has_read_another(self, partition: Proposing, path: str, leader_epoch: int, version: int) -> bool:
        """Reads the partition's state from the metadata tree. Returns True if the proposal must not be written any
        more: the state has changed, or the partition is gone. If only the ISR has changed, the partition takes over
        the ISR that was read. Returns False if the state is the same, or cannot be read."""
        try:
            data, stat = await self._store.get(path)
            found = PartitionStateNode.decode(data)
        except NoNodeError:
            return True
        except (TreeError, NodeFormatError) as error:
            logger.info("the state of %s cannot be read: %s", partition.topic_partition, error)
            return False
        if (found.leader, found.leader_epoch) != (self._broker_id, leader_epoch):
            return True
        if stat.version == version:
            return False
        self._take(partition, found.isr, leader_epoch, stat.version)
        return True

    def _take(self, partition: Proposing, isr: tuple[int, ...], leader_epoch: int, version: int) -> None:
        partition.isr_written(isr, leader_epoch, version)
        self._syncs.ask(partition)
        self._unreported[partition.topic_partition] = None
        if self._telling is None and not self._closed:
            self._telling = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        """Reports changed ISRs to controllers. Changes within a second are reported together."""
        try:
            while self._unreported:
                await asyncio.sleep(_TELLING_PAUSE_SECONDS)
                reported = list(self._unreported)[:_REPORTED_AT_ONCE]
                try:
                    await self._store.create(paths.ISR_CHANGE_PREFIX, encode_partitions(reported), sequential=True)
                except TreeError as error:
                    logger.info("changed ISRs are not reported to the controller yet: %s", error)
                    continue
                for topic_partition in reported:
                    self._unreported.pop(topic_partition, None)
        finally:
            self._telling = None
