"""Handles failures of log directories. The partitions of a failed directory become offline. The controller is
notified, so that it elects other brokers as their leaders. All other partitions remain available. If no directory is
left, the broker stops.

  disk error -> LogDirectory.fail -> look -> the directory's partitions have no log
                                          -> /log_dir_event_notification -> the controller asks this broker for errors

Source: KIP-112."""

from __future__ import annotations

import asyncio
import logging

from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.log.log_directories import LogDirectories
from jesenska.metadata import paths
from jesenska.metadata.nodes import encode_log_dir_event
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import TreeError

logger = logging.getLogger(__name__)


class DirectoryFailures:
    """Handles the failures of one broker's log directories, on the running event loop."""

    def __init__(self, directories: LogDirectories, replicas: ReplicaManager, store: Store, broker_id: int) -> None:
        self._directories = directories
        self._replicas = replicas
        self._store = store
        self._broker_id = broker_id
        #: Set when all log directories have failed.
        self.all_failed = asyncio.Event()
        self._is_unreported = False
        self._telling: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Takes the partitions of failed directories offline, and notifies the controller. An earlier notification
        that failed is repeated. Must be called when a directory has failed, and about once per second."""
        for directory in self._directories.directories:
            if directory.is_offline and directory.logs:
                lost = self._directories.take_offline(directory)
                logger.error(
                    "%d partitions are offline with the log directory %s; %d partitions are left",
                    len(lost),
                    directory.path,
                    len(self._directories.logs),
                )
                self._replicas.lost(lost)
                self._is_unreported = True
        if not self._directories.usable:
            self.all_failed.set()
        if self._is_unreported:
            self.tell()

    def tell(self) -> None:
        """Notifies the controller of the failed directories. The controller then sends LeaderAndIsr to this broker,
        and learns from the answer the replicas that have no log."""
        self._is_unreported = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._is_unreported:
            self._is_unreported = False
            try:
                await self._store.create(
                    paths.LOG_DIR_EVENT_PREFIX, encode_log_dir_event(self._broker_id), sequential=True
                )
            except TreeError as error:
                self._is_unreported = True
                logger.info("the controller could not be told yet that replicas are offline: %s", error)
                return

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
