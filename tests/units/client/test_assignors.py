from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.client.membership.assignors import (
    ASSIGNORS,
    MemberView,
    Shares,
    assign_cooperatively,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    owned_of,
)
from tests.profiles import examples

TOPICS = ["a", "b", "c"]


def member(name: str, *topics: str, owned: Shares | None = None, generation: int = -1) -> MemberView:
    return MemberView(name, frozenset(topics or TOPICS), frozenset((owned or {}).get(name, ())), generation)


def text(shares: Shares) -> dict[str, list[str]]:
    return {name: sorted(map(str, keys)) for name, keys in shares.items()}


def test_range_shares_each_topic_by_itself() -> None:
    shares = assign_range([member("m2", "a", "b"), member("m1", "a", "b")], {"a": 3, "b": 3})
    assert text(shares) == {"m1": ["a-0", "a-1", "b-0", "b-1"], "m2": ["a-2", "b-2"]}


def test_roundrobin_deals_over_all_topics_and_passes_who_does_not_want() -> None:
    shares = assign_roundrobin([member("m1", "a", "b"), member("m2", "a", "b")], {"a": 3, "b": 3})
    assert text(shares) == {"m1": ["a-0", "a-2", "b-1"], "m2": ["a-1", "b-0", "b-2"]}
    shares = assign_roundrobin(
        [member("m1", "a"), member("m2", "a", "b"), member("m3", "a", "b", "c")], {"a": 1, "b": 2, "c": 3}
    )
    assert text(shares) == {"m1": ["a-0"], "m2": ["b-0"], "m3": ["b-1", "c-0", "c-1", "c-2"]}


def test_sticky_moves_no_more_than_it_must() -> None:
    before = assign_sticky([member("m1"), member("m2")], {"a": 6})
    after = assign_sticky(
        [member(name, owned=before, generation=1) for name in ("m1", "m2")] + [member("m3")], {"a": 6}
    )
    assert all(len(keys) == 2 for keys in after.values())
    assert all(set(after[name]) <= set(before[name]) for name in before)


def test_of_two_that_claim_a_partition_the_later_generation_keeps_it() -> None:
    key = TopicPartition("a", 0)
    old = MemberView("m1", frozenset("a"), frozenset({key}), 3)
    new = MemberView("m2", frozenset("a"), frozenset({key}), 4)
    assert assign_sticky([old, new], {"a": 1})["m2"] == [key]


def test_cooperative_sharing_gives_nothing_that_somebody_else_still_owns() -> None:
    before = assign_sticky([member("m1")], {"a": 4})
    members = [member("m1", owned=before, generation=1), member("m2")]
    first = assign_cooperatively(members, {"a": 4})
    assert len(first["m1"]) == 2
    assert first["m2"] == []
    second = assign_cooperatively([member("m1", owned=first, generation=2), member("m2", generation=2)], {"a": 4})
    assert len(second["m1"]) == len(second["m2"]) == 2


members_strategy = st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)


@pytest.mark.parametrize("name", sorted(set(ASSIGNORS) - {"cooperative-sticky"}))
@given(wants=members_strategy, counts=st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS}))
@settings(max_examples=examples(0.6))
def test_every_partition_that_somebody_wants_has_exactly_one_owner_who_wants_it(
    name: str, wants: list[frozenset[str]], counts: dict[str, int]
) -> None:
    members = [MemberView(f"m{place}", topics) for place, topics in enumerate(wants)]
    shares = ASSIGNORS[name](members, counts)
    owned = [key for keys in shares.values() for key in keys]
    wanted = {topic for topics in wants for topic in topics}
    assert sorted(owned) == sorted(TopicPartition(topic, number) for topic in wanted for number in range(counts[topic]))
    for item in members:
        assert all(key.topic in item.topics for key in shares[item.member_id])


@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6), count=st.integers(1, 12))
@settings(max_examples=examples(0.6))
def test_sticky_shares_stay_even_and_cooperation_ends_in_one_more_round(sizes: list[int], count: int) -> None:
    owned: Shares = {}
    for generation, size in enumerate(sizes):
        names = [f"m{place}" for place in range(size)]
        for _ in range(2):
            members = [MemberView(name, frozenset("a"), frozenset(owned.get(name, ())), generation) for name in names]
            owned = assign_cooperatively(members, {"a": count})
        sizes_now = [len(owned[name]) for name in names]
        assert sum(sizes_now) == count
        assert max(sizes_now) - min(sizes_now) <= 1


def test_subscriptions_and_assignments_come_back_as_they_were() -> None:
    owned = [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("a", 1)]
    found = decode_subscription(encode_subscription(["b", "a"], owned, 7))
    assert (found.topics, sorted(owned_of(found)), found.generation_id) == (["a", "b"], sorted(owned), 7)
    assert decode_assignment(encode_assignment(owned)) == sorted(owned)
    assert decode_assignment(b"") == []


@given(noise=st.binary(max_size=60))
def test_bytes_that_are_no_subscription_raise_only_malformed_message_error(noise: bytes) -> None:
    for read in (decode_subscription, decode_assignment):
        try:
            read(noise)
        except MalformedMessageError:
            pass
