"""Assigns the partitions of a group to its members, in the member that is the group's leader. The functions are pure:
the same members and partitions always give the same assignment.

    range                each topic by itself: consecutive partitions; if they do not divide evenly, the first members
                         get one partition more than the other members
    roundrobin           all partitions of all topics in order, dealt out to the members in order
    sticky               as even as possible, and as many partitions as possible stay with their owner
    cooperative-sticky   the same assignment; a partition that moves is taken from its old owner first, and given to
                         the new owner in the next rebalance (KIP-429)

The names of the assignors are Kafka's, so a group may have members of jesenska and of other clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jesenska.base.identifiers import TopicPartition

Shares = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as the group's leader knows it: its subscribed topics, the partitions that it owns, and the generation
    in which it got them."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)
    generation: int = -1
    group_instance_id: str | None = None


def _order(member: MemberView) -> tuple[int, str]:
    """Returns the sort key of a member: static members come first, by their instance ids, so that their order survives
    restarts."""
    return (0, member.group_instance_id) if member.group_instance_id is not None else (1, member.member_id)


def assign_range(members: Sequence[MemberView], partitions: Mapping[str, int]) -> Shares:
    shares: Shares = {member.member_id: [] for member in members}
    for topic in sorted(partitions):
        wanting = sorted((member for member in members if topic in member.topics), key=_order)
        if not wanting:
            continue
        each, more = divmod(partitions[topic], len(wanting))
        begin = 0
        for place, member in enumerate(wanting):
            count = each + (1 if place < more else 0)
            shares[member.member_id] += [TopicPartition(topic, number) for number in range(begin, begin + count)]
            begin += count
    return shares


def assign_roundrobin(members: Sequence[MemberView], partitions: Mapping[str, int]) -> Shares:
    shares: Shares = {member.member_id: [] for member in members}
    ordered = sorted(members, key=_order)
    place = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in ordered):
            continue
        for number in range(partitions[topic]):
            while topic not in ordered[place % len(ordered)].topics:
                place += 1
            shares[ordered[place % len(ordered)].member_id].append(TopicPartition(topic, number))
            place += 1
    return shares


def assign_sticky(members: Sequence[MemberView], partitions: Mapping[str, int]) -> Shares:
    """Assigns partitions in three steps. Every member keeps the partitions that it owns and subscribes to. Free
    partitions go to the members with the fewest partitions. Then partitions move from the member with the most to the
    member with the fewest, while that makes the assignment more even."""
    by_id = {member.member_id: member for member in sorted(members, key=_order)}
    everything = [TopicPartition(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])]
    owner = _previous_owners(by_id, set(everything))
    shares: Shares = {member_id: [] for member_id in by_id}
    free = []
    for key in everything:
        member_id = owner.get(key)
        if member_id is None:
            free.append(key)
        else:
            shares[member_id].append(key)
    for key in free:
        wanting = [member_id for member_id, member in by_id.items() if key.topic in member.topics]
        if wanting:
            shares[min(wanting, key=lambda member_id: len(shares[member_id]))].append(key)
    _even_out(shares, by_id)
    return {member_id: sorted(keys) for member_id, keys in shares.items()}


def _previous_owners(members: Mapping[str, MemberView], existing: set[TopicPartition]) -> dict[TopicPartition, str]:
    """Returns the member that may keep each partition. If two members claim a partition, the member with the later
    generation keeps it. If their generations are equal, neither keeps it."""
    claims: dict[TopicPartition, list[MemberView]] = {}
    for member in members.values():
        for key in member.owned:
            if key in existing and key.topic in member.topics:
                claims.setdefault(key, []).append(member)
    owner = {}
    for key, claiming in claims.items():
        latest = max(member.generation for member in claiming)
        best = [member for member in claiming if member.generation == latest]
        if len(best) == 1:
            owner[key] = best[0].member_id
    return owner


def _even_out(shares: Shares, members: Mapping[str, MemberView]) -> None:
    moved = True
    while moved:
        moved = False
        for giver in sorted(shares, key=lambda member_id: -len(shares[member_id])):
            takers = sorted(shares, key=lambda member_id: len(shares[member_id]))
            for taker in takers:
                if len(shares[giver]) - len(shares[taker]) < 2:
                    break
                # Partitions that the giving member did not own before are moved first, so that owned partitions stay.
                gift = next(
                    (
                        key
                        for key in sorted(
                            shares[giver], key=lambda key: (key in members[giver].owned, key), reverse=False
                        )
                        if key.topic in members[taker].topics
                    ),
                    None,
                )
                if gift is not None:
                    shares[giver].remove(gift)
                    shares[taker].append(gift)
                    moved = True
                    break
            if moved:
                break


def assign_cooperatively(members: Sequence[MemberView], partitions: Mapping[str, int]) -> Shares:
    """Returns the sticky assignment without the partitions that another member still owns. The owner gives these up
    now, and the next rebalance assigns them to the new owner."""
    shares = assign_sticky(members, partitions)
    owner = {key: member.member_id for member in members for key in member.owned}
    return {
        member_id: [key for key in keys if owner.get(key, member_id) == member_id] for member_id, keys in shares.items()
    }


ASSIGNORS = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}
#: Assignors with which members keep their partitions during a rebalance.
COOPERATIVE = frozenset({"cooperative-sticky"})
