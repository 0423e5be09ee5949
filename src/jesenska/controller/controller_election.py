"""One broker's part in the election of the controller among several brokers. This module does no input or output: it
gets events and returns effects.

The controller is the broker whose session has created the ephemeral node /controller. This broker is controller, in a
new controller epoch, until its session ends or the node is deleted. A controller that does not know yet that it was
replaced learns this at its next write, because each write checks the epoch (`Fenced`).

  state       meaning                                       next state
  OUTSIDE     there is no session in the metadata tree      LOOKING, when a session begins
  LOOKING     the node is being read, or soon will be       FOLLOWING, if another broker created the node
                                                            CLAIMING, if there is no node
                                                            LEAVING, if this session created the node, but the epoch
                                                            is unknown because the answer was lost
  FOLLOWING   another broker is controller                  LOOKING, when the node changes
  CLAIMING    the node is being created                     BEGINNING, or LOOKING if another broker was faster
  BEGINNING   this broker is controller, and reads the      LEADING, or LEAVING if the controller cannot start
              tree
  LEADING     this broker is controller, and ready          LOOKING, when there is a newer epoch, or another broker
                                                            has created the node
  LEAVING     the node is being deleted                     LOOKING, after a pause in which another broker may create
                                                            the node

In every state, a new session leads to LOOKING, and the end of the session to OUTSIDE; a controller ends its work
first. Answers to requests of an earlier session are ignored."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

#: The pause, in milliseconds, between two attempts, and after this broker has deleted /controller before it creates
#: the node again.
PAUSE_MS: Final = 250


class ElectionState(Enum):
    OUTSIDE = "outside"
    LOOKING = "looking"
    FOLLOWING = "following"
    CLAIMING = "claiming"
    BEGINNING = "beginning"
    LEADING = "leading"
    LEAVING = "leaving"


# The events. `session` is the number of this broker's session.


class SessionBegan(NamedTuple):
    """A session has begun, and this broker has no nodes of an earlier session in the metadata tree."""


class SessionEnded(NamedTuple):
    """The session has ended: its nodes are deleted."""


class Looked(NamedTuple):
    """The answer to `Look`: the broker in the node /controller (None: there is no node), and True if this session
    created it."""

    session: int
    broker_id: int | None
    is_ours: bool = False


class NodeChanged(NamedTuple):
    """The node /controller has changed since it was read."""

    session: int


class Claimed(NamedTuple):
    """The answer to `Claim`: the new controller epoch, and the version of /controller_epoch. The epoch is None if
    another broker was faster."""

    session: int
    epoch: int | None
    epoch_version: int = -1


class GaveUp(NamedTuple):
    """The answer to `GiveUp`: this session no longer owns the node /controller."""

    session: int


class Failed(NamedTuple):
    """A `Look`, a `Claim` or a `GiveUp` got an error or no answer."""

    session: int


class Began(NamedTuple):
    """The result of `Begin`: `is_done` is True if the controller is ready, and False if it failed to start."""

    epoch: int
    is_done: bool


class Fenced(NamedTuple):
    """The metadata tree has refused a write of the controller of this epoch, because there is a newer controller
    epoch."""

    epoch: int


class Woken(NamedTuple):
    """The pause that `Wake` requested has passed."""

    session: int


Event = SessionBegan | SessionEnded | Looked | NodeChanged | Claimed | GaveUp | Failed | Began | Fenced | Woken


# The effects


class Look(NamedTuple):
    """Asks to read the node /controller, and to watch for its next change."""

    session: int


class Claim(NamedTuple):
    """Asks to create the node /controller, with the next controller epoch in the same multi."""

    session: int


class GiveUp(NamedTuple):
    """Asks to delete the node /controller, if this session created it."""

    session: int


class Begin(NamedTuple):
    """Asks to start the controller in this controller epoch. The event `Began` answers this effect."""

    epoch: int
    epoch_version: int


class End(NamedTuple):
    """Asks to end the controller of this epoch. No event answers this effect."""

    epoch: int


class Follow(NamedTuple):
    """Reports that another broker is controller."""

    broker_id: int


class Wake(NamedTuple):
    session: int
    after_ms: int


Effect = Look | Claim | GiveUp | Begin | End | Follow | Wake


class Election:
    """The state machine of one broker's part in the election of the controller."""

    def __init__(self) -> None:
        self.state = ElectionState.OUTSIDE
        #: The controller epoch in which this broker is controller or about to become controller; None otherwise.
        self.epoch: int | None = None
        self._session = 0
        #: True if a `Look` is not answered yet; True if the node has changed since that `Look` was requested.
        self._is_looking = self._looks_again = False
        self._effects: list[Effect] = []

    def handle(self, event: Event) -> list[Effect]:
        if isinstance(event, SessionBegan):
            self._end()
            self._session += 1
            self._is_looking = False
            self._look()
        elif isinstance(event, SessionEnded):
            self._end()
            self._session += 1
            self.state = ElectionState.OUTSIDE
        elif isinstance(event, Began):
            self._began(event)
        elif isinstance(event, Fenced):
            if event.epoch == self.epoch:
                self._end()
                self._look()
        elif event.session == self._session and self.state is not ElectionState.OUTSIDE:
            self._in_session(event)
        effects, self._effects = self._effects, []
        return effects

    def _in_session(self, event: Looked | NodeChanged | Claimed | GaveUp | Failed | Woken) -> None:
        state = self.state
        if isinstance(event, Looked):
            self._looked(event)
        elif isinstance(event, NodeChanged):
            if self._is_looking:
                self._looks_again = True
            elif state in (ElectionState.FOLLOWING, ElectionState.LOOKING):
                self._look()
            elif state in (ElectionState.BEGINNING, ElectionState.LEADING):
                self._put_look()
        elif isinstance(event, Claimed):
            if state is ElectionState.CLAIMING:
                self._claimed(event)
        elif isinstance(event, Failed):
            self._is_looking = False
            if state in (ElectionState.LOOKING, ElectionState.CLAIMING, ElectionState.LEAVING):
                self.state = ElectionState.LOOKING
            self._effects.append(Wake(self._session, PAUSE_MS))
        elif isinstance(event, GaveUp):
            if state is ElectionState.LEAVING:
                self.state = ElectionState.LOOKING
                self._effects.append(Wake(self._session, PAUSE_MS))
        elif not self._is_looking and state in (ElectionState.LOOKING, ElectionState.BEGINNING, ElectionState.LEADING):
            self._put_look()

    def _looked(self, event: Looked) -> None:
        self._is_looking = False
        if self._looks_again:
            self._put_look()
            return
        if self.epoch is not None:
            if event.is_ours:
                return
            self._end()
        elif self.state is not ElectionState.LOOKING:
            return
        if event.broker_id is None:
            self.state = ElectionState.CLAIMING
            self._effects.append(Claim(self._session))
        elif event.is_ours:
            self._leave()
        else:
            self.state = ElectionState.FOLLOWING
            self._effects.append(Follow(event.broker_id))

    def _claimed(self, event: Claimed) -> None:
        if event.epoch is None:
            self._look()
            return
        self.state, self.epoch = ElectionState.BEGINNING, event.epoch
        self._effects.append(Begin(event.epoch, event.epoch_version))
        # Reads the node again, because the reported change may only be the creation of this node.
        self._put_look()

    def _began(self, event: Began) -> None:
        if self.state is not ElectionState.BEGINNING or event.epoch != self.epoch:
            return
        if event.is_done:
            self.state = ElectionState.LEADING
        else:
            self._end()
            self._leave()

    def _end(self) -> None:
        if self.epoch is not None:
            self._effects.append(End(self.epoch))
            self.epoch = None

    def _leave(self) -> None:
        self.state = ElectionState.LEAVING
        self._effects.append(GiveUp(self._session))

    def _look(self) -> None:
        self.state = ElectionState.LOOKING
        if not self._is_looking:
            self._put_look()

    def _put_look(self) -> None:
        self._is_looking, self._looks_again = True, False
        self._effects.append(Look(self._session))
