"""Which log directories of a broker are older than its last start: the disk was in use before another one, or is a
copy from then. What such a directory lacks was perhaps acknowledged. A decider, asked once in a start.

Each start has an id. It is written into every directory that the start could use, and then into the tree, where each
directory has an id:

    the tree has of the directory       and the directory itself knows      then
    start S                             S, and perhaps later ones           it is the newest
    start S                             other starts only                   older: a copy of a while ago
    nothing, but others in its place    whatever it knows                   older: a disk of before
    nothing, and no others              whatever it knows                   the newest: nothing is known of the broker

Starts that the tree has not heard of ended before they led anything. A directory that is offline keeps its start in
the tree, and so is the newest when it is mended. One that is new is not looked at here (`lost_data`).

An older directory is the newest for some partitions all the same. Where a start finds that a replica which was alone
in sync has lost its data, it does not lead (`lost_data`). The tree has it as lacking then, with the directories that
had its data: these are the newest for it as long as no other replica has led."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_starts import DirectoryStarts
from jesenska.metadata.nodes import BrokerStarts, LackingPartitions

#: Directories of which the tree keeps the last start while some are offline.
_ABSENT_MAX = 100


def is_older(found: DirectoryStarts | None, starts: BrokerStarts | None) -> bool:
    """Whether a directory that the broker has had before is older than its last start. `found`: what the directory
    knows; `starts`: what the tree has."""
    if starts is None:
        return False
    return found is None or starts.directories.get(found.directory_id) not in found.starts


def newest_in(found: DirectoryStarts | None, starts: BrokerStarts | None) -> frozenset[TopicPartition]:
    """The partitions that an older directory is the newest for: those that were lacking since, and that it had."""
    groups = () if starts is None else starts.lacking
    return frozenset().union(*(item.partitions for item in groups if _had(found, item)))


def _had(found: DirectoryStarts | None, lacking: LackingPartitions) -> bool:
    if found is None:
        return not lacking.directories
    return lacking.directories.get(found.directory_id) in found.starts


def begun(
    starts: BrokerStarts | None,
    usable: Sequence[UUID],
    start: UUID,
    lacking: Collection[TopicPartition],
    *,
    some_are_offline: bool,
) -> BrokerStarts:
    """What the tree is to have from this start on. `usable`: the directories that it can use; `lacking`: the replicas
    that have lost data and are alone in sync."""
    before = {} if starts is None else starts.directories
    directories = dict.fromkeys(usable, start)
    if some_are_offline:
        directories = dict(list(before.items())[-_ABSENT_MAX:]) | directories
    left = frozenset(lacking)
    groups: list[LackingPartitions] = []
    for item in () if starts is None else starts.lacking:
        if still := item.partitions & left:
            groups.append(LackingPartitions(item.directories, still))
            left -= still
    if left:
        groups.append(LackingPartitions(before, left))
    return BrokerStarts(directories, tuple(groups))


def without(starts: BrokerStarts, partitions: Collection[TopicPartition]) -> BrokerStarts:
    """The same, but these partitions are not lacking any more."""
    groups = (LackingPartitions(item.directories, item.partitions.difference(partitions)) for item in starts.lacking)
    return BrokerStarts(starts.directories, tuple(item for item in groups if item.partitions))
