"""What goes into the coordinator and what it answers: values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Committed, Failed, Late, Resign, Tick, Token

NO_GENERATION = -1


# --- in --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
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


@dataclass(frozen=True, slots=True)
class Sync:
    """A member asks for its assignment; the leader brings everybody's. Protocol type and name are None below version
    5."""

    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """One member that leaves, by its id or, if static, by its instance id (with an empty member id an administrator
    removes it)."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    token: Token
    group_id: str
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset as a consumer commits it; `expire_timestamp_ms` is -1 unless an old client asks for a retention of its
    own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Without generation (-1) and member the group is used for its offsets only."""

    token: Token
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    #: Clients of OffsetCommit 9 and later are told GROUP_ID_NOT_FOUND where a member commits for a group that is not
    #: there, others ILLEGAL_GENERATION.
    knows_missing_group: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    token: Token
    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    token: Token
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """Offsets of the topic are forgotten in every group."""

    topic: str


Event = Join | Sync | Heartbeat | Leave | CommitOffsets | DeleteGroup | DeleteOffsets | TopicDeleted | Committed | Failed | Late | Resign | Tick


# --- out -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The answer to a heartbeat or a deletion."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    error: ErrorCode
    members: tuple[tuple[Leaving, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionsAnswer:
    """An error for each partition of a commit or of a deletion of offsets; `error` where the request fails as a
    whole."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


Response = JoinAnswer | SyncAnswer | ErrorAnswer | LeaveAnswer | PartitionsAnswer
