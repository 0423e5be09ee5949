"""The part of the group coordinator that handles members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and expiry of
sessions.

  join        the member waits until a new generation begins, or gets the answer of the current generation
  all joined  the generation is raised, and all members are answered; the leader gets the metadata of every member
  sync        the leader sends the assignment; when it is written, all members are answered
  heartbeat   keeps the session alive; the answer says if a rebalance is in progress
  gone        if a member leaves or its session expires, the other members must join again

Each method looks up the step for its event in the table of `states`, and carries out the step.

A member that waits for an answer does not expire. Members are written to the log only with the leader's assignment:
after a restart, the group is in the last generation that had an assignment."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.base.errors import ErrorCode
from jesenska.coordination.shard import Now
from jesenska.groups.classic.group import Group, Member, fenced
from jesenska.groups.classic.roster import Roster
from jesenska.groups.classic.states import HAPPENS, GroupEvent, Step
from jesenska.groups.events import (
    ErrorAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaving,
    Sync,
    SyncAnswer,
)
from jesenska.groups.records import GroupRecord
from jesenska.groups.writes import AssignmentWrite, EmptyGroupWrite, MemberWrite, ReplacementWrite

#: The maximum number of characters of the client id at the beginning of a member id. So the member id fits into 32,767
#: bytes, the limit of a string in the protocol.
_NAME_IN_ID_MAX = 8_000


class GroupMembers:
    """Handles the members of a shard's groups. `new_member_suffix` returns the random part of a new member id."""

    def __init__(self, roster: Roster, new_member_suffix: Callable[[], str]) -> None:
        self._roster = roster
        self._groups = roster.groups
        self._answer = roster.answer
        self._write = roster.write
        self._touch = roster.touch
        self._due = roster.due
        self._suffix = new_member_suffix

    # --- join --------------------------------------------------------------------------------------------------------

    def join(self, event: Join, now: Now) -> None:
        error = self._refuse_join(event)
        group = self._groups.get(event.group_id)
        if error is not None:
            self._answer(event.token, JoinAnswer(error, event.member_id))
            if group is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._complete_join_if_ready(group, now)
            return
        if group is None:
            group = self._groups[event.group_id] = Group(event.group_id, now)
        if not event.member_id:
            self._join_unknown(group, event, now)
        else:
            self._join_known(group, event, now)
        self._complete_join_if_ready(group, now)

    def _refuse_join(self, event: Join) -> ErrorCode | None:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if (
            not self._roster.settings.min_session_timeout_ms
            <= event.session_timeout_ms
            <= self._roster.settings.max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(event.group_id)
        if group is None:
            if event.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if event.protocol_type and event.protocols else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        happens = HAPPENS[GroupEvent.JOIN][group.state]
        if isinstance(happens, ErrorCode):
            return happens
        replaces = group.static_members.get(event.group_instance_id or "")
        if replaces is None and not self._admits(group, happens, event.member_id):
            self._expel(group, event.member_id, f"the group has {self._roster.settings.max_size} members already")
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(event.protocol_type, {name for name, _ in event.protocols}):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _admits(self, group: Group, step: Step, member_id: str) -> bool:
        """Returns True if the group has room for the member. Member ids that were sent with MEMBER_ID_REQUIRED and
        never used are not counted."""
        if step is Step.ADMIT:
            return True
        member = group.members.get(member_id)
        if step is Step.ADMIT_FIRST_JOINED:
            return (
                member is not None and member.awaiting_join is not None
            ) or group.joined_count < self._roster.settings.max_size
        return member is not None or len(group.members) < self._roster.settings.max_size

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
            self._answer(event.token, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add_and_rebalance(group, new_id, event, now)

    def _join_known(self, group: Group, event: Join, now: Now) -> None:
        if event.member_id in group.pending_members:
            if event.group_instance_id is not None:
                self._answer(event.token, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
                return
            self._add_and_rebalance(group, event.member_id, event, now)
            return
        error = fenced(group, event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            self._answer(event.token, JoinAnswer(error, event.member_id))
            return
        member = group.members[event.member_id]
        step = HAPPENS[GroupEvent.MEMBER_AGAIN][group.state]
        repeats = step is Step.REPEAT_OR_REBALANCE or (
            step is Step.REPEAT_TO_FOLLOWER_OR_REBALANCE and group.leader_id != member.member_id
        )
        if repeats and member.protocols == event.protocols:
            self._answer(event.token, self._joined(group, member))
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
        """Gives a new id to a static member that has rejoined without its id. A client that still uses the old id is
        fenced."""
        self._drop_waiting(group, member, ErrorCode.FENCED_INSTANCE_ID)
        replaces = HAPPENS[GroupEvent.STATIC_MEMBER_BACK][group.state] is Step.REPLACE_OR_REBALANCE
        old_selected = group.select_protocol() if replaces else None
        was_leader = group.leader_id == member.member_id
        old_id, old_protocols = member.member_id, member.protocols
        group.rename(member, new_id)
        self._roster.say(
            f"member {old_id} of group {group.group_id} is replaced by {new_id}: another client joined with its "
            f"group.instance.id {member.group_instance_id}"
        )
        self._refresh(group, member, event)
        self._touch(group, member, now)
        if not replaces or group.select_protocol() != old_selected:
            self._wait_in_join(group, member, event, now)
            return
        answer = self._joined(group, member, skip_assignment=was_leader)
        if was_leader and not event.can_skip_assignment:
            # The answer contains the old member id as the id of the leader. So the client does not regard itself as
            # leader: it gets its current assignment, and does not compute a new assignment.
            answer = answer._replace(leader=old_id, skip_assignment=False, members=())
        assignments = {item.member_id: item.assignment for item in group.members.values()}
        record = GroupRecord(group.group_id, group.to_value(assignments, now))
        self._write(
            group.group_id, [record], ReplacementWrite(event.token, group.group_id, old_id, old_protocols, answer)
        )

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
        self._touch(group, member, now)
        self._wait_in_join(group, member, event, now)

    def _update_and_rebalance(self, group: Group, member: Member, event: Join, now: Now) -> None:
        self._refresh(group, member, event)
        self._touch(group, member, now)
        self._wait_in_join(group, member, event, now)

    def _refresh(self, group: Group, member: Member, event: Join) -> None:
        group.set_protocols(member, event.protocols)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id, member.client_host = event.client_id, event.client_host

    def _wait_in_join(self, group: Group, member: Member, event: Join, now: Now) -> None:
        if member.awaiting_join is not None:
            # The same member has sent JoinGroup again on another connection. The older request can only be answered
            # with an error.
            self._answer(member.awaiting_join, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        group.wait_in_join(member, event.token)
        self._rebalance(group, GroupEvent.REBALANCE_NEEDED, now)

    def _rebalance(self, group: Group, event: GroupEvent, now: Now) -> None:
        """Begins a rebalance, if the event causes a rebalance in the group's state."""
        step = group.take(event, now)
        if step is Step.NOTHING:
            return
        if step is Step.CALL_AND_REFUSE_SYNCS:
            self._reset_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.sync_deadline_ms = None
        timeout_ms = group.rebalance_timeout_ms
        if step is Step.CALL_WITH_DELAY and self._roster.settings.initial_rebalance_delay_ms > 0:
            group.initial_deadline_ms = now.monotonic_ms + timeout_ms
            group.initial_delay_new_member = False
            group.rebalance_deadline_ms = min(
                now.monotonic_ms + self._roster.settings.initial_rebalance_delay_ms, group.initial_deadline_ms
            )
        else:
            group.initial_deadline_ms = None
            group.rebalance_deadline_ms = now.monotonic_ms + timeout_ms
        self._due(group, group.rebalance_deadline_ms)

    def _complete_join_if_ready(self, group: Group, now: Now) -> None:
        step = HAPPENS[GroupEvent.JOINS_COUNTED][group.state]
        if step is Step.COMPLETE_IF_ALL_HAVE_JOINED and group.initial_deadline_ms is None and group.everyone_has_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Now) -> None:
        """Ends the wait for members. Members that have not joined are removed, except static members."""
        group.initial_deadline_ms = group.rebalance_deadline_ms = None
        for member in [item for item in group.members.values() if item.awaiting_join is None and not item.is_static]:
            self._say_removed(group, member.member_id, f"it did not join again within {group.rebalance_timeout_ms} ms")
            group.remove(member.member_id)
        if not group.members:
            self._become_empty(group, now)
            return
        if not group.choose_leader_among_joined():
            # Only static members are left, and no member has joined: they remain members for one more rebalance
            # timeout.
            group.rebalance_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
            self._due(group, group.rebalance_deadline_ms)
            return
        group.generation += 1
        group.protocol = group.select_protocol()
        group.take(GroupEvent.GENERATION_BEGINS, now)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        self._due(group, group.sync_deadline_ms)
        for member in group.members.values():
            if member.awaiting_join is not None:
                self._answer(group.end_wait_in_join(member), self._joined(group, member))
                member.is_new = False
                self._touch(group, member, now)

    def _become_empty(self, group: Group, now: Now) -> None:
        group.generation += 1
        group.protocol = None
        group.leader_id = None
        group.pending_members.clear()
        group.take(GroupEvent.NOBODY_JOINED, now)
        self._write(
            group.group_id, [GroupRecord(group.group_id, group.to_value({}, now))], EmptyGroupWrite(group.group_id)
        )

    # --- sync --------------------------------------------------------------------------------------------------------

    def sync(self, event: Sync, now: Now) -> None:
        group = self._groups.get(event.group_id)
        error = self._refuse_sync(group, event)
        if error is not ErrorCode.NONE or group is None:
            self._answer(event.token, SyncAnswer(error))
            return
        member = group.members[event.member_id]
        self._touch(group, member, now)
        if HAPPENS[GroupEvent.SYNC][group.state] is Step.TELL_ASSIGNMENT:
            self._answer(
                event.token, SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
            )
            return
        if member.awaiting_sync is not None:
            self._answer(member.awaiting_sync, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        member.awaiting_sync = event.token
        if group.leader_id == member.member_id and not group.is_storing:
            self._store_assignment(group, dict(event.assignments), now)

    def _refuse_sync(self, group: Group | None, event: Sync) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = fenced(group, event.member_id, event.group_instance_id, event.generation_id)
        if error is not ErrorCode.NONE:
            return error
        if event.protocol_type is not None and event.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol_name is not None and event.protocol_name != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        happens = HAPPENS[GroupEvent.SYNC][group.state]
        return happens if isinstance(happens, ErrorCode) else ErrorCode.NONE

    def _store_assignment(self, group: Group, given: dict[str, bytes], now: Now) -> None:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        group.is_storing = True
        record = GroupRecord(group.group_id, group.to_value(assignments, now))
        self._write(group.group_id, [record], AssignmentWrite(group.group_id, group.generation))

    def _reset_sync(self, group: Group, error: ErrorCode, now: Now) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                self._answer(member.awaiting_sync, SyncAnswer(error))
                member.awaiting_sync = None
                self._touch(group, member, now)
        group.is_storing = False

    # --- heartbeat and leave -----------------------------------------------------------------------------------------

    def heartbeat(self, event: Heartbeat, now: Now) -> None:
        self._answer(event.token, ErrorAnswer(self._heartbeat(event, now)))

    def _heartbeat(self, event: Heartbeat, now: Now) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(event.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = fenced(group, event.member_id, event.group_instance_id, event.generation_id)
        if error is not ErrorCode.NONE:
            return error
        happens = HAPPENS[GroupEvent.HEARTBEAT][group.state]
        if happens is Step.LIVE or happens is ErrorCode.REBALANCE_IN_PROGRESS:
            self._touch(group, group.members[event.member_id], now)
        return happens if isinstance(happens, ErrorCode) else ErrorCode.NONE

    def leave(self, event: Leave, now: Now) -> None:
        if not event.group_id:
            self._answer(event.token, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
            return
        group = self._groups.get(event.group_id)
        before = len(group.members) if group is not None else 0
        results = tuple((item, self._leave_one(group, item, now)) for item in event.members)
        if group is not None and len(group.members) < before:
            self._after_removal(group, now)
        elif group is not None:
            self._complete_join_if_ready(group, now)
        self._answer(event.token, LeaveAnswer(ErrorCode.NONE, results))

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

    def _expel(self, group: Group, member_id: str, reason: str) -> None:
        """Removes a member that has not sent LeaveGroup, and logs the reason."""
        if member_id in group.members:
            self._say_removed(group, member_id, reason)
        self._remove_member(group, member_id)

    def _say_removed(self, group: Group, member_id: str, reason: str) -> None:
        self._roster.say(f"member {member_id} of group {group.group_id} is removed: {reason}")

    def _drop_waiting(self, group: Group, member: Member, error: ErrorCode) -> None:
        if member.awaiting_join is not None:
            self._answer(group.end_wait_in_join(member), JoinAnswer(error, member.member_id))
        if member.awaiting_sync is not None:
            self._answer(member.awaiting_sync, SyncAnswer(error))
            member.awaiting_sync = None

    def _after_removal(self, group: Group, now: Now) -> None:
        """Begins a rebalance of the remaining members, after members were removed."""
        self._rebalance(group, GroupEvent.MEMBER_GONE, now)
        self._complete_join_if_ready(group, now)

    def resign(self) -> None:
        """Answers NOT_COORDINATOR to every waiting member."""
        for group in self._groups.values():
            for member in group.members.values():
                self._drop_waiting(group, member, ErrorCode.NOT_COORDINATOR)

    # --- outcomes of writes ------------------------------------------------------------------------------------------

    def written(self, operation: MemberWrite, in_time: bool, now: Now) -> None:
        """Called when the records of a write are committed and applied: answers the waiting members."""
        group = self._groups.get(operation.group_id)
        match operation:
            case AssignmentWrite():
                if (
                    group is not None
                    and group.generation == operation.generation
                    and HAPPENS[GroupEvent.ASSIGNMENT_WRITTEN][group.state] is Step.TELL_ASSIGNMENTS
                ):
                    group.is_storing = False
                    self._tell_assignments(group, now)
            case ReplacementWrite() if in_time:
                self._answer(operation.token, operation.answer)

    def _tell_assignments(self, group: Group, now: Now) -> None:
        for member in group.members.values():
            if member.awaiting_sync is not None:
                self._answer(
                    member.awaiting_sync,
                    SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment),
                )
                member.awaiting_sync = None
                self._touch(group, member, now)

    def late(self, operation: MemberWrite, error: ErrorCode, now: Now) -> None:
        """Answers the error, because a write takes too long, or because this broker is no longer the coordinator."""
        match operation:
            case AssignmentWrite():
                self._begin_again(operation, error, now)
            case ReplacementWrite():
                self._answer(operation.token, JoinAnswer(error, ""))

    def failed(self, operation: MemberWrite, error: ErrorCode, in_time: bool, now: Now) -> None:
        """Handles a failed write, whose records are not in the log."""
        match operation:
            case AssignmentWrite() if in_time:
                self._begin_again(operation, error, now)
            case ReplacementWrite():
                self._take_back(operation)
                if in_time:
                    self._answer(operation.token, JoinAnswer(error, ""))

    def _begin_again(self, operation: AssignmentWrite, error: ErrorCode, now: Now) -> None:
        """Ends a generation whose assignment could not be stored, and begins a new rebalance."""
        group = self._groups.get(operation.group_id)
        if group is None or group.generation != operation.generation or not group.is_storing:
            return
        self._reset_sync(group, error, now)
        self._rebalance(group, GroupEvent.REBALANCE_NEEDED, now)

    def _take_back(self, operation: ReplacementWrite) -> None:
        """Gives a static member its old id and protocols again, because the write of its replacement failed. Does
        nothing if the member was replaced again during the write."""
        group = self._groups.get(operation.group_id)
        member = group.members.get(operation.answer.member_id) if group is not None else None
        if group is not None and member is not None:
            group.rename(member, operation.old_id)
            group.set_protocols(member, operation.old_protocols)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, group: Group, now: Now) -> None:
        """Handles the deadlines of a group that have been reached."""
        self._expire_members(group, now)
        is_called = HAPPENS[GroupEvent.REBALANCE_DUE][group.state] is Step.COMPLETE
        waits_for_syncs = HAPPENS[GroupEvent.SYNC_DUE][group.state] is Step.DROP_SILENT
        if is_called and _is_due(group.rebalance_deadline_ms, now):
            self._rebalance_due(group, now)
        elif waits_for_syncs and _is_due(group.sync_deadline_ms, now):
            self._sync_due(group, now)
        self._due(group, group.next_deadline_ms())

    def _expire_members(self, group: Group, now: Now) -> None:
        expired = [
            member_id for member_id, deadline_ms in group.pending_members.items() if deadline_ms <= now.monotonic_ms
        ]
        for member_id in expired:
            del group.pending_members[member_id]
        dead = [
            member.member_id
            for member in group.members.values()
            if member.deadline_ms <= now.monotonic_ms and not member.waits_for_us
        ]
        for member_id in dead:
            self._expel(group, member_id, "no heartbeat came within its session timeout")
        if dead:
            self._after_removal(group, now)
        elif expired:
            self._complete_join_if_ready(group, now)

    def _rebalance_due(self, group: Group, now: Now) -> None:
        if (
            group.initial_deadline_ms is not None
            and group.initial_delay_new_member
            and now.monotonic_ms < group.initial_deadline_ms
        ):
            # A member joined during the delay, which is extended, so that a starting group does not rebalance for each
            # member.
            group.initial_delay_new_member = False
            group.rebalance_deadline_ms = min(
                now.monotonic_ms + self._roster.settings.initial_rebalance_delay_ms, group.initial_deadline_ms
            )
            return
        self._complete_join(group, now)

    def _sync_due(self, group: Group, now: Now) -> None:
        """Removes members that have joined, but not sent SyncGroup in time (KIP-735)."""
        silent = [member.member_id for member in group.members.values() if member.awaiting_sync is None]
        group.sync_deadline_ms = None
        for member_id in silent:
            self._expel(group, member_id, f"it joined, and sent no SyncGroup within {group.rebalance_timeout_ms} ms")
        if silent:
            self._after_removal(group, now)


def _is_due(deadline_ms: int | None, now: Now) -> bool:
    return deadline_ms is not None and deadline_ms <= now.monotonic_ms
