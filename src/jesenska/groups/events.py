"""The events that a group coordinator gets, and the answers that it gives, as plain data."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Committed, Failed, Late, Marker, OfTransaction, Resign, Tick, Token

NO_GENERATION = -1


# --- events ----------------------------------------------------------------------------------------------------------


class Join(NamedTuple):
    """JoinGroup: a member joins or rejoins. `protocols` are (name, metadata) in the member's order of preference.
    `needs_known_member` is True from version 4 on: a member without an id gets MEMBER_ID_REQUIRED first (KIP-394).
    `can_skip_assignment` is True from version 9 on: a static member that rejoins as leader can be told to skip the
    assignment (KIP-814)."""

    token: Token
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_member: bool = False
    can_skip_assignment: bool = False


class Sync(NamedTuple):
    """SyncGroup: a member asks for its assignment; the leader sends the assignments of all members. Protocol type and
    name are None below version 5."""

    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class Heartbeat(NamedTuple):
    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class Leaving(NamedTuple):
    """One member of a LeaveGroup, named by its member id. A static member may be named by its instance id with an
    empty member id, so that an administrator can remove it."""

    member_id: str
    group_instance_id: str | None = None


class Leave(NamedTuple):
    token: Token
    group_id: str
    members: tuple[Leaving, ...]


class CommittedOffset(NamedTuple):
    """An offset as a consumer commits it. `expire_timestamp_ms` is the time at which the offset expires, if an old
    client has requested a retention time; otherwise it is -1."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


class CommitOffsets(NamedTuple):
    """A commit of offsets. A client that names no generation (-1) and no member is not a member of the group: it only
    stores its offsets there."""

    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    #: The error for a member of an unknown group: True for GROUP_ID_NOT_FOUND (OffsetCommit 9 and later), False for
    #: ILLEGAL_GENERATION.
    knows_missing_group: bool = False
    #: True if all partitions belong to branches: topics that began as a copy of another topic.
    is_of_branches: bool = False
    #: The transaction in which the offsets are committed (TxnOffsetCommit); None outside of a transaction.
    within: OfTransaction | None = None


class EndOffsets(NamedTuple):
    """The end of a transaction: the offsets that were committed in it become valid, or are dropped."""

    token: Token
    marker: Marker


class DeleteGroup(NamedTuple):
    token: Token
    group_id: str


class DeleteOffsets(NamedTuple):
    token: Token
    group_id: str
    partitions: tuple[TopicPartition, ...]


class TopicDeleted(NamedTuple):
    """A topic was deleted: every group must delete its offsets for this topic."""

    topic: str


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | EndOffsets
    | DeleteGroup
    | DeleteOffsets
    | TopicDeleted
    | Committed
    | Failed
    | Late
    | Resign
    | Tick
)


# --- answers ---------------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class ErrorAnswer(NamedTuple):
    """The answer to a heartbeat, or to the deletion of a group."""

    error: ErrorCode


class LeaveAnswer(NamedTuple):
    error: ErrorCode
    members: tuple[tuple[Leaving, ErrorCode], ...] = ()


class PartitionsAnswer(NamedTuple):
    """The answer to a commit or a deletion of offsets: an error for each partition. `error` is set if the whole
    request fails."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


Response = JoinAnswer | SyncAnswer | ErrorAnswer | LeaveAnswer | PartitionsAnswer
