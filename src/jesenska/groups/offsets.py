"""What groups have committed: the offsets' side of the coordinator, with deleting and expiring them and the groups that hold nothing else.

commit     the offsets are appended; they count, and are answered, once that is committed
delete     by request, with their topic, or with their group: tombstones are appended first
expire     offsets of an empty group some time after it became empty, and of topics that nobody in a stable group subscribes to after the commit, or
           at the time that their commit asked for; a group that loses its last offset goes with it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ErrorAnswer,
    Now,
    PartitionsAnswer,
    Response,
    Token,
    TopicDeleted,
    once,
)
from jesenska.groups.group import Group, GroupState, Member, fenced
from jesenska.groups.records import KeyValue, OffsetCommitValue, group_record, offset_record
from jesenska.groups.settings import GroupSettings
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.consumer_protocol import decode_subscribed_topics


class Host(Protocol):
    """What the coordinator lends: its effects, and a member's sign of life."""

    def answer(self, token: Token, response: Response) -> None: ...

    def append(
        self,
        group_id: str,
        records: Iterable[KeyValue],
        now: Now,
        committed: Callable[[Now], None],
        failed: Callable[[ErrorCode, Now], None],
        late: Callable[[ErrorCode, Now], None],
    ) -> int: ...

    def touch(self, group: Group, member: Member, now: Now) -> None: ...


class GroupOffsets:
    """The offsets of the groups in `groups`, which the coordinator owns."""

    def __init__(self, settings: GroupSettings, groups: dict[str, Group], host: Host) -> None:
        self._settings = settings
        self._groups = groups
        self._answer = host.answer
        self._append = host.append
        self._touch = host.touch

    # --- offsets ------------------------------------------------------------------------------------------------------------------------

    def commit(self, event: CommitOffsets, now: Now) -> None:
        error = self._refuse_commit(event, now)
        if error is not ErrorCode.NONE:
            self._answer(event.token, PartitionsAnswer(error, {key: error for key, _ in event.offsets}))
            return
        group = self._groups.get(event.group_id)
        if group is None:
            group = self._groups[event.group_id] = Group(event.group_id, now)
        elif event.member_id in group.members:
            self._touch(group, group.members[event.member_id], now)
        limit = self._settings.offset_metadata_max_bytes
        good = [(key, value) for key, value in event.offsets if not is_metadata_too_large(value.metadata, limit)]
        results = {key: ErrorCode.OFFSET_METADATA_TOO_LARGE for key, _ in event.offsets}
        results.update((key, ErrorCode.NONE) for key, _ in good)
        if not good:
            self._answer(event.token, PartitionsAnswer(ErrorCode.NONE, results))
            return
        owner = group
        reply = once(event.token, self._answer)

        def committed(_: Now) -> None:
            owner.pending_commits.discard(number)
            owner.offsets.update(good)
            reply(PartitionsAnswer(ErrorCode.NONE, results))

        def late(reason: ErrorCode, _: Now) -> None:
            reply(PartitionsAnswer(ErrorCode.NONE, {**results, **{key: reason for key, _ in good}}))

        def failed(reason: ErrorCode, at: Now) -> None:
            owner.pending_commits.discard(number)
            late(reason, at)

        records = [offset_record(event.group_id, key.topic, key.partition, _offset_value(value)) for key, value in good]
        number = self._append(event.group_id, records, now, committed, failed, late)
        group.pending_commits.add(number)

    def _refuse_commit(self, event: CommitOffsets, now: Now) -> ErrorCode:
        group = self._groups.get(event.group_id)
        if group is None:
            if event.generation_id < 0:
                return ErrorCode.NONE
            return ErrorCode.GROUP_ID_NOT_FOUND if event.knows_missing_group else ErrorCode.ILLEGAL_GENERATION
        if group.is_in(GroupState.DEAD):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation_id < 0 and group.is_in(GroupState.EMPTY):
            return ErrorCode.NONE
        if event.generation_id >= 0 or event.member_id or event.group_instance_id is not None:
            error = fenced(group, event.member_id, event.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if event.generation_id != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not group.is_in(GroupState.EMPTY):
            # Nobody may move the offsets of a group that has members from outside.
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def delete_offsets(self, event: DeleteOffsets, now: Now) -> None:
        group = self._groups.get(event.group_id)
        if group is None or group.is_in(GroupState.DEAD):
            self._answer(event.token, PartitionsAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        subscribed = subscribed_topics(group)
        if subscribed is None and group.protocol_type != "consumer":
            self._answer(event.token, PartitionsAnswer(ErrorCode.NON_EMPTY_GROUP))
            return
        # Where a member's subscription cannot be read, it may want any topic.
        wanted = {key.topic for key in event.partitions} if subscribed is None else subscribed
        results = {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key.topic in wanted else ErrorCode.NONE for key in event.partitions}
        self._forget_offsets(group, [key for key, error in results.items() if error is ErrorCode.NONE], event.token, results, now)

    def _forget_offsets(self, group: Group, keys: list[TopicPartition], token: Token | None, results: dict[TopicPartition, ErrorCode], now: Now) -> None:
        there = [key for key in keys if key in group.offsets]
        reply = once(token, self._answer)
        if not there:
            reply(PartitionsAnswer(ErrorCode.NONE, results))
            return

        def committed(_: Now) -> None:
            for key in there:
                group.offsets.pop(key, None)
            reply(PartitionsAnswer(ErrorCode.NONE, results))

        def failed(reason: ErrorCode, _: Now) -> None:
            reply(PartitionsAnswer(ErrorCode.NONE, {**results, **dict.fromkeys(there, reason)}))

        records = [offset_record(group.group_id, key.topic, key.partition, None) for key in there]
        self._append(group.group_id, records, now, committed, failed, failed)

    def topic_deleted(self, event: TopicDeleted, now: Now) -> None:
        for group in list(self._groups.values()):
            self._forget_offsets(group, [key for key in group.offsets if key.topic == event.topic], None, {}, now)

    # --- deleting groups ----------------------------------------------------------------------------------------------------------------

    def delete_group(self, event: DeleteGroup, now: Now) -> None:
        group = self._groups.get(event.group_id)
        if group is None or group.is_in(GroupState.DEAD):
            self._answer(event.token, ErrorAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        elif not group.is_in(GroupState.EMPTY) or group.pending_members:
            self._answer(event.token, ErrorAnswer(ErrorCode.NON_EMPTY_GROUP))
        else:
            self._remove_group(group, now, event.token)

    def _remove_group(self, group: Group, now: Now, token: Token | None) -> None:
        before = group.state
        group.move_to(GroupState.DEAD, now)
        records = [offset_record(group.group_id, key.topic, key.partition, None) for key in group.offsets]
        records.append(group_record(group.group_id, None))
        reply = once(token, self._answer)

        def committed(_: Now) -> None:
            if self._groups.get(group.group_id) is group:
                del self._groups[group.group_id]
            reply(ErrorAnswer(ErrorCode.NONE))

        def late(error: ErrorCode, _: Now) -> None:
            reply(ErrorAnswer(error))

        def failed(error: ErrorCode, _: Now) -> None:
            group.state = before
            reply(ErrorAnswer(error))

        self._append(group.group_id, records, now, committed, failed, late)

    def expire(self, now: Now) -> None:
        for group in list(self._groups.values()):
            if group.pending_commits or group.is_in(GroupState.DEAD):
                continue
            old = self._expired(group, now)
            if group.is_in(GroupState.EMPTY) and len(old) == len(group.offsets) and not group.pending_members:
                self._remove_group(group, now, None)
            elif old:
                self._forget_offsets(group, old, None, {}, now)

    def _expired(self, group: Group, now: Now) -> list[TopicPartition]:
        """Offsets whose time is over. Those of topics that a member subscribes to are kept, whatever their commit asked for."""
        if group.is_in(GroupState.EMPTY):
            subscribed: set[str] | None = set()
        elif group.is_in(GroupState.STABLE):
            subscribed = subscribed_topics(group)
        else:
            subscribed = None
        if subscribed is None:
            return []
        retention_ms = self._settings.offsets_retention_ms
        old = []
        for key, value in group.offsets.items():
            if key.topic in subscribed:
                continue
            if value.expire_timestamp_ms >= 0:
                due_ms = value.expire_timestamp_ms
            else:
                unused = group.is_in(GroupState.EMPTY) and group.protocol_type is not None
                due_ms = retention_ms + (max(group.state_since_ms, value.commit_timestamp_ms) if unused else value.commit_timestamp_ms)
            if due_ms <= now.wall_ms:
                old.append(key)
        return old

    # --- reading ------------------------------------------------------------------------------------------------------------------------

    def committed(self, group_id: str, partitions: Sequence[TopicPartition] | None) -> dict[TopicPartition, CommittedOffset]:
        """What is committed for these partitions, or for all; those without an offset are left out."""
        group = self._groups.get(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            return {}
        if partitions is None:
            return dict(group.offsets)
        return {key: group.offsets[key] for key in partitions if key in group.offsets}


def is_metadata_too_large(text: str, limit: int) -> bool:
    """True where a commit's metadata has more characters than `offset.metadata.max.bytes` allows. Those beyond U+FFFF count twice, as in Kafka."""
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
    """The topics that the members of a consumer group want; None where that cannot be told."""
    if group.is_in(GroupState.EMPTY):
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
