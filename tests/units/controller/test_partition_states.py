from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.controller.plans import partition_states
from jesenska.controller.plans.partition_states import (
    BECOMES,
    ELECTS,
    NO_LEADER,
    Change,
    PartitionEvent,
    PartitionState,
    changed,
    elect_after_crash,
    elect_after_loss,
    elect_again,
    elect_before_stop,
    elect_first,
    elect_preferred,
    partition_state,
    without_gone,
)
from jesenska.metadata.nodes import PartitionStateNode

_BROKERS = st.lists(st.integers(0, 5), unique=True, max_size=4)
_REPLICAS = st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4)


def written(leader: int, isr: tuple[int, ...], epoch: int = 3) -> PartitionStateNode:
    return PartitionStateNode(leader, epoch, isr, 1)


@pytest.mark.parametrize(
    ("state", "live", "expected"),
    [
        (None, (1,), PartitionState.NEW),
        (written(1, (1,)), (1, 2), PartitionState.ONLINE),
        (written(1, (1, 2)), (2,), PartitionState.OFFLINE),
        (written(NO_LEADER, (1,)), (1,), PartitionState.OFFLINE),
    ],
)
def test_the_state_of_a_partition_is_whether_its_leader_is_up(
    state: PartitionStateNode | None, live: tuple[int, ...], expected: PartitionState
) -> None:
    assert partition_state(state, live) is expected


def test_a_new_partition_is_led_by_its_first_replica_that_is_up() -> None:
    assert elect_first((1, 0, 2), (0, 2), 4) == PartitionStateNode(0, 0, (0, 2), 4)
    assert elect_first((1, 0), (), 4) == PartitionStateNode(NO_LEADER, 0, (1, 0), 4)


@pytest.mark.parametrize(
    ("replicas", "leader", "isr", "live", "unclean", "expected"),
    [
        # The first assigned replica that is up and in sync leads; the ISR is all that are in sync and up.
        ((1, 2, 3), 1, (3, 2, 1), (2, 3), False, PartitionStateNode(2, 4, (3, 2), 7)),
        # One that is up and was not in sync does not lead.
        ((1, 2), 1, (1,), (2,), False, PartitionStateNode(NO_LEADER, 4, (1,), 7)),
        ((1, 2), 1, (1,), (2,), True, PartitionStateNode(2, 4, (2,), 7)),
        # A replica in sync is preferred to an unclean election.
        ((1, 2, 3), 1, (1, 3), (2, 3), True, PartitionStateNode(3, 4, (3,), 7)),
        # No replica is up.
        ((1, 2), 1, (1, 2), (), True, PartitionStateNode(NO_LEADER, 4, (1, 2), 7)),
        ((1, 2), NO_LEADER, (1,), (), True, None),
        ((1, 2), NO_LEADER, (1,), (2,), False, None),
        # A replica in sync comes back.
        ((1, 2), NO_LEADER, (1,), (1, 2), False, PartitionStateNode(1, 4, (1,), 7)),
        # A broker that was in sync and has no replica any more cannot lead.
        ((2,), 1, (1, 3), (2, 3), False, PartitionStateNode(NO_LEADER, 4, (1, 3), 7)),
    ],
)
def test_after_the_loss_of_its_leader_a_partition_is_led_as_kafka_would_have_it(
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    live: tuple[int, ...],
    unclean: bool,
    expected: PartitionStateNode | None,
) -> None:
    assert elect_after_loss(replicas, written(leader, isr), live, 7, unclean=unclean) == expected


@given(
    _REPLICAS,
    st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4),
    _BROKERS,
    st.booleans(),
    st.integers(-1, 5),
)
def test_nobody_leads_without_the_records_unless_that_is_allowed(
    replicas: list[int], isr: list[int], live: list[int], unclean: bool, leader: int
) -> None:
    before = written(leader, tuple(isr))
    if partition_state(before, live) is not PartitionState.OFFLINE:
        return
    after = elect_after_loss(replicas, before, live, 7, unclean=unclean)
    if after is None:
        assert leader == NO_LEADER
        return
    assert after.leader_epoch == before.leader_epoch + 1
    if after.leader == NO_LEADER:
        assert after.isr == before.isr
        assert not set(isr) & set(live) & set(replicas)
        assert not (unclean and set(live) & set(replicas))
        return
    assert after.leader in live
    assert after.leader in replicas
    assert after.leader in after.isr
    assert set(after.isr) <= set(live)
    assert after.leader in isr or (unclean and after.isr == (after.leader,))
    assert (
        elect_after_loss(replicas, after, live, 7, unclean=unclean) is None
        or partition_state(after, live) is PartitionState.ONLINE
    )


def test_a_leader_that_crashed_leads_in_a_new_epoch() -> None:
    assert elect_again(written(1, (2, 1, 3)), (1, 3), 7) == PartitionStateNode(1, 4, (1, 3), 7)
    assert elect_again(written(1, ()), (1,), 7) == PartitionStateNode(1, 4, (1,), 7)


def test_the_tables_have_an_entry_for_everything_in_every_state() -> None:
    assert set(BECOMES) == set(Change)
    assert set(ELECTS) == set(PartitionEvent)
    assert all(set(row) == set(PartitionState) for row in BECOMES.values())
    assert all(set(row) == set(PartitionState) for row in ELECTS.values())


def test_an_event_asks_only_for_changes_that_are_allowed() -> None:
    asked = {(state, change) for row in ELECTS.values() for state, change in row.items() if change is not None}
    assert all(BECOMES[change][state] for state, change in asked)
    others = {Change.BRANCH, Change.ISR, Change.MORE_REPLICAS, Change.REPLICAS}
    assert {change for _, change in asked} == set(Change) - others


def test_every_state_is_reached_and_no_partition_is_new_again() -> None:
    after = {becomes for row in BECOMES.values() for states in row.values() for becomes in states}
    assert after == {PartitionState.ONLINE, PartitionState.OFFLINE}
    assert {becomes for row in BECOMES.values() for becomes in row[PartitionState.NEW]} == after


def test_the_docstring_draws_the_table() -> None:
    drawn, state = set(), ""
    text = (partition_states.__doc__ or "").partition("becomes\n")[2].partition("\n\n")[0]
    for line in text.splitlines():
        words = line.replace(",", "").split()
        state = words.pop(0) if words[0] in PartitionState.__members__ else state
        drawn |= {(PartitionState[state], Change[words[0]], PartitionState[after]) for after in words[1:]}
    assert drawn == {
        (before, change, after) for change, row in BECOMES.items() for before, states in row.items() for after in states
    }


_NODES = {
    PartitionState.NEW: None,
    PartitionState.ONLINE: written(1, (1, 2)),
    PartitionState.OFFLINE: written(NO_LEADER, (1, 2)),
}


@pytest.mark.parametrize(("before", "after", "change"), list(itertools.product(PartitionState, PartitionState, Change)))
def test_a_partition_changes_as_the_table_allows_and_not_otherwise(
    before: PartitionState, after: PartitionState, change: Change
) -> None:
    node = _NODES[after]
    if node is None:
        assert after not in BECOMES[change][before]
    elif after in BECOMES[change][before]:
        assert changed(change, _NODES[before], node, (1,)) is node
    else:
        with pytest.raises(AssertionError, match=f"from {before.name} to {after.name} by .*{change.name}"):
            changed(change, _NODES[before], node, (1,))


def test_a_change_that_no_event_asks_for_is_refused() -> None:
    with pytest.raises(AssertionError, match="from ONLINE to ONLINE by None"):
        changed(None, written(1, (1,)), written(1, (1,)), (1,))


@given(
    _REPLICAS,
    st.lists(st.integers(0, 5), unique=True, max_size=4),
    _BROKERS,
    _BROKERS,
    st.booleans(),
    st.integers(-1, 5),
)
def test_every_election_is_in_the_table(
    replicas: list[int], isr: list[int], live: list[int], some: list[int], unclean: bool, leader: int
) -> None:
    before = written(leader, tuple(isr))
    is_online = partition_state(before, live) is PartitionState.ONLINE
    staying = [broker for broker in live if broker not in some]
    elected = {
        Change.FIRST: elect_first(replicas, live, 7),
        Change.AFTER_LOSS: None if is_online else elect_after_loss(replicas, before, live, 7, unclean=unclean),
        Change.AFTER_CRASH: elect_after_crash(replicas, before, live, some, 7, unclean=unclean),
        Change.BEFORE_STOP: elect_before_stop(replicas, before, live, some, 7),
        Change.PREFERRED: elect_preferred(replicas, before, staying, 7),
        Change.WITHOUT_GONE: without_gone(before, live, 7) if is_online else None,
    }
    for change, after in elected.items():
        if after is not None:
            changed(change, None if change is Change.FIRST else before, after, live)
