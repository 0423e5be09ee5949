"""Runs a state machine of `controller.changes.change_machine`: passes events to it, and carries out the effects that
it returns. This module decides nothing.

  Step      reads or writes the metadata tree (ZooKeeper's nodes), one step at a time
  Answer    answers the request
  Wake      starts a timer
  Say       logs a line

Subclasses carry out all other effects (`_do`)."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jesenska.base.errors import BrokerNotAvailableError
from jesenska.broker.shared_parts import SharedParts
from jesenska.controller.changes.change_machine import ChangeMachine
from jesenska.controller.effects import Answer, Children, Effect, Exists, Get, GetMade, Read, Say, Step, Wake
from jesenska.controller.events import Done, Event, Look
from jesenska.controller.reading import in_flight
from jesenska.metadata.store import SessionState, Store, WatchCallback, multi_in_pieces
from jesenska.metadata.tree_operations import NoNodeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

#: The maximum number of reads of the metadata tree (ZooKeeper's nodes) that are in flight at the same time.
_READS_AT_ONCE = 100
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class EffectsRuntime(ABC):
    """Runs one state machine that changes the metadata tree. `change_max_bytes` is the largest change that the tree
    accepts in one transaction; None means no limit."""

    def __init__(self, core: SharedParts, store: Store, machine: ChangeMachine, change_max_bytes: int | None) -> None:
        self._core = core
        self._store = store
        self._machine = machine
        self._change_max_bytes = change_max_bytes
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last_token = 0
        self._step: asyncio.Task[None] | None = None
        #: The callers that wait until the state machine has no work.
        self._idle: list[asyncio.Future[None]] = []
        self._timers: set[asyncio.TimerHandle] = set()
        #: The callback for each watched path of the metadata tree. A watch that is set twice with the same callback
        #: calls it only once.
        self._hearing: dict[str, WatchCallback] = {}
        self._listens, self._closed = True, False

    # --- events to the state machine ---------------------------------------------------------------------------------

    async def ask(self, make: Callable[[int], Event]) -> Any:
        """Passes an event to the state machine, and returns the state machine's answer. `make` gets a token, a number
        that identifies the answer, and returns the event. Raises the error of the answer, or the error of `_ended` if
        the state machine is closed before it answers."""
        if self._closed:
            raise self._ended()
        self._last_token += 1
        token, answer = self._last_token, self._loop.create_future()
        self._answers[token] = answer
        try:
            self.submit(make(token))
            return await answer
        finally:
            del self._answers[token]

    def submit(self, event: Event) -> None:
        """Passes an event to the state machine. Does nothing if it is closed."""
        if not self._closed:
            self._carry_out(self._machine.handle(event, int(self._core.clock.monotonic() * 1000)))
            if self._idle and self._machine.is_idle:
                self._end_waits()

    def look(self, at: str) -> None:
        """Tells the state machine that the metadata tree may have changed at the path `at`."""
        if self._listens:
            self.submit(Look(at))

    async def until_idle(self) -> None:
        """Waits until the state machine has done its present work. A look that has failed, and is tried again later,
        counts as done."""
        if not self._closed and not self._machine.is_idle:
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    def _end_waits(self) -> None:
        idle, self._idle = self._idle, []
        for one in idle:
            if not one.done():
                one.set_result(None)

    def stop_watching(self) -> None:
        """Ignores changes of the metadata tree by other brokers and tools from now on. Requests are still handled."""
        self._listens = False

    def close(self) -> list[asyncio.Task[None]]:
        """Ends the current work, and returns the tasks that are being cancelled. Waiting requests get the error of
        `_ended`."""
        self._closed = True
        self._end_waits()
        for timer in self._timers:
            timer.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._ended())
        if self._step is None or self._step.done():
            return []
        self._step.cancel()
        return [self._step]

    def _ended(self) -> Exception:
        """Returns the error for requests that the closed state machine does not answer."""
        return BrokerNotAvailableError("The broker stops.")

    # --- effects of the state machine --------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Step):
                self._step = self._loop.create_task(self._take(effect))
            elif isinstance(effect, Say):
                logger.log(_LEVELS[effect.level], "%s", effect.text)
            elif isinstance(effect, Wake):
                self._wake(effect)
            else:
                self._do(effect)

    @abstractmethod
    def _do(self, effect: Effect) -> None:
        """Carries out an effect other than Step, Say and Wake."""

    def _answer(self, answer: Answer) -> None:
        asked = self._answers.get(answer.token)
        if asked is None or asked.done():
            return  # the requester has gone
        if answer.error is not None:
            asked.set_exception(answer.error)
        else:
            asked.set_result(answer.value)

    def _wake(self, wanted: Wake) -> None:
        def woken() -> None:
            self._timers.discard(timer)
            self.submit(wanted.event)

        timer = self._loop.call_later(wanted.after_ms / 1000, woken)
        self._timers.add(timer)

    # --- the tree ----------------------------------------------------------------------------------------------------

    async def _take(self, step: Step) -> None:
        outcome: Any = None
        error: Exception | None = None
        what = step.what
        try:
            if isinstance(what, Read):
                outcome = tuple(
                    await in_flight([partial(self._ask_tree, asked) for asked in what.asked], _READS_AT_ONCE)
                )
            else:
                outcome = await multi_in_pieces(self._store, what.operations, self._change_max_bytes)
        except Exception as raised:
            error = raised
        self.submit(Done(step.number, outcome, error, self._store.state is SessionState.CONNECTED))
        if error is not None:
            self._refused(error)

    def _refused(self, error: Exception) -> None:  # noqa: B027
        """Called after the metadata tree has refused a step or could not be reached. The state machine has already got
        the error."""

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
        self.look(look)
