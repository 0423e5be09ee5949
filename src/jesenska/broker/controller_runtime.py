"""What runs the controller: it carries out its effects, and brings it the events. It decides nothing.

Step              the tree is read or written, one step at a time
LeaderAndIsr, StopReplica, UpdateMetadata, SettingsChanged, OffsetsForgotten
                  what this broker is told, done in order, one after the other (`broker.replica_manager`)
Answer            after everything that stands before it: whoever is answered finds it done
Wake, Say         a timer, a line of the log"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jesenska.broker.core import BrokerCore
from jesenska.broker.membership import Membership
from jesenska.broker.replica_manager import ReplicaManager
from jesenska.controller.effects import (
    Answer,
    Children,
    Effect,
    Exists,
    Get,
    GetMade,
    LeaderAndIsr,
    OffsetsForgotten,
    Read,
    Say,
    SettingsChanged,
    Step,
    StopReplica,
    UpdateMetadata,
    Wake,
    Write,
)
from jesenska.controller.events import EVERYTHING, Done, Elected, Event, LeaderAndIsrDone, Look, StopReplicaDone
from jesenska.controller.machine import Controller
from jesenska.controller.reading import in_flight
from jesenska.metadata.store import SessionState, Store, WatchCallback, multi_in_pieces
from jesenska.metadata.tree_operations import NoNodeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

#: Reads of the tree that are in flight at a time.
_READS_AT_ONCE = 100
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

ToBroker = LeaderAndIsr | StopReplica | UpdateMetadata | SettingsChanged | OffsetsForgotten


class ControllerRuntime:
    """The runtime of one broker's controller. `change_max_bytes`: the largest change that the tree takes in one piece;
    None: any."""

    def __init__(
        self, core: BrokerCore, store: Store, controller: Controller, replicas: ReplicaManager, membership: Membership, change_max_bytes: int | None
    ) -> None:
        self._core = core
        self._store = store
        self.controller = controller
        self._replicas = replicas
        self._membership = membership
        self._change_max_bytes = change_max_bytes
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last_token = 0
        self._orders: deque[ToBroker | Answer] = deque()
        self._working: asyncio.Task[None] | None = None
        self._step: asyncio.Task[None] | None = None
        #: One callback for each thing to look at: the tree takes equal ones for one.
        self._hearing: dict[str, WatchCallback] = {}
        self._listens, self._closed = True, False

    # --- events in ---------------------------------------------------------------------------------------------------

    async def ask(self, make: Callable[[int], Event]) -> Any:
        """The answer to the event that `make` makes of a token; the error that stands in its place."""
        self._last_token += 1
        token, answer = self._last_token, self._loop.create_future()
        self._answers[token] = answer
        try:
            self.submit(make(token))
            return await answer
        finally:
            del self._answers[token]

    def submit(self, event: Event) -> None:
        """Brings the controller an event."""
        if not self._closed:
            self._carry_out(self.controller.handle(event, int(self._core.clock.monotonic() * 1000)))

    def watch_the_tree(self) -> None:
        """Others may write in the tree: from now on it is looked at what they write."""
        self._store.on_state(self._state)
        self.submit(Look(EVERYTHING))

    async def renewed(self) -> None:
        """The session in the tree is another: the broker's place is taken again (what others wrote meanwhile is looked
        at once it is)."""
        await self._membership.renew()
        self.submit(Elected(self._membership.epoch, self._membership.epoch_version))

    def _state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._look(EVERYTHING)

    def _look(self, at: str) -> None:
        if self._listens:
            self.submit(Look(at))

    def stop_watching(self) -> None:
        """What others write from now on is not looked at; who asks is answered still."""
        self._listens = False

    async def close(self) -> None:
        """Ends what is at work."""
        self._closed = True
        tasks = [task for task in (self._step, self._working) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- effects out -------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Step):
                self._step = self._loop.create_task(self._take(effect))
            elif isinstance(effect, Say):
                logger.log(_LEVELS[effect.level], "%s", effect.text)
            elif isinstance(effect, Wake):
                self._loop.call_later(effect.after_ms / 1000, self.submit, effect.event)
            else:
                self._orders.append(effect)
        if self._orders and self._working is None:
            self._working = self._loop.create_task(self._work())

    async def _work(self) -> None:
        """What this broker is told, in order."""
        try:
            while self._orders:
                order = self._orders.popleft()
                try:
                    if isinstance(order, Answer):
                        self._answer(order)
                    else:
                        await self._do(order)
                except Exception:
                    logger.exception("the controller's order was not carried out: %s", type(order).__name__)
        finally:
            self._working = None

    def _answer(self, answer: Answer) -> None:
        asked = self._answers.get(answer.token)
        if asked is None or asked.done():
            return  # whoever asked has gone
        if answer.error is not None:
            asked.set_exception(answer.error)
        else:
            asked.set_result(answer.value)

    async def _do(self, order: ToBroker) -> None:
        replicas = self._replicas
        if isinstance(order, LeaderAndIsr):
            without_log = await replicas.lead_and_follow(order.topics)
            self.submit(LeaderAndIsrDone(order.number, order.broker_id, without_log))
        elif isinstance(order, StopReplica):
            error = None
            try:
                await replicas.delete(order.topic, order.numbers)
            except Exception as raised:
                error = raised
            self.submit(StopReplicaDone(order.number, order.broker_id, error))
        elif isinstance(order, UpdateMetadata):
            replicas.update_metadata(order.topics, [part.topic.name for part in order.gone])
        elif isinstance(order, SettingsChanged):
            replicas.settings_changed(order.entity, self.controller.config)
        else:
            replicas.forget_offsets(order.topic)

    # --- the tree ----------------------------------------------------------------------------------------------------

    async def _take(self, step: Step) -> None:
        outcome: Any = None
        error: Exception | None = None
        what = step.what
        try:
            if isinstance(what, Read):
                outcome = tuple(await in_flight([partial(self._ask_tree, asked) for asked in what.asked], _READS_AT_ONCE))
            elif isinstance(what, Write):
                outcome = await multi_in_pieces(self._store, what.operations, self._change_max_bytes)
            elif await self._membership.claim():
                outcome = self._membership.epoch, self._membership.epoch_version
        except Exception as raised:
            error = raised
        self.submit(Done(step.number, outcome, error, self._store.state is SessionState.CONNECTED))

    async def _ask_tree(self, asked: Children | Get | Exists | GetMade) -> Any:
        hear = None if isinstance(asked, GetMade) or asked.look is None else self._hear(asked.look)
        try:
            if isinstance(asked, Children):
                return (await self._store.children(asked.path, hear))[0]
            if isinstance(asked, Exists) or hear is not None:
                stat = await self._store.exists(asked.path, hear)
                if isinstance(asked, Exists) or stat is None:
                    return None if stat is None else stat.version
            data, stat = await self._store.get(asked.path)
        except NoNodeError:
            return None
        return data, stat.czxid if isinstance(asked, GetMade) else stat.version

    def _hear(self, look: str) -> WatchCallback:
        return self._hearing.setdefault(look, partial(self._heard, look))

    def _heard(self, look: str, _: WatchEvent) -> None:
        self._look(look)
