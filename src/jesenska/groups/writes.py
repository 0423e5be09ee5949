"""The writes of a group, as plain data. Each write accompanies its records to the log, and is returned to the
coordinator with the outcome. So it contains all data that the coordinator needs to continue.

`token` identifies the request that waits for the write; None if no request waits. `serial` distinguishes the writes of
one group."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Token
from jesenska.groups.events import JoinAnswer

#: An error for each partition that a request names.
Results = dict[TopicPartition, ErrorCode]


class AssignmentWrite(NamedTuple):
    """The write of a group's record with the assignment that the group's leader has sent for a generation."""

    group_id: str
    generation: int


class ReplacementWrite(NamedTuple):
    """The write of a group's record after a static member has rejoined with another member id. `answer` is the answer
    to the member's JoinGroup."""

    token: Token
    group_id: str
    old_id: str
    old_protocols: tuple[tuple[str, bytes], ...]
    answer: JoinAnswer


class EmptyGroupWrite(NamedTuple):
    """The write of a group's record after its last member has left."""

    group_id: str


class CommitWrite(NamedTuple):
    """The write of offsets that are committed for `keys`. `results` is the answer if the write succeeds."""

    token: Token
    group_id: str
    serial: int
    keys: tuple[TopicPartition, ...]
    results: Results


class MarkerWrite(NamedTuple):
    """The write of the end marker of a transaction that has offsets."""

    token: Token


class ForgetWrite(NamedTuple):
    """The write that deletes the offsets of `keys`. `results` is the answer if the write succeeds."""

    token: Token | None
    group_id: str
    keys: tuple[TopicPartition, ...]
    results: Results


class RemovalWrite(NamedTuple):
    """The write of the tombstones that remove a group and its offsets."""

    token: Token | None
    group_id: str


MemberWrite = AssignmentWrite | ReplacementWrite | EmptyGroupWrite
OffsetWrite = CommitWrite | MarkerWrite | ForgetWrite | RemovalWrite
