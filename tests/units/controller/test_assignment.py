from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidReplicationFactorError
from jesenska.controller.plans.assignment import BrokerPlace, alternate_racks, assign_replicas


def places(text: str) -> list[BrokerPlace]:
    return [BrokerPlace(int(item.partition(":")[0]), item.partition(":")[2] or None) for item in text.split(",")]


# Assignments of Kafka 3.9.1: brokers, partitions, replication factor, start, first partition (-1: the topic is new).
KAFKAS = [
    (
        "0,1,2,3,4",
        10,
        3,
        0,
        -1,
        {
            0: [0, 1, 2],
            1: [1, 2, 3],
            2: [2, 3, 4],
            3: [3, 4, 0],
            4: [4, 0, 1],
            5: [0, 2, 3],
            6: [1, 3, 4],
            7: [2, 4, 0],
            8: [3, 0, 1],
            9: [4, 1, 2],
        },
    ),
    (
        "0,1,2,3,4",
        10,
        3,
        3,
        -1,
        {
            0: [3, 2, 4],
            1: [4, 3, 0],
            2: [0, 4, 1],
            3: [1, 0, 2],
            4: [2, 1, 3],
            5: [3, 4, 0],
            6: [4, 0, 1],
            7: [0, 1, 2],
            8: [1, 2, 3],
            9: [2, 3, 4],
        },
    ),
    ("1,5,9", 7, 2, 1, 4, {4: [9, 5], 5: [1, 9], 6: [5, 9], 7: [9, 1], 8: [1, 5], 9: [5, 1], 10: [9, 5]}),
    ("0", 3, 1, 0, -1, {0: [0], 1: [0], 2: [0]}),
    (
        "0:r1,1:r3,2:r3,3:r2,4:r2,5:r1",
        7,
        3,
        0,
        -1,
        {0: [0, 3, 1], 1: [3, 1, 5], 2: [1, 5, 4], 3: [5, 4, 2], 4: [4, 2, 0], 5: [2, 0, 3], 6: [0, 4, 2]},
    ),
    (
        "0:r1,1:r3,2:r3,3:r2,4:r2,5:r1",
        12,
        2,
        2,
        -1,
        {
            0: [1, 4],
            1: [5, 2],
            2: [4, 0],
            3: [2, 3],
            4: [0, 1],
            5: [3, 5],
            6: [1, 3],
            7: [5, 1],
            8: [4, 5],
            9: [2, 4],
            10: [0, 2],
            11: [3, 0],
        },
    ),
    (
        "0:a,1:a,2:a,3:b",
        6,
        3,
        1,
        -1,
        {0: [3, 0, 1], 1: [1, 3, 2], 2: [2, 3, 1], 3: [0, 3, 1], 4: [3, 2, 0], 5: [1, 3, 2]},
    ),
    ("0:a,1:b,2:c", 5, 3, 0, 3, {3: [0, 2, 1], 4: [1, 0, 2], 5: [2, 1, 0], 6: [0, 1, 2], 7: [1, 2, 0]}),
    (
        "6:z,1:y,2:z,9:y",
        9,
        4,
        2,
        -1,
        {
            0: [9, 2, 6, 1],
            1: [6, 9, 1, 2],
            2: [1, 6, 2, 9],
            3: [2, 1, 9, 6],
            4: [9, 6, 1, 2],
            5: [6, 1, 2, 9],
            6: [1, 2, 9, 6],
            7: [2, 9, 6, 1],
            8: [9, 2, 6, 1],
        },
    ),
]
# fmt: on


@pytest.mark.parametrize(("brokers", "partitions", "factor", "start", "first", "expected"), KAFKAS)
def test_replicas_are_placed_as_kafka_places_them(
    brokers: str, partitions: int, factor: int, start: int, first: int, expected: dict[int, list[int]]
) -> None:
    assigned = assign_replicas(
        places(brokers), partitions, factor, start_index=start, shift=start, first_partition=max(first, 0)
    )
    assert {partition: list(replicas) for partition, replicas in assigned.items()} == expected


def test_racks_are_taken_in_turn() -> None:
    assert alternate_racks({0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}) == [
        0,
        3,
        1,
        5,
        4,
        2,
    ]
    assert alternate_racks({3: "b", 1: "a", 2: "a", 0: "a"}) == [0, 3, 1, 2]


def test_racks_are_left_out_where_some_brokers_have_none() -> None:
    with_some = assign_replicas(places("0:a,1,2:b"), 3, 2, start_index=0, shift=0)
    assert with_some == assign_replicas(places("0,1,2"), 3, 2, start_index=0, shift=0)


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(
        InvalidReplicationFactorError, match=r"^Unable to replicate the partition 9 time\(s\): .* because only 1 broker"
    ):
        assign_replicas(places("0"), 1, 9, start_index=0, shift=0)


BROKERS = st.dictionaries(st.integers(0, 50), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9)


@given(BROKERS, st.booleans(), st.integers(1, 30), st.data())
def test_replicas_differ_and_leaders_and_racks_are_spread(
    racks: dict[int, str], with_racks: bool, partitions: int, data: st.DataObject
) -> None:
    brokers = [BrokerPlace(broker, rack if with_racks else None) for broker, rack in racks.items()]
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 60))
    assigned = assign_replicas(brokers, partitions, factor, start_index=start, shift=shift)
    assert list(assigned) == list(range(partitions))
    leaders = dict.fromkeys(racks, 0)
    for replicas in assigned.values():
        assert len(set(replicas)) == len(replicas) == factor
        leaders[replicas[0]] += 1
        if with_racks:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    assert max(leaders.values()) - min(leaders.values()) <= 1
