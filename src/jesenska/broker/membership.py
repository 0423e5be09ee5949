"""A broker's place in the tree: its node under /brokers/ids, and /controller, both for as long as its session lives.

    join    registered and controller; what a session of before has left is waited for, as long as such a session may
            live
    renew   the same with another session, without waiting; whoever has the place meanwhile keeps it, and it is tried
            again

One broker is all that there is yet: another one in the tree stops the start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jesenska.base.clock import Clock
from jesenska.base.errors import JesenskaError
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.metadata.registration import BrokerIdTaken, become_controller, controller_of, register_broker
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import ConnectionLossError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
#: A server looks at its sessions from time to time: one that has ended may still be there for so long (ZooKeeper's
#: tick is 2 or 3 s).
LATE_SECONDS = 4.0


class Membership:
    """One broker's. `epoch` and `epoch_version` are the controller's epoch and the version of its node, which fence
    this controller's changes."""

    def __init__(self, store: Store, broker_id: int, node: BrokerRegistration, clock: Clock, session_timeout_ms: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._node = node
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self.epoch, self.epoch_version = 0, 0

    async def join(self, on_progress: Progress | None) -> None:
        """JesenskaError with one sentence where the place is another's; TreeError."""
        await self._require_alone()
        ends = self._clock.monotonic() + self._session_timeout_ms / 1000 + (LATE_SECONDS if self._session_timeout_ms else 0)
        while True:
            try:
                await register_broker(self._store, self._broker_id, self._node)
                break
            except BrokerIdTaken as error:
                if not await wait_until_gone(self._store, self._clock, paths.broker(self._broker_id), ends, on_progress):
                    raise JesenskaError(str(error)) from error
        while not await self.claim():
            holder = await controller_of(self._store)
            if holder is None:
                continue
            if holder != self._broker_id or not await wait_until_gone(self._store, self._clock, paths.CONTROLLER, ends, on_progress):
                raise JesenskaError(_of_several(holder, "is the controller"))

    async def renew(self) -> None:
        """ConnectionLossError where the place is another's still."""
        try:
            await register_broker(self._store, self._broker_id, self._node)
        except BrokerIdTaken as error:
            raise ConnectionLossError(paths.broker(self._broker_id), str(error)) from error
        if not await self.claim():
            raise ConnectionLossError(paths.CONTROLLER, _of_several(await controller_of(self._store), "is the controller"))
        logger.info("broker %d is registered again, as controller of epoch %d", self._broker_id, self.epoch)

    async def claim(self) -> bool:
        """Makes this broker controller, in a new epoch; False where there is one."""
        claimed = await become_controller(self._store, self._broker_id, self._clock.now_ms())
        if claimed is None:
            return False
        self.epoch, self.epoch_version = claimed[0], claimed[1].version
        return True

    async def _require_alone(self) -> None:
        for name in (await self._store.children(paths.BROKER_IDS))[0]:
            if name != str(self._broker_id):
                raise JesenskaError(_of_several(name, "is registered"))


async def wait_until_gone(store: Store, clock: Clock, path: str, ends: float, on_progress: Progress | None) -> bool:
    """Waits until a node goes; False where it stays beyond that time of the monotonic clock."""
    gone = asyncio.Event()

    def changed(_: WatchEvent) -> None:
        gone.set()

    while await store.exists(path, changed) is not None:
        left = ends - clock.monotonic()
        if left <= 0:
            return False
        if on_progress is not None:
            on_progress(f"waiting up to {left:.0f} s: {path} is held by a session that may be ending")
        try:
            await asyncio.wait_for(gone.wait(), left)
        except TimeoutError:
            return False
        gone.clear()
    return True


def _of_several(other: object, what: str) -> str:
    return (
        f"Broker {other} {what} in this ZooKeeper, and jesenska's broker cannot be one of several yet: stop that one, or give this one a tree of its own with "
        "a path behind the servers in zookeeper.connect (localhost:2181/jesenska)."
    )
