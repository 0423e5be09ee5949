"""Several brokers and one controller: with any loss of sessions, answers and the node, two brokers are never
controller in one epoch, a controller of an older epoch is detected, and in the end there is a controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.controller.controller_election import (
    Began,
    Begin,
    Claim,
    Claimed,
    Effect,
    Election,
    ElectionState,
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

BROKERS = 3
_BROKERS = st.integers(0, BROKERS - 1)


@dataclass
class Broker:
    election: Election = field(default_factory=Election)
    #: Which session it has in the tree; None without one. Sessions of all brokers are counted together.
    session: int | None = None
    #: The effects that its election wants, in order, and the answers that it has not got.
    wanted: list[Effect] = field(default_factory=list)
    untold: list[Event] = field(default_factory=list)
    #: In which epoch it acts as controller.
    acts_in: int | None = None
    follows: int | None = None


class Electing(RuleBasedStateMachine):
    """A tree with the controller's node, and brokers whose requests and answers are delayed."""

    @initialize()
    def begin(self) -> None:
        self.brokers = [Broker() for _ in range(BROKERS)]
        self.sessions = 0
        self.epoch = 0
        #: Broker and session that have the place.
        self.holder: tuple[int, int] | None = None
        self.watchers: dict[int, int] = {}

    def _told(self, number: int, event: Event) -> None:
        broker = self.brokers[number]
        for effect in broker.election.handle(event):
            if isinstance(effect, Begin):
                assert broker.acts_in is None
                broker.acts_in = effect.epoch
            elif isinstance(effect, End):
                assert broker.acts_in == effect.epoch
                broker.acts_in = None
                continue
            elif isinstance(effect, Follow):
                broker.follows = effect.broker_id
                continue
            broker.wanted.append(effect)

    def _node_changed(self) -> None:
        for number, session in self.watchers.items():
            self.brokers[number].untold.append(NodeChanged(session))
        self.watchers = {}

    @rule(number=_BROKERS)
    def session_begins(self, number: int) -> None:
        broker = self.brokers[number]
        if broker.session is None:
            self.sessions += 1
            broker.session = self.sessions
            self._told(number, SessionBegan())

    @rule(number=_BROKERS, knows=st.booleans())
    def session_ends(self, number: int, knows: bool) -> None:
        """Ends the session of a broker. The broker notices it at once, or by its next session."""
        broker = self.brokers[number]
        if broker.session is None:
            return
        if self.holder == (number, broker.session):
            self.holder = None
            self._node_changed()
        self.watchers.pop(number, None)
        broker.session = None
        broker.untold = []
        if knows:
            self._told(number, SessionEnded())

    @rule()
    def somebody_takes_the_node_away(self) -> None:
        self.holder = None
        self._node_changed()

    @rule(number=_BROKERS, is_lost=st.booleans(), is_answered=st.booleans())
    def tree_does(self, number: int, is_lost: bool, is_answered: bool) -> None:
        """The tree carries out the first request of a broker. The request or its answer may get lost."""
        broker = self.brokers[number]
        if not broker.wanted:
            return
        wanted = broker.wanted.pop(0)
        if isinstance(wanted, Begin):
            broker.untold.append(Began(wanted.epoch, is_answered))
            return
        assert isinstance(wanted, Look | Claim | GiveUp | Wake)
        if isinstance(wanted, Wake):
            broker.untold.append(Woken(wanted.session))
            return
        if broker.session is None or is_lost:
            broker.untold.append(Failed(wanted.session))
            return
        answer = self._answer(number, broker.session, wanted)
        broker.untold.append(answer if is_answered else Failed(wanted.session))

    def _answer(self, number: int, session: int, wanted: Look | Claim | GiveUp) -> Event:
        if isinstance(wanted, Look):
            self.watchers[number] = wanted.session
            return Looked(
                wanted.session, None if self.holder is None else self.holder[0], self.holder == (number, session)
            )
        if isinstance(wanted, Claim):
            if self.holder is not None:
                return Claimed(wanted.session, None)
            self.holder, self.epoch = (number, session), self.epoch + 1
            self._node_changed()
            return Claimed(wanted.session, self.epoch)
        if self.holder == (number, session):
            self.holder = None
            self._node_changed()
        return GaveUp(wanted.session)

    @rule(number=_BROKERS)
    def broker_hears(self, number: int) -> None:
        if self.brokers[number].untold:
            self._told(number, self.brokers[number].untold.pop(0))

    @precondition(lambda self: any(broker.acts_in is not None for broker in self.brokers))
    @rule()
    def controllers_write(self) -> None:
        """Every write makes the tree check the epoch."""
        for number, broker in enumerate(self.brokers):
            if broker.session is not None and broker.acts_in is not None and broker.acts_in != self.epoch:
                self._told(number, Fenced(broker.acts_in))
                assert broker.acts_in is None

    @invariant()
    def one_controller_an_epoch(self) -> None:
        if hasattr(self, "brokers"):
            epochs = [broker.acts_in for broker in self.brokers if broker.acts_in is not None]
            assert len(set(epochs)) == len(epochs)

    def teardown(self) -> None:
        """When no more messages get lost, one broker is controller and the others know it."""
        if not hasattr(self, "brokers"):
            return
        for number in range(BROKERS):
            self.session_begins(number)
        for _ in range(100):
            for number in range(BROKERS):
                self.tree_does(number, is_lost=False, is_answered=True)
                self.broker_hears(number)
        self.controllers_write()
        for _ in range(100):
            for number in range(BROKERS):
                self.tree_does(number, is_lost=False, is_answered=True)
                self.broker_hears(number)
        assert self.holder is not None
        first = self.holder[0]
        assert [broker.election.state for broker in self.brokers] == [
            ElectionState.LEADING if number == first else ElectionState.FOLLOWING for number in range(BROKERS)
        ]
        assert self.brokers[first].acts_in == self.brokers[first].election.epoch == self.epoch
        assert all(broker.follows == first for number, broker in enumerate(self.brokers) if number != first)


TestElecting = Electing.TestCase


def _election(*events: Event) -> tuple[Election, list[Effect]]:
    election, effects = Election(), []
    for event in events:
        effects = election.handle(event)
    return election, effects


_LEADING: tuple[Event, ...] = (
    SessionBegan(),
    Looked(1, None),
    Claimed(1, 7, 3),
    Looked(1, 0, is_ours=True),
    Began(7, is_done=True),
)


def test_who_finds_nobody_claims_and_begins() -> None:
    election, effects = _election(SessionBegan(), Looked(1, None))
    assert effects == [Claim(1)]
    assert election.handle(Claimed(1, 7, 3)) == [Begin(7, 3), Look(1)]
    assert election.handle(Looked(1, 0, is_ours=True)) == []
    assert election.handle(Began(7, is_done=True)) == []
    assert (election.state, election.epoch) == (ElectionState.LEADING, 7)


def test_a_controller_that_cannot_begin_gives_the_place_up() -> None:
    election, effects = _election(SessionBegan(), Looked(1, None), Claimed(1, 7, 3), Began(7, is_done=False))
    assert effects == [End(7), GiveUp(1)]
    assert election.handle(GaveUp(1)) == [Wake(1, 250)]


def test_a_controller_that_is_fenced_ends_and_looks() -> None:
    election, effects = _election(*_LEADING, Fenced(6))
    assert effects == []
    assert election.handle(Fenced(7)) == [End(7), Look(1)]
    assert election.epoch is None


def test_a_place_whose_epoch_was_never_heard_is_given_up() -> None:
    _, effects = _election(SessionBegan(), Looked(1, None), Failed(1), Woken(1), Looked(1, 0, is_ours=True))
    assert effects == [GiveUp(1)]


def test_answers_to_an_earlier_session_change_nothing() -> None:
    election, effects = _election(*_LEADING, SessionBegan())
    assert effects == [End(7), Look(2)]
    for event in (
        Looked(1, None),
        Claimed(1, 8, 4),
        NodeChanged(1),
        GaveUp(1),
        Failed(1),
        Woken(1),
        Began(7, is_done=True),
        Fenced(7),
    ):
        assert election.handle(event) == []
    assert election.state is ElectionState.LOOKING


def test_a_change_that_is_heard_of_before_the_answer_is_looked_at_again() -> None:
    election, _ = _election(SessionBegan(), NodeChanged(1))
    assert election.handle(Looked(1, 2)) == [Look(1)]
    assert election.handle(Looked(1, 2)) == [Follow(2)]
