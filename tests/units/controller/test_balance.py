"""Plans of a balance: what they must never do, how near they come to their goals, and how many bytes they move beside
the best of all plans."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.controller.plans.balance import (
    BYTES,
    LEADERS,
    BalancedBroker,
    BalancePlan,
    BrokerLoad,
    PartitionLoad,
    plan_balance,
)

_GB = 10**9


def partition(number: int, replicas: Sequence[int], size_bytes: int = 0, rate: float = 0.0) -> PartitionLoad:
    return PartitionLoad(TopicPartition("t", number), tuple(replicas), size_bytes, rate)


def uneven(seed: int, brokers: Sequence[int], factor: int, count: int = 1000) -> list[PartitionLoad]:
    """Partitions of very different sizes and rates, on random brokers."""
    chance = random.Random(seed)
    return [
        partition(
            number,
            chance.sample(brokers, factor),
            int(chance.paretovariate(1.2) * 1e8) % (40 * _GB),
            chance.paretovariate(1.1) * 1e4,
        )
        for number in range(count)
    ]


def busiest(plan: BalancePlan, of: Callable[[BrokerLoad], float], staying: Sequence[int]) -> float:
    """The largest load, divided by the mean."""
    loads = [of(plan.after[broker_id]) for broker_id in staying]
    return max(loads) * len(loads) / sum(loads)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_a_thousand_uneven_partitions_on_four_brokers_are_even_afterwards(seed: int, factor: int) -> None:
    brokers = [1, 2, 3, 4]
    plan = plan_balance([BalancedBroker(number) for number in brokers], uneven(seed, brokers, factor))
    assert busiest(plan, lambda load: load.size_bytes, brokers) <= 1.1
    assert busiest(plan, lambda load: load.leaders, brokers) <= 1.1
    assert busiest(plan, lambda load: load.bytes_per_second, brokers) <= 1.1


@pytest.mark.parametrize("leaving", [1, 2, 3, 4])
def test_each_broker_can_leave(leaving: int) -> None:
    brokers = [1, 2, 3, 4]
    staying = [number for number in brokers if number != leaving]
    places = [BalancedBroker(number, leaves=number == leaving) for number in brokers]
    plan = plan_balance(places, uneven(7, brokers, 3))
    assert plan.after[leaving] == BrokerLoad(0, 0, 0, 0)
    assert plan.stuck == ()
    assert busiest(plan, lambda load: load.size_bytes, staying) <= 1.1
    assert busiest(plan, lambda load: load.leaders, staying) <= 1.1


def test_an_empty_broker_is_filled() -> None:
    plan = plan_balance([BalancedBroker(number) for number in range(1, 6)], uneven(1, [1, 2, 3, 4], 3))
    assert busiest(plan, lambda load: load.size_bytes, [1, 2, 3, 4, 5]) <= 1.1
    assert busiest(plan, lambda load: load.leaders, [1, 2, 3, 4, 5]) <= 1.1


def best_bytes(partitions: Sequence[PartitionLoad], brokers: int, limit: float) -> int | None:
    """The fewest bytes that any plan moves after which no broker is over the limit; every plan is tried."""
    best: int | None = None
    for targets in itertools.product(range(1, brokers + 1), repeat=len(partitions)):
        loads = [0] * (brokers + 1)
        moved = 0
        for load, target in zip(partitions, targets, strict=True):
            loads[target] += load.size_bytes
            moved += load.size_bytes if target != load.replicas[0] else 0
        if max(loads) <= limit and (best is None or moved < best):
            best = moved
    return best


@pytest.mark.parametrize("tolerance", [0.1, 0.3])
def test_hardly_more_bytes_are_moved_than_by_the_best_plan(tolerance: float) -> None:
    compared = 0
    for seed in range(60):
        chance = random.Random(seed)
        partitions = [
            partition(number, [chance.choice([1, 1, 2, 3])], chance.randint(1, 100))
            for number in range(chance.randint(5, 7))
        ]
        limit = sum(load.size_bytes for load in partitions) / 3 * (1 + tolerance)
        best = best_bytes(partitions, 3, limit)
        if best is None:
            continue
        compared += 1
        plan = plan_balance(
            [BalancedBroker(number) for number in (1, 2, 3)], partitions, tolerance=tolerance, goals=(BYTES,)
        )
        assert max(load.size_bytes for load in plan.after.values()) <= limit
        assert plan.moved_bytes <= 1.2 * best
    assert compared > 20


_PARTITIONS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True), st.integers(0, 1000), st.floats(0, 1000)
    ),
    max_size=30,
)
_KINDS = st.lists(st.sampled_from(["stays", "leaves", "closed"]), min_size=5, max_size=5)


@given(_PARTITIONS, _KINDS, st.booleans(), st.floats(0, 1))
def test_whatever_the_loads_are_a_plan_keeps_its_promises(
    partitions: list[tuple[list[int], int, float]], kinds: list[str], has_racks: bool, tolerance: float
) -> None:
    racks = {number: "abc"[number % 3] if has_racks else None for number in range(1, 6)}
    places = {
        number: BalancedBroker(number, racks[number], leaves=kind == "leaves", closed=kind == "closed")
        for number, kind in enumerate(kinds, 1)
    }
    loads = [partition(number, replicas, size, rate) for number, (replicas, size, rate) in enumerate(partitions)]
    plan = plan_balance(places.values(), loads, tolerance=tolerance)
    moved = 0
    for load in loads:
        now = plan.replicas.get(load.topic_partition, load.replicas)
        new = set(now) - set(load.replicas)
        moved += len(new) * load.size_bytes
        assert len(set(now)) == len(now) == len(load.replicas)
        assert not any(places[broker_id].leaves or places[broker_id].closed for broker_id in new)
        assert load.topic_partition in plan.stuck or not any(places[broker_id].leaves for broker_id in now)
        if has_racks:
            assert len({racks[item] for item in now}) >= len({racks[item] for item in load.replicas})
        assert now == load.replicas or load.topic_partition in plan.replicas
    assert plan.moved_bytes == moved
    staying = [number for number in places if not places[number].leaves]
    if staying and not any(place.leaves for place in places.values()):
        assert max(plan.after[item].size_bytes for item in staying) <= max(
            max(plan.before[item].size_bytes for item in staying),
            sum(plan.before[item].size_bytes for item in staying) / len(staying) * (1 + tolerance),
        )


def test_what_is_even_stays() -> None:
    loads = [partition(number, [1 + number % 3, 1 + (number + 1) % 3], 100, 5.0) for number in range(9)]
    plan = plan_balance([BalancedBroker(number) for number in (1, 2, 3)], loads)
    assert (plan.replicas, plan.moved_bytes, plan.before) == ({}, 0, plan.after)


def test_leaders_alone_move_no_bytes() -> None:
    loads = [partition(number, [1, 2, 3], 100) for number in range(9)]
    plan = plan_balance([BalancedBroker(number) for number in (1, 2, 3)], loads, goals=(LEADERS,))
    assert plan.moved_bytes == 0
    assert [plan.after[number].leaders for number in (1, 2, 3)] == [3, 3, 3]


def test_leaders_go_through_a_third_broker() -> None:
    """Broker 1 leads too many, and shares no partition with broker 3, which leads none."""
    loads = [partition(0, [1, 2]), partition(1, [1, 2]), partition(2, [2, 3])]
    plan = plan_balance([BalancedBroker(number) for number in (1, 2, 3)], loads, goals=(LEADERS,))
    assert [plan.after[number].leaders for number in (1, 2, 3)] == [1, 1, 1]


def test_a_leaving_broker_without_a_successor_is_named_and_does_not_lead() -> None:
    loads = [partition(0, [1, 2, 3], 10)]
    plan = plan_balance([BalancedBroker(1, leaves=True), BalancedBroker(2), BalancedBroker(3)], loads)
    assert plan.stuck == (TopicPartition("t", 0),)
    assert plan.replicas[TopicPartition("t", 0)][-1] == 1


def test_a_broker_that_is_away_is_not_counted() -> None:
    plan = plan_balance([BalancedBroker(1), BalancedBroker(2)], [partition(0, [1, 9], 10), partition(1, [1, 9], 10)])
    assert [plan.after[number].size_bytes for number in (1, 2)] == [10, 10]
