"""Repeats work on the metadata tree (ZooKeeper's nodes) after a lost connection. A starting broker and a new
controller use this module, because they cannot continue without the nodes that they read. Usually a client has a new
connection soon after a connection was lost.

The work is repeated from its beginning, so doing it twice must be safe. This is true of reads, and of writes that
accept the results of an earlier attempt (`metadata.registration`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, SessionExpiredError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Interval in seconds of the checks for a new connection.
_LOOK_SECONDS: Final = 0.05


async def until_reached(store: Store, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `work`. If the connection or the session ends, the work is repeated as soon as there is a
    new connection. If there is no connection for `seconds` seconds, the error is raised."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await work()
        except (ConnectionLossError, SessionExpiredError) as error:
            ends = loop.time() + seconds
            # At least one pause: the error may arrive before the store's state shows that the connection has ended.
            while True:
                if store.state is SessionState.CLOSED or loop.time() >= ends:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
                if store.state is SessionState.CONNECTED:
                    break
            logger.info(
                "the connection to the metadata tree ended (%s) and is open again: the work that needed it is repeated",
                error,
            )
