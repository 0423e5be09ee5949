from __future__ import annotations

import itertools

import pytest

from jesenska.controller.plans.replica_states import ReplicaState, ReplicaStates

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, REFUSED, DONE = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_REFUSED, ReplicaState.DELETION_DONE

#: Steps that bring a replica into each state.
WAYS = {
    NEW: (NEW,),
    ONLINE: (),
    OFFLINE: (OFFLINE,),
    STARTED: (STARTED,),
    REFUSED: (STARTED, REFUSED),
    DONE: (STARTED, DONE),
}
ALLOWED = {
    NEW: {NEW, ONLINE, OFFLINE, STARTED},
    ONLINE: {NEW, OFFLINE, STARTED},
    OFFLINE: {NEW, OFFLINE, STARTED},
    STARTED: {DONE, REFUSED, OFFLINE},
    REFUSED: {STARTED, OFFLINE},
    DONE: set(),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ReplicaState, ReplicaState)))
def test_replicas_go_from_state_to_state_as_the_table_says(before: ReplicaState, after: ReplicaState) -> None:
    states = ReplicaStates()
    for state in WAYS[before]:
        states.move("t", 1, state)
    if after in ALLOWED[before]:
        states.move("t", 1, after)
        assert states.of("t", 1) is after
    else:
        with pytest.raises(AssertionError, match=f"cannot go from {before.value} to {after.value}"):
            states.move("t", 1, after)
        assert states.of("t", 1) is before


def test_each_broker_and_topic_has_its_own_state() -> None:
    states = ReplicaStates()
    states.move("t", 1, NEW)
    states.move("t", 2, STARTED)
    states.move("u", 1, STARTED)
    assert (list(states.in_state("t", STARTED)), list(states.in_state("u", STARTED)), states.of("u", 2)) == (
        [2],
        [1],
        ONLINE,
    )
    states.forget("t")
    assert states.of("t", 2) is ONLINE
    assert states.of("u", 1) is STARTED
