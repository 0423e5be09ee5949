"""Random members of one group against the coordinator: joins, syncs, heartbeats, leaves, deaths, failed appends,
restarts of the coordinator."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.classic.states import GroupState
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    Heartbeat,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaving,
    PartitionsAnswer,
    SyncAnswer,
)
from jesenska.groups.settings import GroupSettings
from tests.profiles import examples
from tests.units.groups.driver import Driver

PARTITIONS = 6
KEY = TopicPartition("t", 0)


class _Client:
    """A consumer that behaves as clients do: joins, waits, syncs, uses its assignment until the next answer."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.join: int | None = None
        self.joined: JoinAnswer | None = None
        self.sync: int | None = None
        self.owned: frozenset[int] | None = None


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(
            GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1), commit_at_once=False
        )
        self.clients: list[_Client] = []
        self.generation = 0
        self.committed = -1
        self.commits: dict[int, int] = {}

    @initialize()
    def begin(self) -> None:
        self.come()

    # --- what members do ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 5)
    @rule()
    def come(self) -> None:
        client = _Client()
        first = self.driver.answer(self.driver.join(known=True), JoinAnswer)
        client.member_id = first.member_id
        client.join = self.driver.join(member=client.member_id)
        self.clients.append(client)
        self.listen()

    @rule(index=st.integers(0, 4))
    def heartbeat(self, index: int) -> None:
        client = self.pick(index)
        if client is None or client.join is not None or client.sync is not None:
            return
        token = self.driver.token()
        self.driver.give(Heartbeat(token, "g", client.generation, client.member_id))
        error = self.driver.answers[token][0].error
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.owned = None
            client.join = self.driver.join(member=client.member_id)
        elif error is not ErrorCode.NONE:
            self.clients.remove(client)
        self.listen()

    @rule(index=st.integers(0, 4))
    def leave(self, index: int) -> None:
        client = self.pick(index)
        if client is None or client.join is not None or client.sync is not None:
            return
        token = self.driver.token()
        self.driver.give(Leave(token, "g", (Leaving(client.member_id),)))
        assert self.driver.answer(token, LeaveAnswer).error is ErrorCode.NONE
        self.clients.remove(client)
        self.listen()

    @rule(index=st.integers(0, 4))
    def die(self, index: int) -> None:
        client = self.pick(index)
        if client is not None:
            self.clients.remove(client)

    @rule(index=st.integers(0, 4))
    def commit_offset(self, index: int) -> None:
        client = self.pick(index)
        if client is None or client.owned is None:
            return
        token = self.driver.token()
        value = CommittedOffset(max(self.committed, *self.commits.values(), 0) + 1, -1, "", self.driver.wall_ms)
        self.driver.give(CommitOffsets(token, "g", client.generation, client.member_id, None, ((KEY, value),)))
        self.commits[token] = value.offset
        self.listen()

    # --- what else happens -------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.driver.pending))
    @rule()
    def append_is_committed(self) -> None:
        self.driver.commit()
        self.listen()

    @precondition(lambda self: bool(self.driver.pending))
    @rule()
    def append_fails(self) -> None:
        self.driver.fail()
        self.listen()

    @rule(milliseconds=st.integers(0, 20_000))
    def time_passes(self, milliseconds: int) -> None:
        self.driver.advance(milliseconds)
        self.listen()

    @precondition(lambda self: not self.driver.pending)
    @rule()
    def coordinator_restarts(self) -> None:
        """Connections break: a client that waits for an answer asks again."""
        self.driver = self.driver.restarted()
        self.driver.commit_at_once = False
        self.commits.clear()
        group = self.driver.coordinator.groups.get("g")
        self.generation = group.generation if group is not None else 0  # a generation never stored may be used again
        for client in list(self.clients):
            if client.join is not None or client.sync is not None:
                client.sync, client.owned = None, None
                client.join = self.driver.join(member=client.member_id)
        self.listen()

    # --- answers -----------------------------------------------------------------------------------------------------

    def pick(self, index: int) -> _Client | None:
        return self.clients[index % len(self.clients)] if self.clients else None

    def listen(self) -> None:
        """Members act on the answers that have arrived, until none acts any more."""
        moved = True
        while moved:
            moved = False
            for client in list(self.clients):
                moved = self.hear(client) or moved
        for token in [token for token in self.commits if self.driver.is_answered(token)]:
            offset = self.commits.pop(token)
            if self.driver.answer(token, PartitionsAnswer).partitions[KEY] is ErrorCode.NONE:
                self.committed = max(self.committed, offset)

    def hear(self, client: _Client) -> bool:
        if client.join is not None and self.driver.is_answered(client.join):
            answer = self.driver.answer(client.join, JoinAnswer)
            client.join = None
            if answer.error is not ErrorCode.NONE:
                self.clients.remove(client)
                return True
            assert answer.generation_id >= self.generation or answer.generation_id == client.generation
            self.generation = max(self.generation, answer.generation_id)
            client.generation, client.joined = answer.generation_id, answer
            shares: dict[str, bytes] = {}
            if answer.leader == answer.member_id:
                members = sorted(item.member_id for item in answer.members)
                assert client.member_id in members
                shares = {name: bytes(range(place, PARTITIONS, len(members))) for place, name in enumerate(members)}
            client.sync = self.driver.sync(answer, shares)
            return True
        if client.sync is not None and self.driver.is_answered(client.sync):
            synced = self.driver.answer(client.sync, SyncAnswer)
            client.sync = None
            if synced.error is ErrorCode.NONE:
                client.owned = frozenset(synced.assignment)
            elif synced.error in (ErrorCode.UNKNOWN_MEMBER_ID,):
                self.clients.remove(client)
            else:
                client.join = self.driver.join(member=client.member_id)
            return True
        return False

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(len(answers) == 1 for answers in self.driver.answers.values())

    @invariant()
    def a_stable_group_gives_every_partition_to_exactly_one_member(self) -> None:
        group = self.driver.coordinator.groups.get("g")
        if group is None or group.state is not GroupState.STABLE:
            return
        shared = sorted(number for member in group.members.values() for number in member.assignment)
        assert shared == list(range(PARTITIONS))

    @invariant()
    def members_of_one_generation_own_nothing_twice(self) -> None:
        owned = [
            (client.generation, number)
            for client in self.clients
            if client.owned is not None
            for number in client.owned
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        found = self.driver.coordinator.offsets.committed("g", [KEY]).get(KEY)
        assert (found.offset if found is not None else -1) >= self.committed


TestMembers = Members.TestCase
TestMembers.settings = settings(
    max_examples=examples(1.5), stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow]
)
