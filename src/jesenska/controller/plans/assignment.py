"""Assigns the replicas of new partitions to brokers, as Kafka does.

Without racks: the first replicas of successive partitions are assigned to successive brokers, beginning with a
starting broker. The other replicas of a partition are on the brokers that follow the first replica's broker at a
distance. The distance grows by one when all brokers have had a first replica. So the followers of one broker's
partitions are spread over all other brokers.

    brokers 0..4, start 0, shift 0      partition 0: 0 1 2    1: 1 2 3    ...    5: 0 2 3    6: 1 3 4

With racks: brokers are put in an order that alternates between the racks. A broker is skipped while its rack has a
replica of the partition and another rack has no replica. If only some brokers have a rack, racks are ignored.

The caller chooses the starting broker at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jesenska.base.errors import InvalidReplicationFactorError

Assignment = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, order=True)
class BrokerPlace:
    """A broker that can have replicas, with its rack."""

    broker_id: int
    rack: str | None = None


def assign_replicas(
    brokers: Iterable[BrokerPlace],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas of `partitions` partitions, numbered from `first_partition`. The preferred leader is first.
    Raises InvalidReplicationFactorError if there are fewer brokers than replicas."""
    places = sorted(brokers)
    if replication_factor > len(places):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached "
            f"because only {len(places)} broker(s) are registered."
        )
    if all(place.rack is not None for place in places):
        return _with_racks(places, partitions, replication_factor, start_index, shift, first_partition)
    ids = [place.broker_id for place in places]
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start_index) % len(ids)
        followers = (ids[_follower_index(first, shift, number, len(ids))] for number in range(replication_factor - 1))
        assigned[partition] = (ids[first], *followers)
    return assigned


def _with_racks(
    places: Sequence[BrokerPlace],
    partitions: int,
    replication_factor: int,
    start_index: int,
    shift: int,
    first_partition: int,
) -> dict[int, tuple[int, ...]]:
    rack_of = {place.broker_id: str(place.rack) for place in places}
    racks = len(set(rack_of.values()))
    ids = alternate_racks(rack_of)
    count = len(ids)
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        replicas = [ids[first]]
        used_racks = {rack_of[ids[first]]}
        step = 0
        while len(replicas) < replication_factor:
            candidate = ids[_follower_index(first, shift * racks, step, count)]
            step += 1
            rack_is_taken = rack_of[candidate] in used_racks and len(used_racks) < racks
            if not rack_is_taken and candidate not in replicas:
                replicas.append(candidate)
                used_racks.add(rack_of[candidate])
        assigned[partition] = tuple(replicas)
    return assigned


def alternate_racks(rack_of: Mapping[int, str]) -> list[int]:
    """Returns the broker ids in an order that takes one broker of each rack in turn, racks sorted by name and brokers
    by id."""
    waiting: dict[str, list[int]] = {}
    for broker_id in sorted(rack_of):
        waiting.setdefault(rack_of[broker_id], []).append(broker_id)
    columns = [waiting[rack] for rack in sorted(waiting)]
    depth = max(len(column) for column in columns)
    return [column[row] for row in range(depth) for column in columns if row < len(column)]


def _follower_index(first: int, shift: int, number: int, count: int) -> int:
    return (first + 1 + (shift + number) % (count - 1)) % count
