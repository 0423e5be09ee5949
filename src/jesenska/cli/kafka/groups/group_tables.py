"""The output tables of kafka-consumer-groups: the columns of Kafka 4.3.1's tool, and the same values as JSON.

    offsets    GROUP TOPIC PARTITION [LEADER-EPOCH] CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
    members    GROUP CONSUMER-ID [GROUP-INSTANCE-ID] HOST CLIENT-ID #PARTITIONS [CURRENT-EPOCH CURRENT-ASSIGNMENT
               TARGET-EPOCH TARGET-ASSIGNMENT]
    state      GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE [GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH] #MEMBERS

The columns in brackets are printed with --verbose (GROUP-INSTANCE-ID if there is a static member). A group of the
classic protocol has no epochs; `-` is printed. A column is as wide as its widest value, and at least as wide as in
Kafka's tool. The last column is padded only if Kafka's tool also pads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.group_administration import GroupDescription, GroupMember, OffsetAndMetadata

NOTHING = "-"


class Column(NamedTuple):
    heading: str
    width: int = 0
    grows: bool = True


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table as text, with the headings in the first line. A column of width 0 is not padded."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = []
    for number, column in enumerate(columns):
        widest = max((len(row[number]) for row in texts), default=0) if column.grows and column.width else 0
        widths.append(max(column.width, widest))
    lines = [[column.heading for column in columns], *texts]
    return "\n".join(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


class OffsetRow(NamedTuple):
    """One partition of a group. A field is None if there is no committed offset, no known log end offset, or no member
    for the partition."""

    topic: str
    partition: int
    committed: OffsetAndMetadata | None
    log_end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


def offset_rows(
    group: GroupDescription, committed: Mapping[TopicPartition, OffsetAndMetadata], ends: Mapping[TopicPartition, int]
) -> list[OffsetRow]:
    """Returns a row for each partition that is assigned to a member, member by member. After these rows come the
    partitions that have committed offsets but no member."""
    rows = []
    seen: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda item: (-len(item.assignment), item.member_id)):
        for key in member.assignment:
            seen.add(key)
            rows.append(OffsetRow(key.topic, key.partition, committed.get(key), ends.get(key), member))
    rows += [
        OffsetRow(key.topic, key.partition, committed[key], ends.get(key), None)
        for key in sorted(committed)
        if key not in seen
    ]
    return rows


def _or_nothing(value: object) -> object:
    return NOTHING if value is None else value


def offsets_text(group: GroupDescription, rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    columns = [
        Column("GROUP", 15),
        Column("TOPIC", 15),
        Column("PARTITION", 10),
        *([Column("LEADER-EPOCH", 15)] if verbose else []),
    ]
    columns += [Column("CURRENT-OFFSET", 15), Column("LOG-END-OFFSET", 15), Column("LAG", 15)]
    columns += [Column("CONSUMER-ID", 15), Column("HOST", 15), Column("CLIENT-ID")]
    lines = []
    for row in rows:
        epoch = row.committed.leader_epoch if row.committed is not None and row.committed.leader_epoch >= 0 else NOTHING
        member = (
            (NOTHING,) * 3
            if row.member is None
            else (row.member.member_id, row.member.client_host, row.member.client_id)
        )
        offset = NOTHING if row.committed is None else row.committed.offset
        middle = (offset, _or_nothing(row.log_end_offset), _or_nothing(row.lag))
        lines.append([group.group_id, row.topic, row.partition, *([epoch] if verbose else []), *middle, *member])
    return table(columns, lines)


def members_text(group: GroupDescription, *, verbose: bool) -> str:
    static = any(member.group_instance_id is not None for member in group.members)
    columns = [Column("GROUP", 15), Column("CONSUMER-ID", 15), *([Column("GROUP-INSTANCE-ID", 17)] if static else [])]
    columns += [Column("HOST", 15), Column("CLIENT-ID", 15), Column("#PARTITIONS", 15)]
    if verbose:
        columns += [
            Column("CURRENT-EPOCH", 15),
            Column("CURRENT-ASSIGNMENT", 20),
            Column("TARGET-EPOCH", 15),
            Column("TARGET-ASSIGNMENT", 19),
        ]
    lines = []
    for member in _members(group):
        line: list[object] = [group.group_id, member.member_id, *([member.group_instance_id or ""] if static else [])]
        line += [member.client_host, member.client_id, len(member.assignment)]
        lines.append([*line, *([NOTHING, _assignment(member), NOTHING, NOTHING] if verbose else [])])
    return "\n".join(line + " " for line in table(columns, lines).split("\n"))


def _members(group: GroupDescription) -> list[GroupMember]:
    return sorted(group.members, key=lambda item: (-len(item.assignment), item.member_id))


def _assignment(member: GroupMember) -> str:
    """Returns the partitions of a member as `topic:0,1;other:2`."""
    by_topic: dict[str, list[str]] = {}
    for key in sorted(member.assignment):
        by_topic.setdefault(key.topic, []).append(str(key.partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or NOTHING


def state_text(group: GroupDescription, *, verbose: bool) -> str:
    node = group.coordinator
    columns = [
        Column("GROUP", 15),
        Column("COORDINATOR (ID)", 25),
        Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
    ]
    columns += [
        *([Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)] if verbose else []),
        Column("#MEMBERS"),
    ]
    line = [group.group_id, f"{node.host}:{node.port}  ({node.broker_id})", group.protocol or NOTHING, group.state]
    return table(columns, [[*line, *([NOTHING, NOTHING] if verbose else []), len(group.members)]])


# --- JSON ------------------------------------------------------------------------------------------------------------


def group_json(group: GroupDescription) -> dict[str, Any]:
    node = group.coordinator
    return {
        "group": group.group_id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignmentStrategy": group.protocol or None,
        "coordinator": {"id": node.broker_id, "host": node.host, "port": node.port},
    }


def offsets_json(rows: Sequence[OffsetRow]) -> list[dict[str, Any]]:
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "leaderEpoch": row.committed.leader_epoch
            if row.committed is not None and row.committed.leader_epoch >= 0
            else None,
            "currentOffset": None if row.committed is None else row.committed.offset,
            "logEndOffset": row.log_end_offset,
            "lag": row.lag,
            "consumerId": None if row.member is None else row.member.member_id,
            "host": None if row.member is None else row.member.client_host,
            "clientId": None if row.member is None else row.member.client_id,
        }
        for row in rows
    ]


def members_json(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "consumerId": member.member_id,
            "groupInstanceId": member.group_instance_id,
            "host": member.client_host,
            "clientId": member.client_id,
            "assignment": [{"topic": key.topic, "partition": key.partition} for key in member.assignment],
        }
        for member in _members(group)
    ]
