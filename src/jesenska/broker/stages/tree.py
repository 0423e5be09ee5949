"""The third stage of a start: opens the metadata tree (ZooKeeper's nodes), finds or chooses the cluster id and the
broker id, and writes both to the log directories (meta.properties)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from jesenska.base.identifiers import uuid_to_text
from jesenska.broker.controlling.registration import Progress, require_free
from jesenska.broker.machine import Machine
from jesenska.broker.stages.storage import Storage
from jesenska.broker.tree.tree_home import EmbeddedHome, TreeHome, open_home
from jesenska.config.layers import BrokerConfig, token_secret_of
from jesenska.config.listeners import Endpoint
from jesenska.controller.context import ControllerContext
from jesenska.log.disk.meta_properties import refuse_empty_tree
from jesenska.metadata.patience import until_reached
from jesenska.metadata.registration import ensure_cluster_id, ensure_paths, known_cluster_id, next_broker_id
from jesenska.metadata.store import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TreePlace:
    """The opened metadata tree (`home`), the ids of the cluster and the broker, the advertised endpoints, and the
    content of the tree at the start (`facts`)."""

    home: TreeHome
    cluster_id: str
    broker_id: int
    endpoints: tuple[Endpoint, ...]
    facts: ControllerContext

    @property
    def store(self) -> Store:
        return self.home.store

    async def until_reached(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `work`. Repeats the work if the connection to the metadata tree is lost during the
        work."""
        return await until_reached(self.home.store, self.home.patience_seconds, work)

    async def newest_facts(self) -> ControllerContext:
        """Returns the current content of the metadata tree. Syncs first, because a ZooKeeper server may be behind its
        ensemble."""
        await self.until_reached(self.store.sync)
        return await self.until_reached(self.home.facts)


async def take_place(
    config: BrokerConfig,
    paths: Sequence[Path],
    storage: Storage,
    endpoints: tuple[Endpoint, ...],
    machine: Machine,
    on_progress: Progress | None,
) -> TreePlace:
    """Opens the metadata tree, and finds or chooses the ids of the cluster and of this broker. Raises TreeError or
    JournalError, or JesenskaError with a message of one sentence."""
    home = await open_home(config, paths[0], machine)
    try:
        return await _settle(home, config, paths, storage, endpoints, machine, on_progress)
    except (Exception, asyncio.CancelledError):
        await home.close()
        raise


async def _settle(
    home: TreeHome,
    config: BrokerConfig,
    paths: Sequence[Path],
    storage: Storage,
    endpoints: tuple[Endpoint, ...],
    machine: Machine,
    on_progress: Progress | None,
) -> TreePlace:
    store, found = home.store, storage.found
    again = partial(until_reached, store, home.patience_seconds)
    found_id = next((item.cluster_id for item in found if item is not None and item.cluster_id), None)
    is_first = await again(partial(known_cluster_id, store)) is None
    if found_id is not None and is_first:
        refuse_empty_tree(zip(paths, found, strict=True), home.name, is_own=isinstance(home, EmbeddedHome))
    await again(home.prepare)
    has_tokens = token_secret_of(config) is not None
    has_acls = bool(config.string("authorizer.class.name"))
    await again(partial(ensure_paths, store, with_acls=has_acls, with_tokens=has_tokens))
    cluster_id = await again(partial(ensure_cluster_id, store, found_id or uuid_to_text(machine.new_uuid())))
    if is_first and home.is_shared:
        logger.info("%s had no cluster: the new cluster %s begins there", home.name, cluster_id)
    broker_id = config.integer("broker.id")
    if broker_id < 0:
        known_id = next((item.broker_id for item in found if item is not None and item.broker_id is not None), None)
        reserved_max = config.integer("reserved.broker.max.id")
        broker_id = known_id if known_id is not None else await again(partial(next_broker_id, store, reserved_max))
    if home.is_shared:
        is_new = all(item is None or item.broker_id is None for item in found)
        await again(
            partial(
                require_free,
                store,
                broker_id,
                endpoints,
                machine.clock,
                home.session_timeout_ms,
                on_progress,
                is_new=is_new,
            )
        )
    storage.directories.claim(cluster_id, broker_id)
    return TreePlace(home, cluster_id, broker_id, endpoints, await again(home.facts))
