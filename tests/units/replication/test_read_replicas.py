"""Which replica a consumer reads from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.replication.leader.read_replicas import nearest_follower
from jesenska.replication.replicas import Readable, Replicas

_LEADER = 1
_RACKS = ["", "a", "b", "c"]
_followers = st.lists(
    st.builds(Readable, st.integers(2, 6), st.integers(0, 3), st.integers(-1, 2)),
    unique_by=lambda follower: follower.broker_id,
    max_size=5,
)


@given(st.sampled_from(_RACKS), _followers, st.dictionaries(st.integers(1, 6), st.sampled_from([None, *_RACKS])))
def test_a_consumer_is_sent_to_the_best_follower_of_its_rack_where_the_leader_is_not_in_it(
    rack: str, followers: list[Readable], racks: dict[int, str | None]
) -> None:
    found = nearest_follower(_LEADER, followers, rack, racks.get)
    near = [follower for follower in followers if racks.get(follower.broker_id) == rack]
    if not rack or racks.get(_LEADER) == rack or not near:
        assert found is None
        return
    (chosen,) = [follower for follower in near if follower.broker_id == found]
    for other in near:
        assert (other.log_end_offset, other.caught_up_at_ms, other.broker_id) <= (
            chosen.log_end_offset,
            chosen.caught_up_at_ms,
            chosen.broker_id,
        )


def _leading(isr: tuple[int, ...] = (1, 2, 3)) -> Replicas:
    replicas = Replicas(TopicPartition("t", 0), _LEADER, (1, 2, 3), 1, 100)
    assert replicas.led_by(_LEADER, 0, isr, 0, 50, 0)
    return replicas


def _readable(replicas: Replicas, offset: int) -> list[int]:
    return [follower.broker_id for follower in replicas.readable_from(offset)]


def test_a_follower_is_read_from_its_log_start_to_its_log_end() -> None:
    replicas = _leading()
    replicas.follower_fetched(2, 40, 50, 10, 0, log_start_offset=20)
    replicas.follower_fetched(3, 30, 50, 10, 0, log_start_offset=0)
    found = {offset: _readable(replicas, offset) for offset in (-1, 0, 19, 20, 30, 31, 40, 41)}
    assert found == {-1: [], 0: [3], 19: [3], 20: [2, 3], 30: [2, 3], 31: [2], 40: [2], 41: []}
    replicas.follower_fetched(2, 45, 50, 10, 0, log_start_offset=35)
    assert [_readable(replicas, offset) for offset in (34, 35, 45)] == [[], [2], [2]]


def test_nobody_reads_from_a_follower_that_is_not_in_sync_or_has_not_fetched() -> None:
    replicas = _leading((1, 2))
    assert _readable(replicas, 0) == []
    for follower in (2, 3):
        replicas.follower_fetched(follower, 40, 50, 50, 0, log_start_offset=0)
    assert _readable(replicas, 0) == [2]
    assert replicas.isr_written((1, 2, 3), 0, 1)
    assert _readable(replicas, 0) == [2, 3]
    replicas.led_by(2, 1, (1, 2, 3), 2, 50, 0)
    assert _readable(replicas, 0) == []
