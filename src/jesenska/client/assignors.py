"""How the leader of a group shares partitions among its members. Pure: the same members and partitions give the same
shares everywhere.

    range                each topic by itself: consecutive partitions, the first members get one more where it does not
                         divide
    roundrobin           all partitions of all topics in order, dealt out to the members in order
    sticky               as even as possible, and as much as possible stays where it was
    cooperative-sticky   the same shares; what moves is taken from its old owner first and given to the new one in the
                         next rebalance (KIP-429)

Names are Kafka's, so a group may hold members of ours and of other clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jesenska.base.identifiers import TopicPartition

Shares = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as the leader sees it: what it wants, what it says that it owns and since which generation."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)
    generation: int = -1
    group_instance_id: str | None = None


def _order(member: MemberView) -> tuple[int, str]:
    """Static members first, by their instance ids, so that their order survives restarts."""
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
    """Everyone keeps what it owns and wants; what is free goes to whoever has least; then from the fullest to the
    emptiest while that helps."""
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
    """Who may keep what: of two that claim a partition the one of the later generation; of two of the same generation
    neither."""
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
                # What the giver did not own before is given away first, so that what was owned stays.
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
    """The sticky shares without what still belongs to somebody else: its owner gives it up now, and the rebalance that
    follows hands it on."""
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
#: Assignors with which members keep what they own while they rebalance.
COOPERATIVE = frozenset({"cooperative-sticky"})
