"""Chooses the replica that a consumer reads from (KIP-392), if `replica.selector.class` names the selector by racks.
This module does no input or output.

  the consumer names no rack        the leader
  the leader is in the rack         the leader
  followers are in the rack         the follower with the largest log end offset, among followers that consumers may
                                    read at the offset. If several followers have this offset, the follower that had
                                    the whole log most recently, and then the follower with the highest id
  no such follower in the rack      the leader
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jesenska.replication.replicas import Readable


def nearest_follower(
    leader: int, followers: Sequence[Readable], rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """Returns the id of the follower that a consumer in `rack` should read from; None for the leader. `rack_of`
    returns the rack of a broker; None if the consumer cannot reach that broker."""
    if not rack or rack_of(leader) == rack:
        return None
    near = [follower for follower in followers if rack_of(follower.broker_id) == rack]
    return max(near, key=_worth).broker_id if near else None


def _worth(follower: Readable) -> tuple[int, int, int]:
    return follower.log_end_offset, follower.caught_up_at_ms, follower.broker_id
