"""Finds log directories of a broker that are older than its last start: the disk was replaced by another one and is
back, or the directory is an older copy. Such a directory may lack acknowledged records. A decider, called once in a
start.

Each start has an id. It is written into every directory that the start could use, and then into the tree, where each
directory has an id:

    the tree has of the directory       the directory itself has      result
    start S                             S, and perhaps later ones     it is the newest
    start S                             other starts only             older: a copy of an earlier time
    nothing, but others in its place    anything                      older: an earlier disk
    nothing, and no others              anything                      the newest: nothing is known of the broker

Starts that are not in the tree ended before they led anything. A directory that is offline keeps its start in the
tree, and so is the newest after its repair. A new directory is not handled here (`lost_data`).

An older directory may still be the newest for some partitions. If a start finds that a replica which was alone in sync
has lost its data, the replica does not lead (`lost_data`). The tree then lists it as lacking, with the directories
that had its data: these are the newest for it until another replica has led."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_starts import DirectoryStarts
from jesenska.metadata.nodes import BrokerStarts, LackingPartitions

#: Largest number of directories whose last start the tree keeps while some are offline.
_ABSENT_MAX = 100


def is_older(found: DirectoryStarts | None, starts: BrokerStarts | None) -> bool:
    """True if a directory that the broker has had before is older than its last start. `found`: the starts in the
    directory; `starts`: the starts in the tree."""
    if starts is None:
        return False
    return found is None or starts.directories.get(found.directory_id) not in found.starts


def newest_in(found: DirectoryStarts | None, starts: BrokerStarts | None) -> frozenset[TopicPartition]:
    """Returns the partitions for which an older directory is the newest: partitions whose data are lacking since then,
    and whose data it had."""
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
    """Returns the value for the tree from this start on. `usable`: the directories that the start can use; `lacking`:
    the replicas that have lost data and are alone in sync."""
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
    """Returns the starts, with these partitions no longer listed as lacking."""
    groups = (LackingPartitions(item.directories, item.partitions.difference(partitions)) for item in starts.lacking)
    return BrokerStarts(starts.directories, tuple(item for item in groups if item.partitions))
