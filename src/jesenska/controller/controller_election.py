"""The election of the controller among several brokers: one broker's part in it. A decider: events in, effects out.

The place is an ephemeral node, /controller. The broker that makes it is controller, in a new epoch, until its session
ends, it gives the place up, or the node is deleted. A controller that was replaced without knowing it finds out at its
next write: each checks the epoch (`Fenced`).

    state       means                                         becomes
    OUTSIDE     there is no session in the tree               LOOKING, when there is one
    LOOKING     the node is being read, or is soon            FOLLOWING, if another broker has it
                                                              CLAIMING, if no broker has it
                                                              LEAVING, if this session has it and does not know
                                                              in which epoch: the answer to its claim was lost
    FOLLOWING   another broker is controller                  LOOKING, when the node changes
    CLAIMING    the node is being made                        BEGINNING, or LOOKING if another was sooner
    BEGINNING   this broker is controller, and reads what     LEADING, or LEAVING if it cannot begin
                the tree holds
    LEADING     this broker is controller                     LOOKING, when its epoch is not the newest any more or
                                                              the node is not its own
    LEAVING     the node is being deleted                     LOOKING, after a pause in which another may claim it

From every state a new session leads to LOOKING, and the end of one to OUTSIDE; a controller ends its work first.
Answers to requests of an earlier session are ignored."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

#: The pause between two attempts, and before a place that was given up is claimed again.
PAUSE_MS: Final = 250


class ElectionState(Enum):
    OUTSIDE = "outside"
    LOOKING = "looking"
    FOLLOWING = "following"
    CLAIMING = "claiming"
    BEGINNING = "beginning"
    LEADING = "leading"
    LEAVING = "leaving"


# The events. `session` counts this broker's sessions.


class SessionBegan(NamedTuple):
    """There is a session, and this broker has no nodes in the tree but those of this session."""


class SessionEnded(NamedTuple):
    """The session is over: its nodes are gone."""


class Looked(NamedTuple):
    """The answer to `Look`: the broker that has the place (None: no broker), and whether it is by this session."""

    session: int
    broker_id: int | None
    is_ours: bool = False


class NodeChanged(NamedTuple):
    """Something happened to the node since it was looked at."""

    session: int


class Claimed(NamedTuple):
    """The answer to `Claim`: the epoch, and the version of the epoch's node; None if another broker was sooner."""

    session: int
    epoch: int | None
    epoch_version: int = -1


class GaveUp(NamedTuple):
    """The answer to `GiveUp`."""

    session: int


class Failed(NamedTuple):
    """A `Look`, a `Claim` or a `GiveUp` got no answer, or an error."""

    session: int


class Began(NamedTuple):
    """The result of `Begin`."""

    epoch: int
    is_done: bool


class Fenced(NamedTuple):
    """A write in this epoch was refused: there is a newer one."""

    epoch: int


class Woken(NamedTuple):
    """The pause that `Wake` asked for is over."""

    session: int


Event = SessionBegan | SessionEnded | Looked | NodeChanged | Claimed | GaveUp | Failed | Began | Fenced | Woken


# The effects


class Look(NamedTuple):
    """Read the node, and watch for its next change."""

    session: int


class Claim(NamedTuple):
    """Make the node, with the next epoch in the same change."""

    session: int


class GiveUp(NamedTuple):
    """Delete the node, if it is of this session."""

    session: int


class Begin(NamedTuple):
    """Be controller in this epoch; answered by `Began`."""

    epoch: int
    epoch_version: int


class End(NamedTuple):
    """Be controller of that epoch no longer. Not answered."""

    epoch: int


class Follow(NamedTuple):
    """Another broker is controller."""

    broker_id: int


class Wake(NamedTuple):
    session: int
    after_ms: int


Effect = Look | Claim | GiveUp | Begin | End | Follow | Wake


class Election:
    """One broker's part in the election."""

    def __init__(self) -> None:
        self.state = ElectionState.OUTSIDE
        #: The epoch in which this broker is controller, or begins to be; None otherwise.
        self.epoch: int | None = None
        self._session = 0
        #: A `Look` has no answer yet; the node has changed since it was sent.
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
        # The change that was reported may be the creation of this node.
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
