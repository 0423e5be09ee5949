"""Work on the tree that outlasts the end of a connection, for a start and for a controller that begins: neither can go
on without what it reads, and a connection that has ended is there again in a moment.

The work is done again from its beginning, so it must be such as can be done twice: reads, and writes that find what an
earlier attempt has left (`metadata.registration`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, SessionExpiredError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How often it is looked whether the connection is there again.
_LOOK_SECONDS: Final = 0.05


async def until_reached(store: Store, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """What the work gives. Where the connection or the session ends meanwhile it is done again with the next one; the
    error where there is none for so long."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await work()
        except (ConnectionLossError, SessionExpiredError) as error:
            ends = loop.time() + seconds
            # At least once: an error may come before the state says that the connection has ended.
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
