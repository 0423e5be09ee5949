"""The features that this cluster has, as clients read them in ApiVersions (KIP-584).

    transaction.version   2: clients have their epochs raised with each transaction, and leaders add partitions to
                          transactions for them (KIP-890). Each broker must serve that, so it is 2 while every broker
                          that is registered says that it does, and else 0

The epoch is the tree's number of the change that brought the last broker or took it away: the same for every broker,
and larger with each change, so that clients know which of two answers is newer. A watch tells a
broker when to look.

A mover.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from jesenska.metadata import paths
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import NoNodeError, TreeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
#: What this software serves, by feature: the lowest and the highest level.
SUPPORTED: Final = {TRANSACTION_VERSION: (0, 2)}


class Features:
    """What this broker knows of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The cluster's level of the feature; 0 until the tree has been looked at.
        self.transaction_version = 0
        #: -1 until the tree has been looked at.
        self.epoch = -1
        self._looking: asyncio.Task[None] | None = None
        self._again = False

    async def begin(self) -> None:
        """Looks for the first time; TreeError. From then on it looks when brokers come or go, and after the tree was
        out of reach."""
        await self._look()
        self._store.on_state(self._entered)

    def look(self) -> None:
        """Looks once more, soon."""
        if self._looking is not None and not self._looking.done():
            self._again = True
            return
        self._looking = asyncio.get_running_loop().create_task(self._look_until_done())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _entered(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.look()

    def _changed(self, _: WatchEvent) -> None:
        self.look()

    async def _look_until_done(self) -> None:
        while True:
            self._again = False
            try:
                await self._look()
            except TreeError as error:
                # The tree says when it is back. Until then what is known goes on.
                logger.info("features cannot be looked at: %s", error)
            if not self._again:
                return

    async def _look(self) -> None:
        names, stat = await self._store.children(paths.BROKER_IDS, self._changed)
        levels = []
        for name in names:
            try:
                data, _ = await self._store.get(f"{paths.BROKER_IDS}/{name}")
            except NoNodeError:
                continue
            levels.append(transaction_level_of(data))
        level = min(levels, default=0)
        if level != self.transaction_version:
            logger.info("the cluster's %s is %d", TRANSACTION_VERSION, level)
        self.transaction_version, self.epoch = level, stat.pzxid


def transaction_level_of(registration: bytes) -> int:
    """The highest level of transaction.version that a broker's node offers; 0 where it says nothing of it."""
    try:
        found = json.loads(registration)["features"][TRANSACTION_VERSION]["max_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return min(found, SUPPORTED[TRANSACTION_VERSION][1]) if isinstance(found, int) and found > 0 else 0
