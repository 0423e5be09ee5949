"""The group coordinator of the classic protocol: a decider. One instance keeps the groups of one partition of `__consumer_offsets`.

    handle(event, now) -> effects

It is a replicated state machine: what must survive (a group's assignment, an offset) leaves as an `Append`, takes effect when `Appended` comes back,
and only then is answered. `replay` rebuilds the state from the records after a restart. It knows no clock, no network and no log.

    event          state                    what happens
    Join           any with members         the member waits; PREPARING_REBALANCE if it is not that already
                   STABLE, nothing new      answered at once with the generation as it is
    all joined     PREPARING_REBALANCE      generation + 1, all are answered, the leader with everybody's metadata; COMPLETING_REBALANCE
    Sync (leader)  COMPLETING_REBALANCE     the assignment is appended; when it is committed: STABLE, all are answered
    Heartbeat      PREPARING_REBALANCE      REBALANCE_IN_PROGRESS: come and join
    Leave, expiry  with members             the member goes; PREPARING_REBALANCE for the others, EMPTY if there are none
    CommitOffsets  as the member's epoch    the offsets are appended; answered when they are committed

Times: `now` is both clocks at the moment of the event. Sessions, rebalances and delays are measured by the monotonic one, so that setting the wall
clock changes none of them; records carry the wall clock's time, and committed offsets expire by it. `next_deadline_ms` says when the next `Tick` is
due. A member that waits for an answer of ours (join, sync) does not expire.

An append that is not committed within `offsets.commit.timeout.ms` is answered COORDINATOR_NOT_AVAILABLE (what Kafka makes of REQUEST_TIMED_OUT for a client of
a group). It may still be committed, so nothing is undone: its records take effect if it is, without a second answer.

Leaves out: the newer protocols (KIP-848, share and streams groups), transactional offset commits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.events import (
    Answer,
    Append,
    Appended,
    AppendFailed,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    Effect,
    ErrorAnswer,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaving,
    Now,
    PartitionsAnswer,
    Resign,
    Sync,
    SyncAnswer,
    Tick,
    Token,
    TopicDeleted,
    once,
)
from jesenska.groups.group import Group, GroupState, Member, fenced
from jesenska.groups.offsets import GroupOffsets
from jesenska.groups.records import GroupRecord, KeyValue, OffsetRecord, group_record
from jesenska.groups.settings import GroupSettings

#: How long a new member may wait for its first rebalance; Kafka's own limit.
NEW_MEMBER_TIMEOUT_MS = 300_000
#: Characters of a client's name that its member id begins with: the whole id must fit the 32,767 bytes of a string on the wire.
_NAME_IN_ID_MAX = 8_000


class _Operation:
    """An append under way and what to do with its outcome. `late` answers whoever waits when the time is up, and says so to the other two."""

    __slots__ = ("committed", "failed", "late")

    def __init__(self, committed: Callable[[Now], None], failed: Callable[[ErrorCode, Now], None], late: Callable[[ErrorCode, Now], None]) -> None:
        self.committed = committed
        self.failed = failed
        self.late = late


class GroupCoordinator:
    """`new_member_suffix` gives the random part of member ids."""

    def __init__(self, settings: GroupSettings, new_member_suffix: Callable[[], str]) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets(settings, self.groups, self)
        self._suffix = new_member_suffix
        self._operations: dict[int, _Operation] = {}
        self._next_operation = 0
        #: When appends are too late, with their operations, in order; those that have ended stay until their turn.
        self._timeouts: deque[tuple[int, int]] = deque()
        self._effects: list[Effect] = []
        self._next_expiry_check_ms: int | None = None
        self._wakes: list[tuple[int, str]] = []

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """What is to be done about the event."""
        effects: list[Effect] = []
        self._effects = effects
        match event:
            case Heartbeat():
                self.answer(event.token, ErrorAnswer(self._heartbeat(event, now)))
            case Join():
                self._join(event, now)
            case Sync():
                self._sync(event, now)
            case Leave():
                self._leave(event, now)
            case CommitOffsets():
                self.offsets.commit(event, now)
            case DeleteGroup():
                self.offsets.delete_group(event, now)
            case DeleteOffsets():
                self.offsets.delete_offsets(event, now)
            case TopicDeleted():
                self.offsets.topic_deleted(event, now)
            case Tick():
                self._tick(now)
            case Resign():
                self._resign(now)
            case Appended() | AppendFailed():
                operation = self._operations.pop(event.operation, None)
                if operation is None:
                    return effects
                if isinstance(event, Appended):
                    operation.committed(now)
                else:
                    operation.failed(_client_error(event.error), now)
        return effects

    # --- effects ------------------------------------------------------------------------------------------------------------------------

    def answer(self, token: Token, response: JoinAnswer | SyncAnswer | ErrorAnswer | LeaveAnswer | PartitionsAnswer) -> None:
        self._effects.append(Answer(token, response))

    def append(
        self,
        group_id: str,
        records: Iterable[KeyValue],
        now: Now,
        committed: Callable[[Now], None],
        failed: Callable[[ErrorCode, Now], None],
        late: Callable[[ErrorCode, Now], None],
    ) -> int:
        """Has records appended; one of `committed` and `failed` is called with the outcome, before that perhaps `late`. The operation's number."""
        self._next_operation += 1
        self._operations[self._next_operation] = _Operation(committed, failed, late)
        self._timeouts.append((now.monotonic_ms + self.settings.offsets_commit_timeout_ms, self._next_operation))
        self._effects.append(Append(self._next_operation, group_id, tuple(records)))
        return self._next_operation

    # --- join ---------------------------------------------------------------------------------------------------------------------------

    def _join(self, event: Join, now: Now) -> None:
        error = self._refuse_join(event)
        group = self.groups.get(event.group_id)
        if error is not None:
            self.answer(event.token, JoinAnswer(error, event.member_id))
            if group is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._complete_join_if_ready(group, now)
            return
        if group is None:
            group = self.groups[event.group_id] = Group(event.group_id, now)
        if not event.member_id:
            self._join_unknown(group, event, now)
        else:
            self._join_known(group, event, now)
        self._complete_join_if_ready(group, now)

    def _refuse_join(self, event: Join) -> ErrorCode | None:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self.settings.min_session_timeout_ms <= event.session_timeout_ms <= self.settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self.groups.get(event.group_id)
        if group is None:
            if event.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if event.protocol_type and event.protocols else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.is_in(GroupState.DEAD):
            # Its deletion waits for the disk; the member comes again and finds either the group or none.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        replaces = group.static_members.get(event.group_instance_id or "")
        if replaces is None and not self._has_room_for(group, event.member_id):
            self._remove_member(group, event.member_id)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(event.protocol_type, {name for name, _ in event.protocols}):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _has_room_for(self, group: Group, member_id: str) -> bool:
        """Ids that were given out and never used take no place. During a rebalance those who come first have one, so that a group that has become too
        large loses its last members."""
        member = group.members.get(member_id)
        if group.is_in(GroupState.EMPTY):
            return True
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return (member is not None and member.awaiting_join is not None) or group.joined_count < self.settings.max_size
        return member is not None or len(group.members) < self.settings.max_size

    def _join_unknown(self, group: Group, event: Join, now: Now) -> None:
        name = event.group_instance_id if event.group_instance_id is not None else event.client_id
        new_id = f"{name[:_NAME_IN_ID_MAX]}-{self._suffix()}"
        if event.group_instance_id is not None:
            old_id = group.static_members.get(event.group_instance_id)
            if old_id is not None:
                self._replace_static(group, group.members[old_id], new_id, event, now)
            else:
                self._add_and_rebalance(group, new_id, event, now)
        elif event.needs_known_member:
            group.pending_members[new_id] = due_ms = now.monotonic_ms + event.session_timeout_ms
            self._due(group, due_ms)
            self.answer(event.token, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add_and_rebalance(group, new_id, event, now)

    def _join_known(self, group: Group, event: Join, now: Now) -> None:
        if event.member_id in group.pending_members:
            if event.group_instance_id is not None:
                self.answer(event.token, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
                return
            self._add_and_rebalance(group, event.member_id, event, now)
            return
        error = fenced(group, event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            self.answer(event.token, JoinAnswer(error, event.member_id))
            return
        member = group.members[event.member_id]
        unchanged = member.protocols == event.protocols
        if group.is_in(GroupState.COMPLETING_REBALANCE) and unchanged:
            # Its answer was lost: it gets the same one again.
            self.answer(event.token, self._joined(group, member))
        elif group.is_in(GroupState.STABLE) and unchanged and group.leader_id != member.member_id:
            self.answer(event.token, self._joined(group, member))
        else:
            self._update_and_rebalance(group, member, event, now)

    def _joined(self, group: Group, member: Member, *, skip_assignment: bool = False) -> JoinAnswer:
        leads = group.leader_id == member.member_id
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader_id or "",
            skip_assignment,
            group.joined_members() if leads else (),
        )

    def _replace_static(self, group: Group, member: Member, new_id: str, event: Join, now: Now) -> None:
        """A static member came back without its id: whoever still uses the old one is fenced."""
        self._drop_waiting(group, member, ErrorCode.FENCED_INSTANCE_ID)
        old_selected = group.select_protocol() if group.is_in(GroupState.STABLE) else None
        was_leader = group.leader_id == member.member_id
        old_id, old_protocols = member.member_id, member.protocols
        group.rename(member, new_id)
        self._refresh(group, member, event)
        self.touch(group, member, now)
        if not group.is_in(GroupState.STABLE) or group.select_protocol() != old_selected:
            self._wait_in_join(group, member, event, now)
            return
        answer = self._joined(group, member, skip_assignment=was_leader)
        if was_leader and not event.can_skip_assignment:
            # Told its old id as the leader's, it does not take itself for the leader: it gets its assignment, and nobody assigns anew.
            answer = replace(answer, leader=old_id, skip_assignment=False, members=())
        assignments = {item.member_id: item.assignment for item in group.members.values()}
        reply = once(event.token, self.answer)

        def committed(_: Now) -> None:
            reply(answer)

        def failed(error: ErrorCode, _: Now) -> None:
            if member.member_id == new_id:
                group.rename(member, old_id)
                group.set_protocols(member, old_protocols)
            reply(JoinAnswer(error, ""))

        def late(error: ErrorCode, _: Now) -> None:
            reply(JoinAnswer(error, ""))

        self.append(group.group_id, [group_record(group.group_id, group.to_value(assignments, now))], now, committed, failed, late)

    def _add_and_rebalance(self, group: Group, member_id: str, event: Join, now: Now) -> None:
        member = Member(
            member_id,
            event.group_instance_id,
            event.client_id,
            event.client_host,
            event.rebalance_timeout_ms,
            event.session_timeout_ms,
            event.protocols,
        )
        member.is_new = True
        if not group.members:
            group.protocol_type = event.protocol_type
        group.add(member)
        group.initial_delay_new_member = True
        self.touch(group, member, now)
        self._wait_in_join(group, member, event, now)

    def _update_and_rebalance(self, group: Group, member: Member, event: Join, now: Now) -> None:
        self._refresh(group, member, event)
        self.touch(group, member, now)
        self._wait_in_join(group, member, event, now)

    def _refresh(self, group: Group, member: Member, event: Join) -> None:
        group.set_protocols(member, event.protocols)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id, member.client_host = event.client_id, event.client_host

    def _wait_in_join(self, group: Group, member: Member, event: Join, now: Now) -> None:
        if member.awaiting_join is not None:
            # The same member asks again on another connection: the older request can only be answered with an error.
            self.answer(member.awaiting_join, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        group.wait_in_join(member, event.token)
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            self._prepare_rebalance(group, now)

    def _prepare_rebalance(self, group: Group, now: Now) -> None:
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self._reset_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        was_empty = group.is_in(GroupState.EMPTY)
        group.move_to(GroupState.PREPARING_REBALANCE, now)
        group.sync_deadline_ms = None
        timeout_ms = group.rebalance_timeout_ms
        if was_empty and self.settings.initial_rebalance_delay_ms > 0:
            group.initial_deadline_ms = now.monotonic_ms + timeout_ms
            group.initial_delay_new_member = False
            group.rebalance_deadline_ms = min(now.monotonic_ms + self.settings.initial_rebalance_delay_ms, group.initial_deadline_ms)
        else:
            group.initial_deadline_ms = None
            group.rebalance_deadline_ms = now.monotonic_ms + timeout_ms
        self._due(group, group.rebalance_deadline_ms)

    def _complete_join_if_ready(self, group: Group, now: Now) -> None:
        if not group.is_in(GroupState.PREPARING_REBALANCE) or group.initial_deadline_ms is not None:
            return
        if group.everyone_has_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Now) -> None:
        """Ends the wait for members: those that have not come are dropped, static ones are kept."""
        group.initial_deadline_ms = group.rebalance_deadline_ms = None
        for member in [item for item in group.members.values() if item.awaiting_join is None and not item.is_static]:
            group.remove(member.member_id)
        if not group.members:
            self._become_empty(group, now)
            return
        if not group.choose_leader_among_joined():
            # Only static members that are silent: they keep their places for one more time-out.
            group.rebalance_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
            self._due(group, group.rebalance_deadline_ms)
            return
        group.generation += 1
        group.protocol = group.select_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE, now)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        self._due(group, group.sync_deadline_ms)
        for member in group.members.values():
            if member.awaiting_join is not None:
                self.answer(group.end_wait_in_join(member), self._joined(group, member))
                member.is_new = False
                self.touch(group, member, now)

    def _become_empty(self, group: Group, now: Now) -> None:
        group.generation += 1
        group.protocol = None
        group.leader_id = None
        group.pending_members.clear()
        group.move_to(GroupState.EMPTY, now)
        value = group.to_value({}, now)
        self.append(group.group_id, [group_record(group.group_id, value)], now, lambda _: None, _nobody_waits, _nobody_waits)

    # --- sync ---------------------------------------------------------------------------------------------------------------------------

    def _sync(self, event: Sync, now: Now) -> None:
        group = self.groups.get(event.group_id)
        error = self._refuse_sync(group, event)
        if error is not ErrorCode.NONE or group is None:
            self.answer(event.token, SyncAnswer(error))
            return
        member = group.members[event.member_id]
        self.touch(group, member, now)
        if group.is_in(GroupState.STABLE):
            self.answer(event.token, SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
            return
        if member.awaiting_sync is not None:
            self.answer(member.awaiting_sync, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        member.awaiting_sync = event.token
        if group.leader_id == member.member_id and group.storing is None:
            self._store_assignment(group, dict(event.assignments), now)

    def _refuse_sync(self, group: Group | None, event: Sync) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = fenced(group, event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type is not None and event.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol_name is not None and event.protocol_name != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.is_in(GroupState.EMPTY, GroupState.DEAD):
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _store_assignment(self, group: Group, given: dict[str, bytes], now: Now) -> None:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation

        def still_awaited() -> bool:
            return group.is_in(GroupState.COMPLETING_REBALANCE) and group.generation == generation

        def committed(at: Now) -> None:
            if group.storing != number:
                return
            group.storing = None
            if not still_awaited():
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.move_to(GroupState.STABLE, at)
            for member in group.members.values():
                if member.awaiting_sync is not None:
                    self.answer(member.awaiting_sync, SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
                    member.awaiting_sync = None
                    self.touch(group, member, at)

        def failed(error: ErrorCode, at: Now) -> None:
            if group.storing != number:
                return
            group.storing = None
            if not still_awaited():
                return
            self._reset_sync(group, error, at)
            self._prepare_rebalance(group, at)

        record = group_record(group.group_id, group.to_value(assignments, now))
        group.storing = number = self.append(group.group_id, [record], now, committed, failed, failed)

    def _reset_sync(self, group: Group, error: ErrorCode, now: Now) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                self.answer(member.awaiting_sync, SyncAnswer(error))
                member.awaiting_sync = None
                self.touch(group, member, now)
        group.storing = None

    # --- heartbeat and leave ------------------------------------------------------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat, now: Now) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(event.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = fenced(group, event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.is_in(GroupState.EMPTY, GroupState.DEAD):
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.touch(group, group.members[event.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.is_in(GroupState.PREPARING_REBALANCE) else ErrorCode.NONE

    def _leave(self, event: Leave, now: Now) -> None:
        if not event.group_id:
            self.answer(event.token, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
            return
        group = self.groups.get(event.group_id)
        before = len(group.members) if group is not None else 0
        results = tuple((item, self._leave_one(group, item, now)) for item in event.members)
        if group is not None and len(group.members) < before:
            self._after_removal(group, now)
        elif group is not None:
            self._complete_join_if_ready(group, now)
        self.answer(event.token, LeaveAnswer(ErrorCode.NONE, results))

    def _leave_one(self, group: Group | None, item: Leaving, now: Now) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = item.member_id
        if item.group_instance_id is not None and not member_id:
            found = group.static_members.get(item.group_instance_id)
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in group.pending_members:
            del group.pending_members[member_id]
            return ErrorCode.NONE
        error = fenced(group, member_id, item.group_instance_id)
        if error is ErrorCode.NONE:
            self._remove_member(group, member_id)
        return error

    def _remove_member(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._drop_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(member_id)

    def _drop_waiting(self, group: Group, member: Member, error: ErrorCode) -> None:
        if member.awaiting_join is not None:
            self.answer(group.end_wait_in_join(member), JoinAnswer(error, member.member_id))
        if member.awaiting_sync is not None:
            self.answer(member.awaiting_sync, SyncAnswer(error))
            member.awaiting_sync = None

    def _after_removal(self, group: Group, now: Now) -> None:
        """Members have gone: the others share anew."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now)
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.initial_deadline_ms is None and group.everyone_has_joined:
            self._complete_join(group, now)

    def _resign(self, now: Now) -> None:
        for operation in self._operations.values():
            operation.late(ErrorCode.NOT_COORDINATOR, now)
        for group in self.groups.values():
            for member in group.members.values():
                self._drop_waiting(group, member, ErrorCode.NOT_COORDINATOR)

    # --- time ---------------------------------------------------------------------------------------------------------------------------

    def touch(self, group: Group, member: Member, now: Now) -> None:
        """A sign of life: its session begins anew."""
        member.deadline_ms = now.monotonic_ms + (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms)
        self._due(group, member.deadline_ms)

    def _due(self, group: Group, due_ms: int | None) -> None:
        """Sees to it that the group is looked at when something of it falls due. Whatever moves a deadline calls this; that one has moved later is found
        out when the group is looked at."""
        if due_ms is not None and (group.wake_ms is None or due_ms < group.wake_ms):
            group.wake_ms = due_ms
            heapq.heappush(self._wakes, (due_ms, group.group_id))

    def next_deadline_ms(self) -> int | None:
        """When a `Tick` is due next, by the monotonic clock; None if nothing waits for time."""
        timeouts = self._timeouts
        while timeouts and timeouts[0][1] not in self._operations:
            timeouts.popleft()
        due = [self._wakes[0][0]] if self._wakes else []
        if timeouts:
            due.append(timeouts[0][0])
        if self._next_expiry_check_ms is not None:
            due.append(self._next_expiry_check_ms)
        return min(due, default=None)

    def _tick(self, now: Now) -> None:
        while self._timeouts and self._timeouts[0][0] <= now.monotonic_ms:
            late = self._operations.get(self._timeouts.popleft()[1])
            if late is not None:
                late.late(ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
        while self._wakes and self._wakes[0][0] <= now.monotonic_ms:
            due_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is None or group.wake_ms != due_ms:
                continue
            group.wake_ms = None
            self._expire_members(group, now)
            if group.is_in(GroupState.PREPARING_REBALANCE) and group.rebalance_deadline_ms is not None and group.rebalance_deadline_ms <= now.monotonic_ms:
                self._rebalance_due(group, now)
            elif group.is_in(GroupState.COMPLETING_REBALANCE) and group.sync_deadline_ms is not None and group.sync_deadline_ms <= now.monotonic_ms:
                self._sync_due(group, now)
            self._due(group, group.next_deadline_ms())
        if self._next_expiry_check_ms is None:
            self._next_expiry_check_ms = now.monotonic_ms + self.settings.offsets_retention_check_interval_ms
        elif self._next_expiry_check_ms <= now.monotonic_ms:
            self._next_expiry_check_ms = now.monotonic_ms + self.settings.offsets_retention_check_interval_ms
            self.offsets.expire(now)

    def _expire_members(self, group: Group, now: Now) -> None:
        expired = [member_id for member_id, deadline_ms in group.pending_members.items() if deadline_ms <= now.monotonic_ms]
        for member_id in expired:
            del group.pending_members[member_id]
        dead = [member.member_id for member in group.members.values() if member.deadline_ms <= now.monotonic_ms and not member.waits_for_us]
        for member_id in dead:
            self._remove_member(group, member_id)
        if dead:
            self._after_removal(group, now)
        elif expired:
            self._complete_join_if_ready(group, now)

    def _rebalance_due(self, group: Group, now: Now) -> None:
        if group.initial_deadline_ms is not None and group.initial_delay_new_member and now.monotonic_ms < group.initial_deadline_ms:
            # Someone came in during the delay: a little longer, so that a group that starts does not rebalance for each member.
            group.initial_delay_new_member = False
            group.rebalance_deadline_ms = min(now.monotonic_ms + self.settings.initial_rebalance_delay_ms, group.initial_deadline_ms)
            return
        self._complete_join(group, now)

    def _sync_due(self, group: Group, now: Now) -> None:
        """Members that joined and never synced are taken for dead (KIP-735's pending sync)."""
        silent = [member.member_id for member in group.members.values() if member.awaiting_sync is None]
        group.sync_deadline_ms = None
        for member_id in silent:
            self._remove_member(group, member_id)
        if silent:
            self._after_removal(group, now)

    # --- replay -------------------------------------------------------------------------------------------------------------------------

    def replay(self, record: OffsetRecord | GroupRecord, now: Now) -> None:
        """Takes in a record of the log; called in its order before anything is handled."""
        if isinstance(record, OffsetRecord):
            group = self.groups.get(record.group)
            key = TopicPartition(record.topic, record.partition)
            if record.value is None:
                if group is not None:
                    group.offsets.pop(key, None)
                return
            if group is None:
                group = self.groups[record.group] = Group(record.group, now)
            value = record.value
            group.offsets[key] = CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp)
        elif record.value is None:
            self.groups.pop(record.group, None)
        else:
            before = self.groups.get(record.group)
            group = self.groups[record.group] = Group.from_value(record.group, record.value, now)
            if before is not None:
                group.offsets = before.offsets

    def finish_replay(self, now: Now) -> None:
        """The log is read: groups that neither have members nor keep anything are forgotten, time begins to run."""
        for group_id in [key for key, group in self.groups.items() if not group.members and not group.offsets and group.protocol_type is None]:
            del self.groups[group_id]
        self._next_expiry_check_ms = now.monotonic_ms + self.settings.offsets_retention_check_interval_ms
        for group in self.groups.values():
            self._due(group, group.next_deadline_ms())


def _nobody_waits(error: ErrorCode, now: Now) -> None:
    """What an append that nobody waits for makes of a failure."""


def _client_error(error: ErrorCode) -> ErrorCode:
    """What a failed append of ours means to a client of the group."""
    if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
