"""Plans where replicas and leaders should be, from the load of each broker. This module is pure: the tools
`jesenska balance` and `jesenska decommission` read the loads, show the plan and carry it out.

    leave     every replica on a leaving broker goes to another broker
    bytes     no broker has more than (1 + tolerance) times the mean of bytes; as few bytes as possible are moved
    rates     no broker writes more than (1 + tolerance) times the mean of bytes/s: replicas of like size change places
    leaders   no broker is the preferred leader of more than (1 + tolerance) times the mean of partitions. Mostly only
              the order of replicas changes, which costs no bytes; where this is not enough, the smallest replicas move

A goal may be impossible: for example, one partition may be larger than the mean. Then the plan comes as near as it
can. A replica never goes to a broker that has one of the same partition, nor to a broker that does not take new
replicas, and the replicas of a partition are never in fewer racks than before. Racks are ignored if a broker has
none."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from jesenska.base.identifiers import TopicPartition

BYTES, RATES, LEADERS = "bytes", "rates", "leaders"
GOALS: Final = (BYTES, RATES, LEADERS)
#: The largest number of replicas for which moves are searched exhaustively, and the largest number of tried moves.
_SEARCHED_REPLICAS_MAX: Final = 40
_SEARCHED_MOVES_MAX: Final = 20_000
#: The largest number of replicas that are considered for an exchange, of the broker that writes too much and of the
#: other broker.
_OUT_MAX: Final = 50
_BACK_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class BalancedBroker:
    """A broker. A broker that `leaves` must not keep a replica; one that is `closed` keeps its replicas, and gets no
    others."""

    broker_id: int
    rack: str | None = None
    leaves: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition: its replicas (the preferred leader first), the size of one replica in bytes, and the bytes that are
    written to it per second."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    size_bytes: int = 0
    bytes_per_second: float = 0.0


class BrokerLoad(NamedTuple):
    """The replicas, their bytes and rate (bytes/s), and the number of preferred leaders of a broker."""

    replicas: int
    size_bytes: int
    bytes_per_second: float
    leaders: int


class BalancePlan(NamedTuple):
    """The new replicas of the partitions that change, the loads of the brokers before and after, the bytes that are
    copied, and the partitions that must stay on a leaving broker, because no other broker can have them."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    before: Mapping[int, BrokerLoad]
    after: Mapping[int, BrokerLoad]
    moved_bytes: int
    stuck: tuple[TopicPartition, ...]


def plan_balance(
    brokers: Iterable[BalancedBroker],
    partitions: Iterable[PartitionLoad],
    *,
    tolerance: float = 0.05,
    goals: Collection[str] = GOALS,
) -> BalancePlan:
    """Plans a balance with some of the goals in `GOALS`. The replicas of leaving brokers are always moved. With the
    goal of leaders alone, no bytes are moved but theirs."""
    state = _Placement(list(brokers), list(partitions), tolerance)
    before = state.loads()
    stuck = state.leave()
    if BYTES in goals:
        state.level_bytes()
    if RATES in goals:
        state.level_rates()
    if LEADERS in goals:
        state.level_leaders(moves_bytes=BYTES in goals)
    state.let_leavers_not_lead()
    changed = {
        load.topic_partition: tuple(state.replicas[index])
        for index, load in enumerate(state.partitions)
        if tuple(state.replicas[index]) != load.replicas
    }
    return BalancePlan(changed, before, state.loads(), state.moved_bytes(), tuple(stuck))


class _Placement:
    """The replicas while they are being planned. A partition is named by its index in `partitions`."""

    def __init__(
        self, brokers: Sequence[BalancedBroker], partitions: Sequence[PartitionLoad], tolerance: float
    ) -> None:
        self.brokers = {broker.broker_id: broker for broker in sorted(brokers, key=lambda item: item.broker_id)}
        self.partitions = partitions
        self.tolerance = tolerance
        self.replicas = [list(load.replicas) for load in partitions]
        self.staying = [broker.broker_id for broker in self.brokers.values() if not broker.leaves]
        self.open = [broker_id for broker_id in self.staying if not self.brokers[broker_id].closed]
        racks = {broker_id: broker.rack for broker_id, broker in self.brokers.items()}
        self._racks = racks if all(rack is not None for rack in racks.values()) else None
        self.size = dict.fromkeys(self.brokers, 0)
        self.rate = dict.fromkeys(self.brokers, 0.0)
        self.on: dict[int, set[int]] = {broker_id: set() for broker_id in self.brokers}
        for index, load in enumerate(partitions):
            for broker_id in load.replicas:
                self._add(broker_id, index)

    def loads(self) -> dict[int, BrokerLoad]:
        leaders = dict.fromkeys(self.brokers, 0)
        for replicas in self.replicas:
            if replicas and replicas[0] in leaders:
                leaders[replicas[0]] += 1
        return {
            broker_id: BrokerLoad(
                len(self.on[broker_id]),
                self.size[broker_id],
                sum(self.partitions[index].bytes_per_second for index in sorted(self.on[broker_id])),
                leaders[broker_id],
            )
            for broker_id in self.brokers
        }

    def moved_bytes(self) -> int:
        return sum(
            load.size_bytes * len(set(self.replicas[index]) - set(load.replicas))
            for index, load in enumerate(self.partitions)
        )

    # --- one move ----------------------------------------------------------------------------------------------------

    def _add(self, broker_id: int, index: int) -> None:
        if broker_id in self.on:  # a broker that is away is not counted
            self.on[broker_id].add(index)
            self.size[broker_id] += self.partitions[index].size_bytes
            self.rate[broker_id] += self.partitions[index].bytes_per_second

    def _remove(self, broker_id: int, index: int) -> None:
        if broker_id in self.on:
            self.on[broker_id].remove(index)
            self.size[broker_id] -= self.partitions[index].size_bytes
            self.rate[broker_id] -= self.partitions[index].bytes_per_second

    def move(self, index: int, source: int, target: int) -> None:
        replicas = self.replicas[index]
        replicas[replicas.index(source)] = target
        self._remove(source, index)
        self._add(target, index)

    def can_move(self, index: int, source: int, target: int) -> bool:
        replicas = self.replicas[index]
        if target in replicas:
            return False
        if self._racks is None:
            return True
        before = {self._racks.get(broker_id) for broker_id in self.partitions[index].replicas}
        after = {self._racks.get(target if broker_id == source else broker_id) for broker_id in replicas}
        return len(after) >= len(before)

    # --- goals -------------------------------------------------------------------------------------------------------

    def leave(self) -> list[TopicPartition]:
        """Moves all replicas away from the leaving brokers. Returns the partitions that have to stay."""
        stuck = []
        leaving = [
            (index, broker_id)
            for broker_id in self.brokers
            if self.brokers[broker_id].leaves
            for index in self.on[broker_id]
        ]
        leaving.sort(key=lambda item: (-self.partitions[item[0]].size_bytes, item))
        for index, source in leaving:
            target = min(
                (broker_id for broker_id in self.open if self.can_move(index, source, broker_id)),
                key=lambda broker_id: (self.size[broker_id], self.rate[broker_id], len(self.on[broker_id]), broker_id),
                default=None,
            )
            if target is None:
                stuck.append(self.partitions[index].topic_partition)
            else:
                self.move(index, source, target)
        return stuck

    def level_bytes(self) -> None:
        """Moves replicas away from brokers with too many bytes, until none has too many or no move helps."""
        mean = self._mean(self.size)
        limit = mean * (1 + self.tolerance)
        if sum(len(on) for on in self.on.values()) <= _SEARCHED_REPLICAS_MAX:
            found = _Search(self, limit).best()
            for index, giver, target in found or ():
                self.move(index, giver, target)
            if found is not None:
                return
        full: set[int] = set()
        while True:
            source = max(
                (broker_id for broker_id in self.staying if broker_id not in full),
                key=lambda broker_id: self.size[broker_id],
                default=None,
            )
            if source is None or self.size[source] <= limit:
                return
            move = self._best_move(source, limit)
            if move is None:
                full.add(source)
            else:
                self.move(move[0], source, move[1])

    def _best_move(self, source: int, limit: float) -> tuple[int, int] | None:
        """Returns the replica to move away from a broker with too many bytes, and its target: the largest replica that
        is not larger than the excess, or else the smallest one."""
        excess = self.size[source] - limit
        sizes = sorted(self.on[source], key=lambda index: (-self.partitions[index].size_bytes, index))
        fitting = [index for index in sizes if 0 < self.partitions[index].size_bytes <= excess]
        larger = [index for index in reversed(sizes) if self.partitions[index].size_bytes > excess]
        for index in (*fitting, *larger):
            size = self.partitions[index].size_bytes
            for target in sorted(self.open, key=lambda broker_id: (self.size[broker_id], self.rate[broker_id])):
                if self.size[target] + size >= self.size[source] or (
                    self.size[target] + size > limit and index in fitting
                ):
                    break
                if self.can_move(index, source, target):
                    return index, target
        return None

    def level_rates(self) -> None:
        """Lets replicas of similar size change places, until no broker writes too much or no change helps. No broker
        gets too many bytes by this."""
        limit = self._mean(self.rate) * (1 + self.tolerance)
        if limit <= 0:
            return
        bytes_limit = max([self._mean(self.size) * (1 + self.tolerance), *(self.size[item] for item in self.staying)])
        full: set[int] = set()
        while True:
            source = max(
                (broker_id for broker_id in self.open if broker_id not in full),
                key=lambda broker_id: self.rate[broker_id],
                default=None,
            )
            if source is None or self.rate[source] <= limit:
                return
            change = self._best_exchange(source, bytes_limit)
            if change is None:
                full.add(source)
                continue
            index, target, other = change
            self.move(index, source, target)
            if other is not None:
                self.move(other, target, source)

    def _best_exchange(self, source: int, bytes_limit: float) -> tuple[int, int, int | None] | None:
        """Returns a replica of a broker that writes too much, a target for it, and the replica that comes back, or
        None in its place."""
        excess = self.rate[source] - self._mean(self.rate)
        target = min(
            (broker_id for broker_id in self.open if broker_id != source),
            key=lambda broker_id: self.rate[broker_id],
            default=None,
        )
        if target is None:
            return None
        best: tuple[float, int, tuple[int, int, int | None]] | None = None
        back = sorted(self.on[target], key=lambda index: self.partitions[index].size_bytes)[:_BACK_MAX]
        for index in sorted(self.on[source], key=lambda index: -self.partitions[index].bytes_per_second)[:_OUT_MAX]:
            load = self.partitions[index]
            for other in (None, *back):
                size = 0 if other is None else self.partitions[other].size_bytes
                rate = 0.0 if other is None else self.partitions[other].bytes_per_second
                gain = load.bytes_per_second - rate
                if not 0 < gain <= excess or self.rate[target] + gain >= self.rate[source]:
                    continue
                if max(self.size[target] + load.size_bytes - size, self.size[source] + size - load.size_bytes) > (
                    bytes_limit
                ):
                    continue
                if not self.can_move(index, source, target) or (
                    other is not None and (other == index or not self.can_move(other, target, source))
                ):
                    continue
                found = (abs(excess - gain), load.size_bytes + size, (index, target, other))
                if best is None or found[:2] < best[:2]:
                    best = found
        return None if best is None else best[2]

    def level_leaders(self, *, moves_bytes: bool) -> None:
        """Changes the order of replicas, until no broker is the preferred leader of too many partitions. A broker with
        too many gives one to a broker with fewer, through other brokers if it must. With `moves_bytes`, small replicas
        move if there is no such broker."""
        self.let_leavers_not_lead()
        led: dict[int, set[int]] = {broker_id: set() for broker_id in self.brokers}
        for index, replicas in enumerate(self.replicas):
            if replicas and replicas[0] in led:
                led[replicas[0]].add(index)
        count = sum(len(of_broker) for of_broker in led.values())
        mean = count / max(1, len(self.staying))
        limit = max(-(-count // max(1, len(self.staying))), int(mean * (1 + self.tolerance)))
        full: set[int] = set()
        while True:
            source = max(
                (item for item in self.staying if item not in full), key=lambda item: len(led[item]), default=None
            )
            if source is None or len(led[source]) <= limit:
                return
            path = self._path_to_fewer(source, led)
            if path is None and not (moves_bytes and self._give_smallest(source, led)):
                full.add(source)
            for index, giver, taker in path or ():
                replicas = self.replicas[index]
                replicas.remove(taker)
                replicas.insert(0, taker)
                led[giver].remove(index)
                led[taker].add(index)

    def let_leavers_not_lead(self) -> None:
        """Puts replicas that have to stay on a leaving broker behind the others."""
        for replicas in self.replicas:
            replicas.sort(key=lambda broker_id: broker_id in self.brokers and self.brokers[broker_id].leaves)

    def _give_smallest(self, source: int, led: Mapping[int, set[int]]) -> bool:
        """Moves the smallest replica of a preferred leader to the broker that leads the fewest partitions. Returns
        False if there is none that can be moved."""
        limit = self._mean(self.size) * (1 + self.tolerance)
        for target in sorted(self.open, key=lambda item: (len(led[item]), item)):
            if len(led[target]) + 1 >= len(led[source]):
                return False
            for index in sorted(led[source], key=lambda item: (self.partitions[item].size_bytes, item)):
                if self.size[target] + self.partitions[index].size_bytes > limit:
                    break
                if self.can_move(index, source, target):
                    self.move(index, source, target)
                    led[source].remove(index)
                    led[target].add(index)
                    return True
        return False

    def _path_to_fewer(self, source: int, led: Mapping[int, set[int]]) -> list[tuple[int, int, int]] | None:
        """Returns the shortest chain of changes of the preferred leader, from a broker to one that leads at least two
        partitions less: partitions, each with its old and its new preferred leader."""
        came: dict[int, tuple[int, int]] = {}
        waiting = deque([source])
        while waiting:
            giver = waiting.popleft()
            for index in sorted(led[giver]):
                for taker in self.replicas[index][1:]:
                    if taker in came or taker == source or taker not in led or self.brokers[taker].leaves:
                        continue
                    came[taker] = (index, giver)
                    if len(led[taker]) + 1 < len(led[source]):
                        return list(_back(came, source, taker))
                    waiting.append(taker)
        return None

    def _mean(self, of_brokers: Mapping[int, float]) -> float:
        """Returns the mean of the brokers that stay, for all replicas that they have."""
        return sum(of_brokers[broker_id] for broker_id in self.staying) / max(1, len(self.staying))


class _Search:
    """Looks for the moves with the fewest bytes after which no broker has more bytes than a limit, by trying all moves
    of small placements. Gives up after many tries."""

    def __init__(self, placement: _Placement, limit: float) -> None:
        self._placement = placement
        self._limit = limit
        self._path: list[tuple[int, int, int]] = []
        self._best: list[tuple[int, int, int]] | None = None
        self._best_bytes = 0
        self._tried = 0

    def best(self) -> list[tuple[int, int, int]] | None:
        """Returns the moves: partitions, each with its old and its new broker. Returns None if there are none. The
        placement is as before."""
        self._descend(0)
        return self._best

    def _descend(self, moved_bytes: int) -> None:
        placement = self._placement
        source = max(placement.staying, key=lambda broker_id: placement.size[broker_id], default=None)
        if source is None or placement.size[source] <= self._limit:
            if self._best is None or moved_bytes < self._best_bytes:
                self._best, self._best_bytes = list(self._path), moved_bytes
            return
        excess = sum(max(0.0, placement.size[broker_id] - self._limit) for broker_id in placement.staying)
        if self._best is not None and moved_bytes + excess >= self._best_bytes:
            return
        for index in sorted(placement.on[source], key=lambda index: placement.partitions[index].size_bytes):
            size = placement.partitions[index].size_bytes
            if not size or any(index == other and source == at for other, _, at in self._path):
                continue
            for target in placement.open:
                self._tried += 1
                if self._tried > _SEARCHED_MOVES_MAX:
                    return
                if target == source or not placement.can_move(index, source, target):
                    continue
                placement.move(index, source, target)
                self._path.append((index, source, target))
                self._descend(moved_bytes + size)
                self._path.pop()
                placement.move(index, target, source)


def _back(came: Mapping[int, tuple[int, int]], source: int, taker: int) -> Iterator[tuple[int, int, int]]:
    while taker != source:
        index, giver = came[taker]
        yield index, giver, taker
        taker = giver
