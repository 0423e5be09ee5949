"""The groups of one shard, when each is looked at next, and what has been decided about the event in work."""

from __future__ import annotations

import heapq

from jesenska.coordination.shard import Answer, Marker, Now, OfTransaction, Token, Write
from jesenska.groups.events import Response
from jesenska.groups.group import Group, Member
from jesenska.groups.records import GroupRecord, OffsetRecord
from jesenska.groups.settings import GroupSettings
from jesenska.groups.writes import MemberWrite, OffsetWrite

#: How long a new member may wait for its first rebalance; Kafka's own limit.
NEW_MEMBER_TIMEOUT_MS = 300_000


class Roster:
    """What the members' side and the offsets' side of a coordinator share."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self._effects: list[Answer | Write] = []
        self._wakes: list[tuple[int, str]] = []

    # --- what is decided ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Answer | Write]:
        """An event is in work: what is decided about it is in the list."""
        self._effects = []
        return self._effects

    def answer(self, token: Token | None, response: Response) -> None:
        """Nothing where nobody waits."""
        if token is not None:
            self._effects.append(Answer(token, response))

    def write(
        self, group_id: str, records: list[OffsetRecord | GroupRecord], operation: MemberWrite | OffsetWrite, within: OfTransaction | None = None
    ) -> None:
        self._effects.append(Write(group_id, tuple(records), operation, within))

    def mark(self, marker: Marker, operation: OffsetWrite) -> None:
        self._effects.append(Write(f"producer {marker.of.producer_id}", (), operation, marker=marker))

    # --- time --------------------------------------------------------------------------------------------------------

    def touch(self, group: Group, member: Member, now: Now) -> None:
        """A sign of life: its session begins anew."""
        member.deadline_ms = now.monotonic_ms + (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms)
        self.due(group, member.deadline_ms)

    def due(self, group: Group, due_ms: int | None) -> None:
        """Sees to it that the group is looked at when something of it falls due. Whatever moves a deadline calls this;
        that one has moved later is found out when the group is looked at."""
        if due_ms is not None and (group.wake_ms is None or due_ms < group.wake_ms):
            group.wake_ms = due_ms
            heapq.heappush(self._wakes, (due_ms, group.group_id))

    def next_wake_ms(self) -> int | None:
        """When a group is due next; None if none is."""
        return self._wakes[0][0] if self._wakes else None

    def pop_due(self, now: Now) -> Group | None:
        """The next group that something falls due of; None if there is none."""
        while self._wakes and self._wakes[0][0] <= now.monotonic_ms:
            due_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is not None and group.wake_ms == due_ms:
                group.wake_ms = None
                return group
        return None
