"""Proposals and throttles of kafka-reassign-partitions, without a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidReplicationFactorError, JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.proposed_assignment import places_of, proposed, read_brokers
from jesenska.cli.kafka.reassignment.reassignment_throttles import (
    FOLLOWERS,
    LEADERS,
    Move,
    brokers_in,
    moves_of,
    throttled_replicas,
)
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.controller.plans.assignment import BrokerPlace

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@given(
    partitions=st.integers(1, 30), factor=st.integers(1, 4), brokers=st.integers(4, 7), seed=st.integers(0, 2**32 - 1)
)
def test_a_proposal_uses_the_named_brokers_evenly_and_keeps_the_factor(
    partitions: int, factor: int, brokers: int, seed: int
) -> None:
    current = {TopicPartition("t", number): tuple(range(100, 100 + factor)) for number in range(partitions)}
    found = proposed(current, [BrokerPlace(number) for number in range(brokers)], Random(seed).randrange)
    assert set(found) == set(current)
    for replicas in found.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(range(brokers))
    leaders = Counter(replicas[0] for replicas in found.values())
    assert max(leaders.values()) <= -(-partitions // brokers)


def test_each_topic_keeps_its_own_factor_and_its_own_numbers() -> None:
    current = {T0: (1,), TopicPartition("t", 5): (1,), U0: (1, 2)}
    found = proposed(current, [BrokerPlace(7), BrokerPlace(8)], Random(1).randrange)
    assert {key: len(replicas) for key, replicas in found.items()} == {T0: 1, TopicPartition("t", 5): 1, U0: 2}


def test_a_proposal_needs_as_many_brokers_as_replicas() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="Replication factor: 2 larger than available brokers: 1"):
        proposed({T0: (1, 2)}, [BrokerPlace(1)], Random(1).randrange)


@pytest.mark.parametrize("text", ["", "x", "1,", "-1", "1.5", "١", "1" * 11])
def test_a_broker_list_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(JesenskaError, match="is not a broker id"):
        read_brokers(text)


def test_a_broker_list_names_each_broker_once() -> None:
    assert read_brokers(" 3, 1,2") == [3, 1, 2]
    with pytest.raises(JesenskaError, match="duplicate entries: 1, 2: name"):
        read_brokers("1,2,2,1,3")


def test_brokers_without_racks_need_the_flag_that_ignores_racks() -> None:
    racks = {1: "a", 2: None, 3: "b"}
    with pytest.raises(JesenskaError, match="--disable-rack-aware"):
        places_of([1, 2], racks, ignores_racks=False)
    assert places_of([1, 2], racks, ignores_racks=True) == [BrokerPlace(1), BrokerPlace(2)]
    assert places_of([1, 3], racks, ignores_racks=False) == [BrokerPlace(1, "a"), BrokerPlace(3, "b")]
    with pytest.raises(JesenskaError, match="Unknown broker id 4: the brokers of the cluster are 1, 2, 3"):
        places_of([1, 4], racks, ignores_racks=True)


def _move(sources: Sequence[int], destinations: Sequence[int]) -> Move:
    return Move(frozenset(sources), frozenset(destinations))


def test_a_move_throttles_the_old_replicas_as_leaders_and_the_new_ones_as_followers() -> None:
    moves = moves_of({T0: (0, 1), U0: (1,)}, {T0: (1, 2), U0: (1,)}, {})
    assert moves == {T0: _move([0, 1], [2]), U0: _move([1], [])}
    assert throttled_replicas(moves) == {"t": {LEADERS: "0:0,0:1", FOLLOWERS: "0:2"}, "u": {LEADERS: "0:1"}}
    assert brokers_in(moves) == [0, 1, 2]


def test_moves_under_way_stay_throttled_and_another_target_has_the_same_sources() -> None:
    ongoing = {T0: OngoingReassignment((2, 1, 0), (2,), (0,)), T1: OngoingReassignment((0, 3), (3,), (0,))}
    moves = moves_of({T0: (2, 1, 0)}, {T0: (3, 1)}, ongoing)
    assert moves == {T0: _move([0, 1], [3]), T1: _move([0], [3])}
    assert throttled_replicas(moves) == {"t": {LEADERS: "0:0,0:1,1:0", FOLLOWERS: "0:3,1:3"}}
