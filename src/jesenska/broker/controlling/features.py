"""The features of this cluster and their levels, which clients read in ApiVersions (KIP-584).

    transaction.version   1: records of transactional ids may have tagged fields; 2: the producer epoch is raised with
                          each transaction, and leaders add partitions to transactions for clients (KIP-890)

The current level of a feature is the highest level that every registered broker offers, or a lower limit that
UpdateFeatures has set. So while a broker of Apache Kafka 3.9, which offers no level, is registered, the level is 0.
Limits are stored in the node `/feature`, in a field that only jesenska reads: a broker of Apache Kafka exits if this
node names a finalized feature that it does not know.

The epoch of the features is the zxid of the last change of the registered brokers or of the node `/feature`. The epoch
is the same on every broker, and larger after each change, so that clients can tell which of two ApiVersions answers is
newer. A broker reads the nodes again when a watch on them fires."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from jesenska.base.errors import InvalidUpdateVersionError
from jesenska.broker.controlling.feature_levels import Update, refusal
from jesenska.metadata import paths
from jesenska.metadata.nodes import decode_feature_limits, encode_feature
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ANY_VERSION, BadVersionError, NoNodeError, TreeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
#: The lowest and highest level of each feature that this software supports.
SUPPORTED: Final = {TRANSACTION_VERSION: (0, 2)}


class Features:
    """The levels of the cluster's features, as this broker has read them from the metadata tree."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The cluster's level of transaction.version; 0 before the tree has been read.
        self.transaction_version = 0
        #: The epoch of the features; -1 before the tree has been read.
        self.epoch = -1
        #: The highest level that each registered broker offers, and the limits that UpdateFeatures has set.
        self._offered: dict[int, int] = {}
        self._limits: dict[str, int] = {}
        #: The version of the node /feature, which contains the limits.
        self._limits_version = ANY_VERSION
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False

    async def begin(self) -> None:
        """Reads the features for the first time. Raises TreeError if that fails. Afterwards they are read again when a
        broker is registered or leaves, when a limit is set, and when the connection to the metadata tree is
        restored."""
        await self._look()
        self._store.on_state(self._entered)

    def look(self) -> None:
        """Starts to read the features again. Does nothing if the broker is stopping."""
        if self._closed:
            return
        if self._looking is not None and not self._looking.done():
            self._again = True
            return
        self._looking = asyncio.get_running_loop().create_task(self._look_until_done())

    async def close(self) -> None:
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def update(self, updates: Sequence[Update], *, validate_only: bool) -> None:
        """Sets the levels of features, all or none. This broker knows the new levels when the method returns, other
        brokers soon after. Raises InvalidUpdateVersionError, with the reason for the first refused level. Raises
        TreeError if the metadata tree cannot be reached."""
        while True:
            await self._look()
            levels = {TRANSACTION_VERSION: self.transaction_version}
            limits, version = dict(self._limits), self._limits_version
            for update in updates:
                why = refusal(update, levels, {TRANSACTION_VERSION: self._offered})
                if why is not None:
                    raise InvalidUpdateVersionError(
                        f"The update failed for all features since the following feature had an error: {why}"
                    )
                if update.level == SUPPORTED[update.feature][1]:
                    limits.pop(update.feature, None)
                else:
                    limits[update.feature] = update.level
            if validate_only or not updates:
                return
            try:
                await self._store.set(paths.FEATURE, encode_feature(limits), version)
            except BadVersionError:
                continue  # another broker has set a limit meanwhile
            await self._look()
            return

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
                # The features are read again when the connection to the tree is restored. Until then the known levels
                # remain.
                logger.info("the cluster's features cannot be read from the tree now: %s", error)
            if not self._again:
                return

    async def _look(self) -> None:
        names, brokers = await self._store.children(paths.BROKER_IDS, self._changed)
        offered = {}
        for name in names:
            try:
                data, _ = await self._store.get(f"{paths.BROKER_IDS}/{name}")
            except NoNodeError:
                continue
            offered[int(name)] = transaction_level_of(data)
        limits: Mapping[str, int] = {}
        changed, version = brokers.pzxid, ANY_VERSION
        # The watch is set even if the node does not exist yet: it fires when the node is created.
        if await self._store.exists(paths.FEATURE, self._changed) is not None:
            data, stat = await self._store.get(paths.FEATURE)
            limits, changed, version = decode_feature_limits(data), max(changed, stat.mzxid), stat.version
        if changed < self.epoch:
            return  # a later read has finished before this one
        level = min(
            limits.get(TRANSACTION_VERSION, SUPPORTED[TRANSACTION_VERSION][1]), min(offered.values(), default=0)
        )
        if level != self.transaction_version:
            logger.info("the cluster's %s is %d", TRANSACTION_VERSION, level)
        self.transaction_version, self.epoch, self._offered = level, changed, offered
        self._limits, self._limits_version = dict(limits), version


def transaction_level_of(registration: bytes) -> int:
    """Returns the highest level of transaction.version that a broker's registration offers; 0 if it does not name this
    feature."""
    try:
        found = json.loads(registration)["features"][TRANSACTION_VERSION]["max_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return min(found, SUPPORTED[TRANSACTION_VERSION][1]) if isinstance(found, int) and found > 0 else 0
