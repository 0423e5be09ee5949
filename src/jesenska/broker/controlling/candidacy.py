"""Takes part in the election of a controller for this broker: carries out the effects of
`controller.controller_election` in the tree, and passes their outcomes back as events.

    begin     this broker is controller of an epoch; the controller's runtime calls `began` when it is ready
    end       it is no longer controller
    follow    another broker is controller

Requests go to the tree one at a time, in the order of the effects."""

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
    """The part of the broker that runs the controller, and knows which broker is controller. The methods are called on
    the loop, and return at once."""

    def begin(self, epoch: int, epoch_version: int) -> None:
        """Called when this broker is elected controller. Must lead to a call of `Candidacy.began`, when the controller
        is ready or has failed. `epoch_version` is the version of the node that holds the epoch."""

    def end(self, epoch: int) -> None:
        """Called when this broker is no longer controller, even if `Candidacy.began` was not called yet."""

    def follow(self, broker_id: int) -> None:
        """Called when the broker with this id is controller."""


class Candidacy:
    """The candidacy of one broker, on the running loop. A session of the tree counts as begun when the broker is
    registered in it."""

    def __init__(self, store: Store, broker_id: int, clock: Clock, elected: Elected) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._elected = elected
        self._election = Election()
        self._loop = asyncio.get_running_loop()
        #: Events for the election; handling them may add more.
        self._events: deque[Event] = deque()
        self._is_telling = False
        self._wanted: deque[Look | Claim | GiveUp] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    def session_began(self) -> None:
        """Called when there is a session in which this broker is registered, and in which it has no other nodes."""
        self._tell(SessionBegan())

    def session_ended(self) -> None:
        self._tell(SessionEnded())

    def began(self, epoch: int, is_done: bool) -> None:
        """Called when the controller of that epoch is ready (`is_done`), or has failed: then another broker may be
        controller."""
        self._tell(Began(epoch, is_done))

    def fenced(self, epoch: int) -> None:
        """Called when a write in that epoch was refused, because there is a newer epoch."""
        self._tell(Fenced(epoch))

    async def close(self) -> None:
        """Ends the candidacy. If this broker is controller, its node in the tree goes when the session ends."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    # --- effects -----------------------------------------------------------------------------------------------------

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
