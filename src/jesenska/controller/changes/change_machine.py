"""A state machine that changes the metadata tree (ZooKeeper's nodes). It makes one change at a time, in the order of
the events that request them.

  handle(event, now_ms) -> effects

A change waits only for the tree's answers to its reads and writes (`Done`). So each change is planned on the result of
the change before it. A look (a read of a part of the tree that may have changed) is not queued if an equal look is
waiting: the waiting look will find the new change. A look that fails is repeated after a pause."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from jesenska.base.backoff import Backoff
from jesenska.base.errors import KafkaStorageError
from jesenska.controller.changes.change_state import ChangeState, Steps
from jesenska.controller.effects import Effect, Step, Wake
from jesenska.controller.events import Change, Done, Event, LeaderAndIsrDone, Look, StopReplicaDone
from jesenska.metadata.tree_operations import MultiError, TreeError

_BACKOFF: Final = Backoff(first_seconds=0.25, longest_seconds=30.0)

Work = Change | LeaderAndIsrDone | StopReplicaDone


class ChangeMachine:
    """A state machine that changes the metadata tree (ZooKeeper's nodes). `steps` has the handler of each kind of
    event."""

    def __init__(self, shared: ChangeState, steps: Mapping[type, Callable[..., Steps]]) -> None:
        self._shared_state = shared
        self._steps_of = steps
        self._waiting: deque[Work] = deque()
        self._looks_waiting: set[str] = set()
        self._at_work: Work | None = None
        self._steps: Steps
        self._awaited = 0
        self._failures: dict[str, int] = {}

    @property
    def is_idle(self) -> bool:
        return self._at_work is None and not self._waiting

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handles an event, and returns its effects. `now_ms` is the time of a monotonic clock."""
        shared = self._shared_state
        shared.now_ms = now_ms
        if isinstance(event, Done):
            if self._at_work is not None and event.number == self._awaited:
                self._go_on(event)
        elif isinstance(event, Look):
            self._queue(event)
        else:
            self._waiting.append(event)
        while True:
            for at in shared.take_looks():
                self._queue(Look(at))
            if self._at_work is not None or not self._waiting:
                return shared.take()
            self._begin(self._waiting.popleft())

    def _queue(self, event: Look) -> None:
        if event.at not in self._looks_waiting:
            self._looks_waiting.add(event.at)
            self._waiting.append(event)

    def _begin(self, event: Work) -> None:
        if isinstance(event, Look):
            # Removed before the look reads: a write after this moment causes another look.
            self._looks_waiting.discard(event.at)
        self._at_work = event
        self._steps = self._steps_of[type(event)](event)
        self._go_on(Done(0))

    def _go_on(self, done: Done) -> None:
        """Continues the current change with the outcome of its last step, until it waits for the next outcome or
        ends."""
        try:
            step = self._steps.throw(done.error) if done.error is not None else self._steps.send(done.outcome)
        except StopIteration:
            self._end(None, done)
        except Exception as error:
            self._end(error, done)
        else:
            self._awaited = self._shared_state.number()
            self._shared_state.put(Step(self._awaited, step))

    def _end(self, error: Exception | None, done: Done) -> None:
        event, self._at_work = self._at_work, None
        if isinstance(event, Look):
            if error is None:
                self._failures.pop(event.at, None)
            elif done.is_connected:  # else everything is looked at once it is
                self._look_again(event, error)
        elif error is not None and event is not None:
            token = getattr(event, "token", None)
            if token is None:
                self._shared_state.say("error", f"{type(event).__name__}: not done: {error}")
            else:
                self._shared_state.answer(token, error=self._error_for_client(event, error))

    def _error_for_client(self, event: Work, error: Exception) -> Exception:
        """Returns the error that the requester of a change gets."""
        return self._for_clients(error)

    def _look_again(self, look: Look, error: Exception) -> None:
        failures = self._failures[look.at] = self._failures.get(look.at, 0) + 1
        pause_seconds = _BACKOFF.seconds(failures)
        # The first failures may only mean that the connection to the tree was lost for a moment.
        level = "warning" if pause_seconds == _BACKOFF.longest_seconds else "info"
        self._shared_state.say(level, f"{look.at}: not done ({error}), tried again in {pause_seconds:g} s")
        self._shared_state.put(Wake(_BACKOFF.milliseconds(failures), look))

    def _for_clients(self, error: Exception) -> Exception:
        if not isinstance(error, (TreeError, MultiError)):
            return error
        self._shared_state.say("error", f"the metadata could not be changed: {error}")
        return KafkaStorageError(f"The metadata could not be changed: {error}")
