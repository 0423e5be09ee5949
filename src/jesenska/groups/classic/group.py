"""One group of the classic protocol: its members, its generation, its offsets, and its state (`states`). This module
has the data of one group, and the methods that change the data; `coordinator` calls these methods."""

from __future__ import annotations

from collections import Counter

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Now, Token
from jesenska.groups.classic.states import HAPPENS, LEADS_TO, GroupEvent, GroupState, Step
from jesenska.groups.events import CommittedOffset, JoinedMember
from jesenska.groups.records import GroupMetadataValue, GroupMetadataValueMember


class Member:
    """A member of a group: its ids, its protocols, and its request that waits for an answer."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        self.awaiting_sync: Token | None = None
        #: The time at which the member's session ends if the member sends no request. The deadline does not apply
        #: while the member waits for an answer of the coordinator.
        self.deadline_ms = 0
        #: True if the member has not been in a rebalance yet. It may wait longer for the first rebalance.
        self.is_new = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def waits_for_us(self) -> bool:
        """Returns True while the member waits for an answer of the coordinator, so that its session cannot end. The
        first wait of a new member is an exception: it has a time limit."""
        return self.awaiting_sync is not None or (self.awaiting_join is not None and not self.is_new)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class Group:
    """A group. `generation` is raised at the end of each rebalance. The number of members that wait in JoinGroup, and
    the number of members with each protocol, are counted here. So a member's request costs the same in a group of two
    members as in a group of thousands. Both numbers change only through the methods of this class."""

    __slots__ = (
        "_protocol_counts",
        "generation",
        "group_id",
        "initial_deadline_ms",
        "initial_delay_new_member",
        "is_storing",
        "joined_count",
        "leader_id",
        "members",
        "offsets",
        "open_offsets",
        "pending_commits",
        "pending_members",
        "pending_within",
        "protocol",
        "protocol_type",
        "rebalance_deadline_ms",
        "state",
        "state_since_ms",
        "static_members",
        "sync_deadline_ms",
        "wake_ms",
    )

    def __init__(self, group_id: str, now: Now) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        #: The wall-clock time of the last change of state, as in the group's record.
        self.state_since_ms = now.wall_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        #: The number of members that wait for the answer to JoinGroup.
        self.joined_count = 0
        #: The number of members that support each protocol, by its name.
        self._protocol_counts: Counter[str] = Counter()
        #: Member ids that were answered with MEMBER_ID_REQUIRED and have not been used yet, with their deadlines.
        self.pending_members: dict[str, int] = {}
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        #: The partitions of the offset commits that are being written, by the number of the write. The group cannot
        #: expire while a commit is being written.
        self.pending_commits: dict[int, tuple[TopicPartition, ...]] = {}
        #: The offsets committed in open transactions, by producer id. The value is None if the partition's offset was
        #: later committed outside of the transaction: the offset of the transaction then has no effect.
        self.open_offsets: dict[int, dict[TopicPartition, CommittedOffset | None]] = {}
        #: The numbers of the `pending_commits` that belong to a transaction.
        self.pending_within: set[int] = set()
        #: True while the assignment of this generation is being written.
        self.is_storing = False
        #: The time at which a rebalance continues without members that have not sent JoinGroup.
        self.rebalance_deadline_ms: int | None = None
        #: Set during the delay of a new group's first rebalance (group.initial.rebalance.delay.ms): the time at which
        #: the delay ends at the latest, and True if a member has joined since the delay was last extended.
        self.initial_deadline_ms: int | None = None
        self.initial_delay_new_member = False
        #: The time at which members that have joined, but not sent SyncGroup, are removed.
        self.sync_deadline_ms: int | None = None
        #: The time of the next check of this group's deadlines; None if no check is scheduled.
        self.wake_ms: int | None = None

    # --- states ------------------------------------------------------------------------------------------------------

    def take(self, event: GroupEvent, now: Now) -> Step:
        """Returns the step for an event (`states.HAPPENS`), and changes the group's state as the step requires."""
        step = HAPPENS[event][self.state]
        assert isinstance(step, Step), f"group {self.group_id}: {event.name} is a request"
        assert step is not Step.CANNOT_HAPPEN, f"group {self.group_id}: {event.name} in {self.state}"
        if step in LEADS_TO:
            self.state = LEADS_TO[step]
            # A group whose removal failed keeps the time of the removal attempt.
            if step is not Step.BRING_BACK:
                self.state_since_ms = now.wall_ms
        return step

    def unstable(self) -> set[TopicPartition]:
        """Returns the partitions whose offset may change soon, because a transaction that commits an offset for them
        is not decided."""
        keys = {key for offsets in self.open_offsets.values() for key in offsets}
        return keys.union(*(self.pending_commits[serial] for serial in self.pending_within))

    def next_deadline_ms(self) -> int | None:
        """Returns the group's next deadline in milliseconds of the monotonic clock, or None if there is none."""
        due = [
            *self.pending_members.values(),
            *(member.deadline_ms for member in self.members.values() if not member.waits_for_us),
        ]
        if self.rebalance_deadline_ms is not None and HAPPENS[GroupEvent.REBALANCE_DUE][self.state] is not Step.NOTHING:
            due.append(self.rebalance_deadline_ms)
        if self.sync_deadline_ms is not None and HAPPENS[GroupEvent.SYNC_DUE][self.state] is not Step.NOTHING:
            due.append(self.sync_deadline_ms)
        return min(due, default=None)

    def stored(self, value: GroupMetadataValue, now: Now) -> None:
        """Applies the group's record when the record is in the log. If the record belongs to the current generation,
        the members get their assignments, and the group becomes STABLE. The record is ignored if it belongs to an
        older generation, or if a rebalance has begun since the write."""
        if value.generation != self.generation or self.take(GroupEvent.ASSIGNMENT_LOGGED, now) is Step.NOTHING:
            return
        for item in value.members:
            member = self.members.get(item.member_id)
            if member is not None:
                member.assignment = bytes(item.assignment)

    # --- members -----------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._protocol_counts.update({name for name, _ in member.protocols})
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.awaiting_join is None, "its answer is lost"
        self._protocol_counts.subtract({name for name, _ in member.protocols})
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: Member, new_id: str) -> None:
        """Gives a new id to a static member that has rejoined. The member keeps its position in the group."""
        old_id = member.member_id
        self.members = {(new_id if key == old_id else key): value for key, value in self.members.items()}
        member.member_id = new_id
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._protocol_counts.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._protocol_counts.update({name for name, _ in protocols})

    def wait_in_join(self, member: Member, token: Token) -> None:
        """Stores the token of the member's JoinGroup, which will be answered later. An older JoinGroup of the member
        must have been answered."""
        if member.awaiting_join is None:
            self.joined_count += 1
        member.awaiting_join = token

    def end_wait_in_join(self, member: Member) -> Token:
        """Returns the token of the member's JoinGroup, which must be answered now."""
        token, member.awaiting_join = member.awaiting_join, None
        assert token is not None, "nobody waits in a join"
        self.joined_count -= 1
        return token

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def everyone_has_joined(self) -> bool:
        return not self.pending_members and self.joined_count == len(self.members)

    def choose_leader_among_joined(self) -> bool:
        """Keeps the leader if it has joined, else chooses the first member that has joined. Returns False if no member
        has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    # --- protocols ---------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """Returns True if a member with these protocols may join the group. As in Kafka, the earlier protocols of the
        same member are also counted: the only member of a group cannot change all its protocols without leaving
        first."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Returns the protocol that every member supports and that most members prefer."""
        common = set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        best = max(votes.values())
        return min(name for name, count in votes.items() if count == best)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    # --- the group's record ------------------------------------------------------------------------------------------

    def to_value(self, assignments: dict[str, bytes], now: Now) -> GroupMetadataValue:
        """Returns the value of the group's record, with these assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=now.wall_ms,
            members=[
                GroupMetadataValueMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    @staticmethod
    def from_value(group_id: str, value: GroupMetadataValue, now: Now) -> Group:
        """Creates a group from the value of its record. Each member's session begins now."""
        group = Group(group_id, now)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        for item in value.members:
            rebalance_timeout_ms = item.rebalance_timeout if item.rebalance_timeout >= 0 else item.session_timeout
            member = Member(
                item.member_id,
                item.group_instance_id,
                item.client_id,
                item.client_host,
                rebalance_timeout_ms,
                item.session_timeout,
                ((value.protocol or "", bytes(item.subscription)),),
                bytes(item.assignment),
            )
            member.deadline_ms = now.monotonic_ms + item.session_timeout
            group.add(member)
        group.leader_id = value.leader
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else now.wall_ms
        return group


def fenced(group: Group, member_id: str, instance_id: str | None, generation_id: int | None = None) -> ErrorCode:
    """Checks a member's request. Returns NONE if the group has this member, and is in this generation if
    `generation_id` is given. Otherwise returns the error."""
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation_id in (None, group.generation) else ErrorCode.ILLEGAL_GENERATION
