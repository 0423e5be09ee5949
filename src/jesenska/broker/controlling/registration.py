"""Registers a broker in the metadata tree (ZooKeeper's nodes): creates the broker's node under /brokers/ids, which
exists as long as the broker's session. A registered broker takes part in the election of a controller.

  require_free    checks, before anything is written, that no other broker has this broker's addresses. If the log
                  directories are new, it also checks that no other broker has the id. If there is a node of an
                  earlier session, it waits until the node is deleted or the session must have expired
  join            registers the broker when its logs are recovered; waits for the deletion of an earlier node, too
  renew           registers the broker in a new session, without waiting. If another broker has taken the id, that
                  broker keeps the id, and this broker tries again later
  got_replicas    removes the field that says "this broker has crashed" from the broker's node. Called when a
                  controller has sent this broker its replicas: the controller has then handled the crash

Each registration has a number, the broker epoch (KIP-380). A broker refuses a controller's requests that are for an
earlier registration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from jesenska.base.clock import Clock
from jesenska.base.errors import JesenskaError
from jesenska.broker.controlling.candidacy import Candidacy
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.config.listeners import Endpoint
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerRegistration, NodeFormatError
from jesenska.metadata.registration import BrokerIdTaken, register_broker
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, NoNodeError, TreeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
#: How long an ended session may still exist: a server checks its sessions only once per tick (ZooKeeper: 2 or 3 s).
_LATE_SECONDS = 4.0


class Registration:
    """The registration of one broker, on the running event loop. `node` is the content of the broker's node; a field
    of it says if the broker has crashed. `orders` accepts the controller's requests only if they are for the current
    registration. `begin` runs after each registration, before the broker takes part in the election."""

    def __init__(
        self,
        store: Store,
        broker_id: int,
        node: BrokerRegistration,
        clock: Clock,
        session_timeout_ms: int,
        candidacy: Candidacy,
        orders: OrderReceiver,
        begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._node = node
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._candidacy = candidacy
        self._orders = orders
        self._begin = begin
        orders.on_replicas(self.got_replicas)
        store.on_state(self._entered)

    @property
    def broker_epoch(self) -> int:
        """Returns the broker epoch: the zxid of the change that created the broker's node; -1 if there is no node."""
        return self._orders.broker_epoch

    async def join(self, on_progress: Progress | None = None) -> None:
        """Registers the broker for the first time. Raises JesenskaError, with a message of one sentence, if another
        broker has the id. Raises TreeError if the metadata tree cannot be reached."""
        ends = _end_of_patience(self._clock, self._session_timeout_ms)
        while self.broker_epoch < 0:
            try:
                await self._register()
            except BrokerIdTaken as error:
                if not await _wait_until_gone(
                    self._store, self._clock, paths.broker(self._broker_id), ends, on_progress
                ):
                    raise JesenskaError(str(error)) from error

    async def renew(self) -> None:
        """Registers the broker in a new session. Raises ConnectionLossError if another broker has the id."""
        try:
            await self._register()
        except BrokerIdTaken as error:
            raise ConnectionLossError(paths.broker(self._broker_id), str(error)) from error
        logger.info("broker %d is registered again", self._broker_id)

    async def _register(self) -> None:
        broker_epoch = await register_broker(self._store, self._broker_id, self._node)
        if self._begin is not None:
            await self._begin()
        self._orders.broker_epoch = broker_epoch
        self._candidacy.session_began()

    async def got_replicas(self, broker_epoch: int) -> None:
        """Removes the field that says "this broker has crashed" from the broker's node. Called when a controller has
        sent the list of replicas to this broker, for the registration with this broker epoch."""
        if not self._node.crashed or broker_epoch != self.broker_epoch:
            return
        self._node = node = replace(self._node, crashed=False)
        try:
            stat = await self._store.exists(paths.broker(self._broker_id))
            if stat is not None and stat.czxid == broker_epoch:
                await self._store.set(paths.broker(self._broker_id), node.encode(), stat.version)
        except TreeError as error:
            # The next controller treats this broker as crashed once more, which only causes unnecessary elections.
            logger.info(
                "the node of broker %d in the tree still says that the broker has crashed, which may cause "
                "unnecessary elections: %s",
                self._broker_id,
                error,
            )

    def _entered(self, state: SessionState) -> None:
        if state in (SessionState.EXPIRED, SessionState.CLOSED) and self.broker_epoch >= 0:
            self._orders.broker_epoch = -1
            self._candidacy.session_ended()


async def require_free(
    store: Store,
    broker_id: int,
    endpoints: Sequence[Endpoint],
    clock: Clock,
    session_timeout_ms: int,
    on_progress: Progress | None = None,
    *,
    is_new: bool,
) -> None:
    """Waits until no other broker is registered with one of these addresses. If the broker `is_new` (its log
    directories were never used), waits also until no other broker has this id. Raises JesenskaError, with a message of
    one sentence, if another broker remains registered. Raises TreeError if the metadata tree cannot be reached.

    If two brokers had the same address, a controller would send requests for one of them to the other."""
    ends = _end_of_patience(clock, session_timeout_ms)
    if is_new and not await _wait_until_gone(store, clock, paths.broker(broker_id), ends, on_progress):
        raise JesenskaError(str(BrokerIdTaken(broker_id)))
    own = {(item.host, item.port) for item in endpoints}
    try:
        names = (await store.children(paths.BROKER_IDS))[0]
    except NoNodeError:
        return
    for name in names:
        if name == str(broker_id):
            continue
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            node = BrokerRegistration.decode((await store.get(path))[0])
        except (NoNodeError, NodeFormatError):
            continue
        both = next((item for item in node.endpoints if (item.host, item.port) in own), None)
        if both is not None and not await _wait_until_gone(store, clock, path, ends, on_progress):
            raise JesenskaError(
                f"Broker {name} is registered with {both.host}:{both.port} already, which this broker would tell "
                f"clients, too: "
                "set advertised.listeners to an address that only this broker has, or stop the other one."
            )


def _end_of_patience(clock: Clock, session_timeout_ms: int) -> float:
    return clock.monotonic() + session_timeout_ms / 1000 + (_LATE_SECONDS if session_timeout_ms else 0)


async def _wait_until_gone(store: Store, clock: Clock, path: str, ends: float, on_progress: Progress | None) -> bool:
    """Waits until a node is deleted. Returns False if it still exists at the time `ends` (in seconds of the monotonic
    clock)."""
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
