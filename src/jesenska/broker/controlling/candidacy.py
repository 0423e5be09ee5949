"""Takes part in the election of a controller, for this broker. The state machine `controller.controller_election`
decides. This module reads and writes the metadata tree (ZooKeeper's nodes) for the state machine, and passes the
results back to it as events. The module calls one of these methods of the broker (`Elected`):

  begin     this broker was elected controller for an epoch; the controller's runtime calls `began` when it is ready
  end       this broker is no longer controller
  follow    another broker is controller

Requests to the tree are sent one at a time, in the order in which the state machine asks for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from jesenska.base.clock import Clock
from jesenska.controller.controller_election import (
    Began,
    Begin,
    Claim,
    Claimed,
    Effect,
    Election,
    End,
    Event,
    Failed,
    Fenced,
    Follow,
    GaveUp,
    GiveUp,
    Look,
    Looked,
    NodeChanged,
    SessionBegan,
    SessionEnded,
    Wake,
    Woken,
)
from jesenska.metadata import paths
from jesenska.metadata.nodes import ControllerNode
from jesenska.metadata.registration import become_controller
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import BadVersionError, NoNodeError, TreeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)


class Elected(Protocol):
    """The interface of the part of the broker that runs the controller, and knows which broker is controller. Its
    methods are called on the event loop and must return at once."""

    def begin(self, epoch: int, epoch_version: int) -> None:
        """Called when this broker is elected controller. The implementation must call `Candidacy.began` later, when
        the controller is ready or has failed. `epoch_version` is the version of the node /controller_epoch."""

    def end(self, epoch: int) -> None:
        """Called when this broker is no longer controller, even if `Candidacy.began` was not called yet."""

    def follow(self, broker_id: int) -> None:
        """Called when another broker, with this id, is controller."""


class Candidacy:
    """One broker's part in the election of a controller, on the running event loop. A session of the metadata tree
    (ZooKeeper's nodes) counts as begun when the broker is registered in the session."""

    def __init__(self, store: Store, broker_id: int, clock: Clock, elected: Elected) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._elected = elected
        self._election = Election()
        self._loop = asyncio.get_running_loop()
        #: Events for the state machine of the election that are not handled yet; handling one may add more.
        self._events: deque[Event] = deque()
        self._is_telling = False
        self._wanted: deque[Look | Claim | GiveUp] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    def session_began(self) -> None:
        """Called when this broker is registered in a new session of the metadata tree (ZooKeeper's nodes). The broker
        has created no other node in this session yet."""
        self._tell(SessionBegan())

    def session_ended(self) -> None:
        self._tell(SessionEnded())

    def began(self, epoch: int, is_done: bool) -> None:
        """Called when this broker's controller with this epoch is ready (`is_done`), or has failed to start. After a
        failure this broker gives the controllership up, so that another broker can be elected."""
        self._tell(Began(epoch, is_done))

    def fenced(self, epoch: int) -> None:
        """Called when the metadata tree (ZooKeeper's nodes) refused a write of the controller with this epoch, because
        there is a newer controller epoch."""
        self._tell(Fenced(epoch))

    async def close(self) -> None:
        """Ends this broker's part in the election. If this broker is controller, its node /controller is deleted when
        the session ends."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    # --- effects of the state machine --------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._events and not self._closed:
                for effect in self._election.handle(self._events.popleft()):
                    self._do(effect)
        finally:
            self._is_telling = False

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Begin):
            self._elected.begin(effect.epoch, effect.epoch_version)
        elif isinstance(effect, End):
            self._elected.end(effect.epoch)
        elif isinstance(effect, Follow):
            self._elected.follow(effect.broker_id)
        elif isinstance(effect, Wake):
            self._wake(effect)
        else:
            self._wanted.append(effect)
            if self._asking is None:
                self._asking = self._loop.create_task(self._ask())

    def _wake(self, wanted: Wake) -> None:
        def woken() -> None:
            self._timers.discard(timer)
            self._tell(Woken(wanted.session))

        timer = self._loop.call_later(wanted.after_ms / 1000, woken)
        self._timers.add(timer)

    # --- the tree ----------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        try:
            while self._wanted:
                self._tell(await self._outcome(self._wanted.popleft()))
        finally:
            self._asking = None

    async def _outcome(self, wanted: Look | Claim | GiveUp) -> Event:
        try:
            if isinstance(wanted, Look):
                return await self._look(wanted.session)
            if isinstance(wanted, Claim):
                return await self._claim(wanted.session)
            await self._give_up()
            return GaveUp(wanted.session)
        except TreeError as error:
            logger.info("the election of a controller waits for the tree: %s", error)
        except Exception:
            logger.exception("the election of a controller cannot go on; it is tried again")
        return Failed(wanted.session)

    async def _look(self, session: int) -> Looked:
        def changed(_: WatchEvent) -> None:
            self._tell(NodeChanged(session))

        stat = await self._store.exists(paths.CONTROLLER, changed)
        if stat is None:
            return Looked(session, None)
        try:
            data, stat = await self._store.get(paths.CONTROLLER)
        except NoNodeError:
            return Looked(session, None)
        return Looked(session, ControllerNode.decode(data).broker_id, stat.ephemeral_owner == self._store.session_id)

    async def _claim(self, session: int) -> Claimed:
        claimed = await become_controller(self._store, self._broker_id, self._clock.now_ms())
        return Claimed(session, None) if claimed is None else Claimed(session, claimed[0], claimed[1].version)

    async def _give_up(self) -> None:
        try:
            _, stat = await self._store.get(paths.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.delete(paths.CONTROLLER, stat.version)
        except (NoNodeError, BadVersionError):
            pass  # another broker has the node by now
