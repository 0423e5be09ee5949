"""Repeats work on the tree after the end of a connection, for the start of a broker and for a new controller: neither
can go on without the nodes that it reads, and a connection that has ended is usually back in a moment.

The work is repeated from its beginning, so it must be safe to do twice: reads, and writes that accept the results of
an earlier attempt (`metadata.registration`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, SessionExpiredError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Interval of the checks for a new connection.
_LOOK_SECONDS: Final = 0.05


async def until_reached(store: Store, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of the work. If the connection or the session ends meanwhile, the work is repeated with the
    next connection or session. If there is no connection for `seconds`, the error is raised."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await work()
        except (ConnectionLossError, SessionExpiredError) as error:
            ends = loop.time() + seconds
            # One pause at least: an error may come before the state shows that the connection has ended.
            while True:
                if store.state is SessionState.CLOSED or loop.time() >= ends:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
                if store.state is SessionState.CONNECTED:
                    break
            logger.info(
                "the connection to the metadata ended (%s) and is there again: what was asked for is asked for once "
                "more",
                error,
            )
