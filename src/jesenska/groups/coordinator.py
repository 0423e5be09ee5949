"""The group coordinator of the classic protocol. One shard has the groups of one partition of `__consumer_offsets`.
This module does no input or output.

  handle(event, now) -> answers and writes

State that must survive a restart (a group's assignment, an offset) is returned as a `Write`, and changes only in
`replay`: when the write is committed, and again when a log is read. The request that waits for the write is answered
after the write is committed. `states` has the table of steps by state. `members` and `offsets` carry out the steps, on
the groups in `roster`.

`now` is the time of the event by two clocks. Sessions, rebalances and delays use the monotonic clock, so that setting
the wall clock does not change them. Records contain the time of the wall clock, by which committed offsets expire.

A write that is not committed within `offsets.commit.timeout.ms` is answered COORDINATOR_NOT_AVAILABLE, as Kafka does
for a write that times out. The write may still be committed later, so nothing is undone: then its records are applied,
without a second answer.

Offsets of a transaction wait with their group (`Group.open_offsets`) until the transaction's end marker is in the log
of this shard. `replay_end` then makes them valid or drops them, also when a log is read.

Not supported: the newer protocols (KIP-848, share groups and streams groups)."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import (
    Answer,
    Committed,
    Failed,
    Late,
    Now,
    OfTransaction,
    Resign,
    Say,
    Tick,
    Write,
    client_error,
)
from jesenska.groups.classic.group import Group
from jesenska.groups.classic.members import GroupMembers
from jesenska.groups.classic.roster import Roster
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    EndOffsets,
    Event,
    Heartbeat,
    Join,
    Leave,
    Sync,
    TopicDeleted,
)
from jesenska.groups.offsets.group_offsets import GroupOffsets
from jesenska.groups.records import GroupRecord, OffsetCommitValue, OffsetRecord
from jesenska.groups.settings import GroupSettings
from jesenska.groups.writes import CommitWrite, ForgetWrite, MarkerWrite, RemovalWrite


class GroupCoordinator:
    """One shard of the group coordinator. `new_member_suffix` returns the random part of a new member id."""

    def __init__(self, settings: GroupSettings, new_member_suffix: Callable[[], str]) -> None:
        self.roster = Roster(settings)
        self.groups = self.roster.groups
        self.members = GroupMembers(self.roster, new_member_suffix)
        self.offsets = GroupOffsets(self.roster)
        self._is_loading = True
        #: The ids of groups with offsets in open transactions, by producer id.
        self._open: dict[int, set[str]] = {}
        self._next_expiry_check_ms: int | None = None

    def handle(self, event: Event, now: Now) -> list[Answer | Write | Say]:
        """Handles an event, and returns its effects: answers, writes, and lines for the log."""
        effects = self.roster.begin()
        match event:
            case Heartbeat():
                self.members.heartbeat(event, now)
            case CommitOffsets():
                self.offsets.commit(event, now)
            case Committed() | Failed() | Late():
                self._after_write(event, now)
            case Join():
                self.members.join(event, now)
            case Sync():
                self.members.sync(event, now)
            case Leave():
                self.members.leave(event, now)
            case EndOffsets():
                self.offsets.end(event)
            case DeleteGroup():
                self.offsets.delete_group(event, now)
            case DeleteOffsets():
                self.offsets.delete_offsets(event)
            case TopicDeleted():
                self.offsets.topic_deleted(event)
            case Tick():
                self._tick(now)
            case Resign():
                self.members.resign()
        return effects

    def _after_write(self, event: Committed | Failed | Late, now: Now) -> None:
        operation = event.operation
        if isinstance(operation, (CommitWrite, MarkerWrite, ForgetWrite, RemovalWrite)):
            match event:
                case Committed():
                    self.offsets.written(operation, event.in_time)
                case Failed():
                    self.offsets.failed(operation, client_error(event.error), event.in_time, now)
                case Late():
                    self.offsets.late(operation, event.error)
            return
        match event:
            case Committed():
                self.members.written(operation, event.in_time, now)
            case Failed():
                self.members.failed(operation, client_error(event.error), event.in_time, now)
            case Late():
                self.members.late(operation, event.error, now)

    # --- time --------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `Tick` in milliseconds of the monotonic clock, or None if there is no
        deadline."""
        wake_ms, check_ms = self.roster.next_wake_ms(), self._next_expiry_check_ms
        if wake_ms is None or check_ms is None:
            return check_ms if wake_ms is None else wake_ms
        return min(wake_ms, check_ms)

    def _tick(self, now: Now) -> None:
        while (group := self.roster.pop_due(now)) is not None:
            self.members.tick(group, now)
        if self._next_expiry_check_ms is not None and self._next_expiry_check_ms <= now.monotonic_ms:
            self._check_expiry_later(now)
            self.offsets.expire(now)

    def _check_expiry_later(self, now: Now) -> None:
        self._next_expiry_check_ms = now.monotonic_ms + self.roster.settings.offsets_retention_check_interval_ms

    # --- applying records --------------------------------------------------------------------------------------------

    def replay(self, record: OffsetRecord | GroupRecord, now: Now) -> None:
        """Applies a record of the log, in order: when the log is read, and when a record of this coordinator is
        committed."""
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, now)
        elif record.value is None:
            self.groups.pop(record.group, None)
        else:
            group = self.groups.get(record.group)
            if group is not None and not self._is_loading:
                group.stored(record.value, now)
                return
            self.groups[record.group] = Group.from_value(record.group, record.value, now)
            if group is not None:
                self.groups[record.group].offsets = group.offsets
                self.groups[record.group].open_offsets = group.open_offsets

    def _replay_offset(self, record: OffsetRecord, now: Now) -> None:
        group, value = self.groups.get(record.group), record.value
        key = TopicPartition(record.topic, record.partition)
        if value is None:
            if group is not None:
                group.offsets.pop(key, None)
            return
        if group is None:
            group = self.groups[record.group] = Group(record.group, now)
        for waiting in group.open_offsets.values():
            if key in waiting:
                waiting[key] = None
        group.offsets[key] = _offset_of(value)

    def replay_within(
        self, record: OffsetRecord | GroupRecord, of: OfTransaction, now: Now, *, counts: bool = True
    ) -> None:
        """Applies an offset that becomes valid when its transaction is committed. Other records are never part of a
        transaction."""
        if not isinstance(record, OffsetRecord) or record.value is None:
            return
        group = self.groups.get(record.group)
        if group is None:
            group = self.groups[record.group] = Group(record.group, now)
        self._open.setdefault(of.producer_id, set()).add(record.group)
        waiting = group.open_offsets.setdefault(of.producer_id, {})
        waiting[TopicPartition(record.topic, record.partition)] = _offset_of(record.value) if counts else None

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        """Applies the end of a producer's transaction: its offsets become valid, or are dropped."""
        for group_id in self._open.pop(producer_id, ()):
            group = self.groups.get(group_id)
            waiting = {} if group is None else group.open_offsets.pop(producer_id, {})
            if group is None or not commits:
                continue
            group.offsets.update((key, value) for key, value in waiting.items() if value is not None)

    def finish_replay(self, now: Now) -> None:
        """Called when the log has been read. Removes groups that have no members, offsets or protocol type, and starts
        the timers."""
        self._is_loading = False
        for group_id in [
            key
            for key, group in self.groups.items()
            if not group.members and not group.offsets and not group.open_offsets and group.protocol_type is None
        ]:
            del self.groups[group_id]
        self._check_expiry_later(now)
        for group in self.groups.values():
            self.roster.due(group, group.next_deadline_ms())


def _offset_of(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
    )
