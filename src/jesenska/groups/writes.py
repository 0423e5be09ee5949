"""The writes of a group, as plain data. A write is passed on with its records, and comes back with their outcome. So
it holds all that the coordinator needs to go on then.

`token` identifies the request that waits for the write; None if no request waits. `serial` distinguishes the writes of
one group.
"""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Token
from jesenska.groups.events import JoinAnswer

#: An error for each partition that a request names.
Results = dict[TopicPartition, ErrorCode]


class AssignmentWrite(NamedTuple):
    """The leader's assignment of a generation."""

    group_id: str
    generation: int


class ReplacementWrite(NamedTuple):
    """A static member has come back with another id. `answer` is for its join."""

    token: Token
    group_id: str
    old_id: str
    old_protocols: tuple[tuple[str, bytes], ...]
    answer: JoinAnswer


class EmptyGroupWrite(NamedTuple):
    """The last member has gone."""

    group_id: str


class CommitWrite(NamedTuple):
    """Offsets that are committed for `keys`. `results` is the answer if they are written."""

    token: Token
    group_id: str
    serial: int
    keys: tuple[TopicPartition, ...]
    results: Results


class MarkerWrite(NamedTuple):
    """The end of a transaction with offsets in it."""

    token: Token


class ForgetWrite(NamedTuple):
    """Offsets of `keys` that are to be forgotten. `results` is the answer if that is written."""

    token: Token | None
    group_id: str
    keys: tuple[TopicPartition, ...]
    results: Results


class RemovalWrite(NamedTuple):
    """The group is being removed."""

    token: Token | None
    group_id: str


MemberWrite = AssignmentWrite | ReplacementWrite | EmptyGroupWrite
OffsetWrite = CommitWrite | MarkerWrite | ForgetWrite | RemovalWrite
