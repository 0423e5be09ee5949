"""Records each start of a broker, in its log directories and in the metadata tree (ZooKeeper's nodes). So the broker
detects directories that are older than its last start (`replication.older_directories`), for example after a disk was
replaced by an old copy. It also knows the replicas that have lost data.

  look    called at a start, when the logs are loaded. A log in an older directory is treated as a log that has lost
          its last records
  lack    called with the replicas that have lost data and are the only in-sync replica of their partition
  begin   called when the broker is registered, before the controller's first request: writes the start to the log
          directories, then to the tree. If the broker ends in between, the start is only in the directories, which
          does no harm
  found   called when other brokers lead the replicas that have lost data: this broker will fetch from them

If some directories are offline and the tree has no start of the broker, nothing is written yet. Otherwise the offline
directories would be mistaken for older directories after their repair."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_directories import LogDirectories
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerStarts
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NodeExistsError, NoNodeError
from jesenska.replication.older_directories import begun, is_older, newest_in, without

logger = logging.getLogger(__name__)

#: The maximum size in bytes of the value that is written to one node. ZooKeeper accepts about a megabyte.
_NODE_BYTES_MAX: Final = 1 << 19


class Starts:
    """The recorded starts of one broker. `new_uuid` returns new ids for directories and starts."""

    def __init__(self, store: Store, broker_id: int, directories: LogDirectories, new_uuid: Callable[[], UUID]) -> None:
        self._store = store
        self._path = paths.broker_starts(broker_id)
        self._directories = directories
        self._new_uuid = new_uuid
        #: The broker's recorded starts in the metadata tree, or None if no start is recorded.
        self._written: BrokerStarts | None = None
        self._lacking: frozenset[TopicPartition] = frozenset()
        self._has_begun = False
        #: True if a log directory is older than the last start.
        self.has_older = False

    async def look(self) -> None:
        """Finds the log directories that are older than the last start. Raises TreeError, NodeFormatError or
        UnusableDirectoryError."""
        try:
            self._written = BrokerStarts.decode((await self._store.get(self._path))[0])
        except NoNodeError:
            self._written = None
        for directory in self._directories.had_before:
            if is_older(directory.starts, self._written):
                self.has_older = True
                logger.warning(
                    "the log directory %s is older than the last start of broker %s, so it may be another disk "
                    "or an old copy: its replicas do not lead until another broker has led them",
                    directory.path,
                    self._path.rpartition("/")[2],
                )
                self._directories.lose(directory, directory.logs.keys() - newest_in(directory.starts, self._written))

    def lack(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Stores the replicas that have lost data and are the only in-sync replica of their partition. `begin` writes
        them to the metadata tree."""
        self._lacking = frozenset(topic_partitions)

    async def begin(self) -> None:
        """Writes this start to the log directories and the metadata tree. Later calls do nothing. Raises TreeError or
        UnusableDirectoryError."""
        directories = self._directories
        if self._has_begun or (self._written is None and len(directories.usable) < len(directories.directories)):
            return
        start = self._new_uuid()
        usable = directories.started(start, self._new_uuid)
        some_are_offline = len(usable) < len(directories.directories)
        await self._write(begun(self._written, usable, start, self._lacking, some_are_offline=some_are_offline))
        self._has_begun = True

    async def found(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Removes these partitions from the list of lost partitions in the metadata tree, because other brokers lead
        them or may lead them. Raises TreeError."""
        if self._written is not None and not self._lacking.isdisjoint(topic_partitions):
            await self._write(without(self._written, topic_partitions))
            self._lacking = self._lacking.difference(topic_partitions)

    async def _write(self, starts: BrokerStarts) -> None:
        data = starts.encode()
        if len(data) > _NODE_BYTES_MAX:
            logger.warning(
                "the list of this broker's replicas without data is too long for the tree, and is not stored"
            )
            starts = BrokerStarts(starts.directories)
            data = starts.encode()
        try:
            await self._store.set(self._path, data)
        except NoNodeError:
            for path, content in ((paths.BROKER_STARTS, None), (self._path, data)):
                try:
                    await self._store.create(path, content)
                except NodeExistsError:
                    pass  # another broker was faster, or an earlier attempt
            await self._store.set(self._path, data)
        self._written = starts
