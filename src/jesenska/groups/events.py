"""The events that a group coordinator receives, and the answers that it gives: plain data, without logic."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Committed, Failed, Late, Marker, OfTransaction, Resign, Tick, Token

NO_GENERATION = -1


# --- in --------------------------------------------------------------------------------------------------------------


class Join(NamedTuple):
    """A member enters or comes back. `protocols`: (name, metadata) in the member's order of preference.

    `needs_known_member`: version 4 and later without a member id get MEMBER_ID_REQUIRED first (KIP-394).
    `can_skip_assignment`: version 9, so a static leader that comes back need not assign again (KIP-814)."""

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
    """A member asks for its assignment; the leader brings those of all members. Protocol type and name are None below
    version 5."""

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
    """One member that leaves, by its id or, if static, by its instance id (with an empty member id an administrator
    removes it)."""

    member_id: str
    group_instance_id: str | None = None


class Leave(NamedTuple):
    token: Token
    group_id: str
    members: tuple[Leaving, ...]


class CommittedOffset(NamedTuple):
    """An offset as a consumer commits it; `expire_timestamp_ms` is -1 unless an old client asks for its own
    retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


class CommitOffsets(NamedTuple):
    """A commit of offsets. Without generation (-1) and member, the client uses the group for its offsets only."""

    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    #: The error of a member that commits for an unknown group: True for GROUP_ID_NOT_FOUND (OffsetCommit 9 and later),
    #: False for ILLEGAL_GENERATION.
    knows_missing_group: bool = False
    #: True if all offsets are of topics that are branches of other topics.
    is_of_branches: bool = False
    #: The transaction with whose commit the offsets take effect (TxnOffsetCommit); None outside of a transaction.
    within: OfTransaction | None = None


class EndOffsets(NamedTuple):
    """A transaction ends: the offsets that were committed in it take effect, or are forgotten."""

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
    """A topic is deleted: every group forgets its offsets."""

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


# --- out -------------------------------------------------------------------------------------------------------------


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
    """The answer to a heartbeat or a deletion."""

    error: ErrorCode


class LeaveAnswer(NamedTuple):
    error: ErrorCode
    members: tuple[tuple[Leaving, ErrorCode], ...] = ()


class PartitionsAnswer(NamedTuple):
    """The answer to a commit or a deletion of offsets: an error for each partition. `error` is set if the request
    fails as a whole."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


Response = JoinAnswer | SyncAnswer | ErrorAnswer | LeaveAnswer | PartitionsAnswer
