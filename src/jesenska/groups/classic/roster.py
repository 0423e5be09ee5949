"""The groups of one shard, the times at which their deadlines must be checked, and the effects of the current
event."""

from __future__ import annotations

import heapq

from jesenska.coordination.shard import Answer, Marker, Now, OfTransaction, Say, Token, Write
from jesenska.groups.classic.group import Group, Member
from jesenska.groups.events import Response
from jesenska.groups.records import GroupRecord, OffsetRecord
from jesenska.groups.settings import GroupSettings
from jesenska.groups.writes import MemberWrite, OffsetWrite

#: How long a new member may wait for its first rebalance, in milliseconds. Kafka has the same limit.
NEW_MEMBER_TIMEOUT_MS = 300_000


class Roster:
    """The state that the two parts of a group coordinator share (`members` and `offsets`): the groups of one shard."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self._effects: list[Answer | Write | Say] = []
        self._wakes: list[tuple[int, str]] = []

    # --- effects -----------------------------------------------------------------------------------------------------

    def begin(self) -> list[Answer | Write | Say]:
        """Begins the handling of an event. Its effects are collected in the returned list."""
        self._effects = []
        return self._effects

    def answer(self, token: Token | None, response: Response) -> None:
        """Answers a request. Does nothing if `token` is None."""
        if token is not None:
            self._effects.append(Answer(token, response))

    def say(self, line: str) -> None:
        """Adds a line to the broker's log."""
        self._effects.append(Say(line))

    def write(
        self,
        group_id: str,
        records: list[OffsetRecord | GroupRecord],
        operation: MemberWrite | OffsetWrite,
        within: OfTransaction | None = None,
    ) -> None:
        self._effects.append(Write(group_id, tuple(records), operation, within))

    def mark(self, marker: Marker, operation: OffsetWrite) -> None:
        self._effects.append(Write(f"producer {marker.of.producer_id}", (), operation, marker=marker))

    # --- time --------------------------------------------------------------------------------------------------------

    def touch(self, group: Group, member: Member, now: Now) -> None:
        """Starts the member's session timeout again, after a request of the member."""
        member.deadline_ms = now.monotonic_ms + (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms)
        self.due(group, member.deadline_ms)

    def due(self, group: Group, due_ms: int | None) -> None:
        """Schedules a check of the group at this time. Code that sets an earlier deadline must call this method. If a
        deadline was moved to a later time, no call is needed: the scheduled check finds it."""
        if due_ms is not None and (group.wake_ms is None or due_ms < group.wake_ms):
            group.wake_ms = due_ms
            heapq.heappush(self._wakes, (due_ms, group.group_id))

    def next_wake_ms(self) -> int | None:
        """Returns the next time (in milliseconds of the monotonic clock) at which a group must be checked, or None."""
        return self._wakes[0][0] if self._wakes else None

    def pop_due(self, now: Now) -> Group | None:
        """Removes and returns the next group that must be checked now, or None if there is none."""
        while self._wakes and self._wakes[0][0] <= now.monotonic_ms:
            due_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is not None and group.wake_ms == due_ms:
                group.wake_ms = None
                return group
        return None
