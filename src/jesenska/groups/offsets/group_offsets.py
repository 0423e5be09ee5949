"""The part of the group coordinator that handles committed offsets: it commits, deletes and expires offsets, and
removes groups that have no members and no other offsets.

  commit   the offsets are appended to the log. They become valid, and the request is answered, when they are committed
           in the log. A group that has members accepts offsets only from its members. The exception are offsets of a
           branch, a topic that began as a copy of another topic (controller.plans.branches). Any client may commit
           offsets of a branch, if the group has no offset for these partitions and no member subscribes to the branch
  delete   offsets are deleted by request, with their topic, or with their group: tombstones are appended first
  within   an offset of a transaction waits for the transaction's end marker. Until then the earlier offset is valid,
           and a request for stable offsets must be repeated. The producer epoch fences such a commit, so it is
           accepted without a member id, and during a rebalance
  expire   offsets of an empty group expire some time after the group became empty. Offsets of topics to which no
           member of a stable group subscribes expire some time after their commit. A commit may request its own time
           of expiry. A group is removed with its last offset
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Now, Token
from jesenska.groups.classic.group import Group, fenced
from jesenska.groups.classic.roster import Roster
from jesenska.groups.classic.states import HAPPENS, GroupEvent, Step
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    EndOffsets,
    ErrorAnswer,
    PartitionsAnswer,
    TopicDeleted,
)
from jesenska.groups.records import GroupRecord, OffsetCommitValue, OffsetRecord
from jesenska.groups.writes import CommitWrite, ForgetWrite, MarkerWrite, OffsetWrite, RemovalWrite, Results
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.consumer_protocol import decode_subscribed_topics


class GroupOffsets:
    """The committed offsets of a shard's groups."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._groups = roster.groups
        self._answer = roster.answer
        self._write = roster.write
        self._last_commit = 0

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit(self, event: CommitOffsets, now: Now) -> None:
        error = self._refuse_commit(event, now)
        if error is not ErrorCode.NONE:
            self._answer(event.token, PartitionsAnswer(error, {key: error for key, _ in event.offsets}))
            return
        group = self._groups.get(event.group_id)
        if group is None:
            group = self._groups[event.group_id] = Group(event.group_id, now)
        elif event.member_id in group.members:
            self._roster.touch(group, group.members[event.member_id], now)
        limit = self._roster.settings.offset_metadata_max_bytes
        good = [(key, value) for key, value in event.offsets if not is_metadata_too_large(value.metadata, limit)]
        results = {key: ErrorCode.OFFSET_METADATA_TOO_LARGE for key, _ in event.offsets}
        results.update((key, ErrorCode.NONE) for key, _ in good)
        if not good:
            self._answer(event.token, PartitionsAnswer(ErrorCode.NONE, results))
            return
        keys = tuple(key for key, _ in good)
        self._last_commit += 1
        group.pending_commits[self._last_commit] = keys
        if event.within is not None:
            group.pending_within.add(self._last_commit)
        records: list[OffsetRecord | GroupRecord] = [
            OffsetRecord(event.group_id, key.topic, key.partition, _offset_value(value)) for key, value in good
        ]
        self._write(
            event.group_id,
            records,
            CommitWrite(event.token, event.group_id, self._last_commit, keys, results),
            within=event.within,
        )

    def end(self, event: EndOffsets) -> None:
        """Writes the end marker of a transaction to this shard's log, for all groups that have offsets in the
        transaction."""
        self._roster.mark(event.marker, MarkerWrite(event.token))

    def _refuse_commit(self, event: CommitOffsets, now: Now) -> ErrorCode:
        group = self._groups.get(event.group_id)
        if group is None:
            if event.generation_id < 0:
                return ErrorCode.NONE
            if event.within is not None:
                return ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.GROUP_ID_NOT_FOUND if event.knows_missing_group else ErrorCode.ILLEGAL_GENERATION
        names_member = event.generation_id >= 0 or event.member_id or event.group_instance_id is not None
        if event.within is not None:
            happens = HAPPENS[GroupEvent.COMMIT_WITHIN][group.state]
        elif names_member:
            happens = HAPPENS[GroupEvent.COMMIT][group.state]
        else:
            asked = GroupEvent.COMMIT_OF_BRANCH if event.is_of_branches else GroupEvent.COMMIT_FROM_OUTSIDE
            happens = HAPPENS[asked][group.state]
        if happens is Step.WRITE_WITHOUT_GENERATION:
            return ErrorCode.UNKNOWN_MEMBER_ID if event.generation_id >= 0 else ErrorCode.NONE
        # A group that is being removed has no members that could be fenced.
        if names_member and happens is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = fenced(group, event.member_id, event.group_instance_id, event.generation_id)
            if error is not ErrorCode.NONE:
                return error
        if happens is Step.WRITE_UNREAD:
            return _refuse_what_is_read(group, event)
        return happens if isinstance(happens, ErrorCode) else ErrorCode.NONE

    def delete_offsets(self, event: DeleteOffsets) -> None:
        group = self._groups.get(event.group_id)
        happens = ErrorCode.GROUP_ID_NOT_FOUND if group is None else HAPPENS[GroupEvent.DELETE_OFFSETS][group.state]
        if group is None or isinstance(happens, ErrorCode):
            self._answer(event.token, PartitionsAnswer(ErrorCode.GROUP_ID_NOT_FOUND, {}))
            return
        subscribed = subscribed_topics(group)
        if subscribed is None and group.protocol_type != "consumer":
            self._answer(event.token, PartitionsAnswer(ErrorCode.NON_EMPTY_GROUP, {}))
            return
        # If a member's subscription cannot be decoded, it may subscribe to any topic.
        wanted = {key.topic for key in event.partitions} if subscribed is None else subscribed
        results = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key.topic in wanted else ErrorCode.NONE
            for key in event.partitions
        }
        self._forget_offsets(
            group, [key for key, error in results.items() if error is ErrorCode.NONE], event.token, results
        )

    def _forget_offsets(self, group: Group, keys: list[TopicPartition], token: Token | None, results: Results) -> None:
        there = tuple(key for key in keys if key in group.offsets)
        if there:
            self._write(group.group_id, _tombstones(group, there), ForgetWrite(token, group.group_id, there, results))
        else:
            self._answer(token, PartitionsAnswer(ErrorCode.NONE, results))

    def topic_deleted(self, event: TopicDeleted) -> None:
        for group in list(self._groups.values()):
            self._forget_offsets(group, [key for key in group.offsets if key.topic == event.topic], None, {})

    # --- deleting groups ---------------------------------------------------------------------------------------------

    def delete_group(self, event: DeleteGroup, now: Now) -> None:
        group = self._groups.get(event.group_id)
        happens = ErrorCode.GROUP_ID_NOT_FOUND if group is None else HAPPENS[GroupEvent.DELETE_GROUP][group.state]
        if group is not None and group.pending_members and happens is Step.REMOVE_IF_UNUSED:
            happens = ErrorCode.NON_EMPTY_GROUP
        if group is None or isinstance(happens, ErrorCode):
            self._answer(
                event.token, ErrorAnswer(happens if isinstance(happens, ErrorCode) else ErrorCode.GROUP_ID_NOT_FOUND)
            )
        else:
            self._remove_group(group, now, event.token)

    def _remove_group(self, group: Group, now: Now, token: Token | None) -> None:
        """Removes a group with its offsets, including offsets that are being written."""
        group.take(GroupEvent.REMOVAL, now)
        keys = dict.fromkeys([*group.offsets, *(key for keys in group.pending_commits.values() for key in keys)])
        records = [*_tombstones(group, keys), GroupRecord(group.group_id, None)]
        self._write(group.group_id, records, RemovalWrite(token, group.group_id))

    def expire(self, now: Now) -> None:
        """Deletes expired offsets, and removes groups that have no members and no other offsets."""
        for group in list(self._groups.values()):
            if group.pending_commits:
                continue
            step = HAPPENS[GroupEvent.EXPIRY_DUE][group.state]
            old = self._expired(group, now)
            if (
                step is Step.FORGET_AND_REMOVE
                and len(old) == len(group.offsets)
                and not group.pending_members
                and not group.open_offsets
            ):
                self._remove_group(group, now, None)
            elif old:
                self._forget_offsets(group, old, None, {})

    def _expired(self, group: Group, now: Now) -> list[TopicPartition]:
        """Returns the partitions with expired offsets. Offsets of topics to which a member subscribes do not expire,
        even if the commit requested a time of expiry."""
        step = HAPPENS[GroupEvent.EXPIRY_DUE][group.state]
        subscribed = None if step is Step.NOTHING else subscribed_topics(group)
        if subscribed is None:
            return []
        retention_ms = self._roster.settings.offsets_retention_ms
        old, unstable = [], group.unstable()
        for key, value in group.offsets.items():
            if key.topic in subscribed or key in unstable:
                continue
            if value.expire_timestamp_ms >= 0:
                due_ms = value.expire_timestamp_ms
            else:
                unused = step is Step.FORGET_AND_REMOVE and group.protocol_type is not None
                due_ms = retention_ms + (
                    max(group.state_since_ms, value.commit_timestamp_ms) if unused else value.commit_timestamp_ms
                )
            if due_ms <= now.wall_ms:
                old.append(key)
        return old

    # --- outcomes of writes ------------------------------------------------------------------------------------------

    def written(self, operation: OffsetWrite, in_time: bool) -> None:
        """Called when the records of a write are committed and applied: answers the request."""
        if isinstance(operation, CommitWrite):
            self._is_no_longer_pending(operation)
        if in_time:
            self._answer(operation.token, _response(operation))

    def late(self, operation: OffsetWrite, error: ErrorCode) -> None:
        """Answers the error, because a write takes too long, or because this broker is no longer the coordinator."""
        self._answer(operation.token, _response(operation, error))

    def failed(self, operation: OffsetWrite, error: ErrorCode, in_time: bool, now: Now) -> None:
        """Handles a failed write, whose records are not in the log."""
        if isinstance(operation, CommitWrite):
            self._is_no_longer_pending(operation)
        elif isinstance(operation, RemovalWrite) and (group := self._groups.get(operation.group_id)) is not None:
            group.take(GroupEvent.REMOVAL_FAILED, now)
        if in_time:
            self._answer(operation.token, _response(operation, error))

    def _is_no_longer_pending(self, operation: CommitWrite) -> None:
        group = self._groups.get(operation.group_id)
        if group is not None:
            group.pending_commits.pop(operation.serial, None)
            group.pending_within.discard(operation.serial)

    # --- reading -----------------------------------------------------------------------------------------------------

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Returns the committed offsets of these partitions; None means all partitions. Partitions without an offset
        are left out."""
        group = self._groups.get(group_id)
        if group is None or isinstance(HAPPENS[GroupEvent.READ][group.state], ErrorCode):
            return {}
        if partitions is None:
            return dict(group.offsets)
        return {key: group.offsets[key] for key in partitions if key in group.offsets}

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Returns the partitions for which a transaction that is not decided has committed an offset."""
        group = self._groups.get(group_id)
        return set() if group is None else group.unstable()


def _refuse_what_is_read(group: Group, event: CommitOffsets) -> ErrorCode:
    """Checks a commit of a branch's offsets by a client that is not a member. Returns NONE if the group has no offsets
    for these partitions and no member subscribes to the branch: the commit then cannot affect the members. Otherwise
    returns the error."""
    subscribed = subscribed_topics(group)
    pending = {key for keys in group.pending_commits.values() for key in keys}
    if subscribed is None or any(
        key.topic in subscribed or key in group.offsets or key in pending for key, _ in event.offsets
    ):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _response(operation: OffsetWrite, error: ErrorCode = ErrorCode.NONE) -> ErrorAnswer | PartitionsAnswer:
    """Returns the answer to the request that waits for a write. `error` is set if the write failed or its outcome is
    unknown."""
    if isinstance(operation, (MarkerWrite, RemovalWrite)):
        return ErrorAnswer(error)
    if error is ErrorCode.NONE:
        return PartitionsAnswer(error, operation.results)
    return PartitionsAnswer(ErrorCode.NONE, {**operation.results, **dict.fromkeys(operation.keys, error)})


def _tombstones(group: Group, keys: Iterable[TopicPartition]) -> list[OffsetRecord | GroupRecord]:
    return [OffsetRecord(group.group_id, key.topic, key.partition, None) for key in keys]


def is_metadata_too_large(text: str, limit: int) -> bool:
    """Returns True if a commit's metadata has more characters than `offset.metadata.max.bytes` permits. As in Kafka,
    characters beyond U+FFFF count twice."""
    return 2 * len(text) > limit and len(text.encode("utf-16-le", "surrogatepass")) // 2 > limit


def _offset_value(value: CommittedOffset) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
    )


def subscribed_topics(group: Group) -> set[str] | None:
    """Returns the topics to which the members of a consumer group subscribe, or None if they are unknown."""
    if HAPPENS[GroupEvent.SUBSCRIPTIONS][group.state] is Step.NO_TOPICS:
        return set()
    if group.protocol_type != "consumer":
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(decode_subscribed_topics(member.metadata(group.protocol)))
        except MalformedMessageError:
            return None
    return topics
