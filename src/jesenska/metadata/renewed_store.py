"""A `Store` (the interface to the metadata tree) that survives the end of its session. When the session expires, the
store opens a new session, and then calls its owner, which creates its ephemeral nodes and watches again.

  session -- EXPIRED --> connect, repeated until it succeeds --> `on_renewed` --> new session

Until the new session is ready, requests fail with SessionExpiredError. The ephemeral nodes and watches of the old
session no longer exist, so the function that the owner has set with `on_renewed` creates them again. If this function
fails, it is called again after a pause. It may fail because the connection ends, or because another process has
created the same node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from jesenska.metadata.store import ForwardingStore, SessionState, StateCallback, Store
from jesenska.metadata.tree_operations import MultiError, TreeError

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0

Connect = Callable[[], Awaitable[Store]]
Renewed = Callable[[], Awaitable[None]]


class RenewedStore(ForwardingStore):
    """A `Store` that replaces its session when the session expires. `open` creates it."""

    def __init__(self, connect: Connect, first: Store) -> None:
        self._connect = connect
        super().__init__(first)
        self._renewing: asyncio.Task[None] | None = None
        self._state_callbacks: list[StateCallback] = []
        self._on_renewed: Renewed | None = None
        self._closed = False
        first.on_state(self._entered)

    @staticmethod
    async def open(connect: Connect) -> RenewedStore:
        """Returns a store with its first session. Raises the error of `connect` if that fails."""
        return RenewedStore(connect, await connect())

    def on_renewed(self, work: Renewed) -> None:
        """Sets the function that creates the nodes and watches of the old session again. It runs with each new session
        after the first."""
        self._on_renewed = work

    def on_state(self, callback: StateCallback) -> None:
        """Registers a callback for every later state of the session. After EXPIRED, it gets CONNECTED only when
        `on_renewed` has finished."""
        self._state_callbacks.append(callback)

    async def close(self) -> None:
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
        await self._store.close()

    def _entered(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and not self._closed and self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        if self._renewing is None or state is SessionState.EXPIRED:
            self._tell(state)

    def _tell(self, state: SessionState) -> None:
        for callback in self._state_callbacks:
            callback(state)

    async def _renew(self) -> None:
        logger.warning("the session %#x of the metadata has expired: a new one is opened", self._store.session_id)
        while True:
            try:
                if self._store.state is SessionState.EXPIRED:
                    store = await self._connect()
                    store.on_state(self._entered)
                    self._store = store
                if self._on_renewed is not None:
                    await self._on_renewed()
            except (TreeError, MultiError) as error:
                logger.warning("the new session of the metadata tree cannot be used yet: %s", error)
            except Exception:
                logger.exception("the new session of the metadata tree cannot be used")
            else:
                if self._store.state is SessionState.CONNECTED:
                    break
            await asyncio.sleep(_PAUSE_SECONDS)
        self._renewing = None
        self._tell(SessionState.CONNECTED)
