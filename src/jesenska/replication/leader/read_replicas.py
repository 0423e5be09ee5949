"""Chooses the replica for a consumer (KIP-392), if `replica.selector.class` names the selector by racks.

    the consumer names no rack       the leader
    the leader is in its rack        the leader
    followers are in its rack        among the followers that may be read at the offset: the one with the largest log
                                     end offset; if several have it, the one that had the whole log last; if several
                                     still, the one with the highest id
    else                             the leader

A decider."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jesenska.replication.replicas import Readable


def nearest_follower(
    leader: int, followers: Sequence[Readable], rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """Returns the follower that a consumer in `rack` is to read from; None for the leader. `rack_of` returns the rack
    of a broker that the consumer can reach."""
    if not rack or rack_of(leader) == rack:
        return None
    near = [follower for follower in followers if rack_of(follower.broker_id) == rack]
    return max(near, key=_worth).broker_id if near else None


def _worth(follower: Readable) -> tuple[int, int, int]:
    return follower.log_end_offset, follower.caught_up_at_ms, follower.broker_id
