"""Finds log directories of a broker that are older than its last start. Either an earlier disk is back in place of its
replacement, or the directory is an older copy. Such a directory may lack acknowledged records. This module does no
input or output. It is called once in each start.

Each start of a broker has an id. The id is written into every directory that the start could use. Then the id of the
start is written into the metadata tree (ZooKeeper's nodes), for the id of each directory:

  the tree has for the directory          the directory contains          result
  start S                                 S, and perhaps later starts     the directory is the newest
  start S                                 only other starts               older: a copy of an earlier time
  nothing, but other directories          anything                        older: an earlier disk
  nothing, and no other directory         anything                        newest: the tree does not know the broker

A start that is not in the tree ended before it led any partition. A directory that is offline keeps its last start in
the tree, so it is the newest after its repair. New directories are not handled here but in `lost_data`.

An older directory may still have the newest data of some partitions. A start may find that the only in-sync replica of
a partition has lost its data. The replica then does not lead (`lost_data`). The tree lists the replica as lacking,
together with the directories that had its data. For this replica, these directories count as the newest until another
replica has led."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_starts import DirectoryStarts
from jesenska.metadata.nodes import BrokerStarts, LackingPartitions

#: The maximum number of directories whose last start is stored in the metadata tree while some directories are
#: offline.
_ABSENT_MAX = 100


def is_older(found: DirectoryStarts | None, starts: BrokerStarts | None) -> bool:
    """Returns True if a directory that the broker used in an earlier start is older than the broker's last start.
    `found` has the starts that are written in the directory; `starts` has the starts in the metadata tree."""
    if starts is None:
        return False
    return found is None or starts.directories.get(found.directory_id) not in found.starts


def newest_in(found: DirectoryStarts | None, starts: BrokerStarts | None) -> frozenset[TopicPartition]:
    """Returns the partitions for which an older directory has the newest data: the broker lacks their data, and this
    directory had them when they were lost."""
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
    """Returns the value that this start writes into the metadata tree. `usable` has the ids of the directories that
    the start can use. `lacking` has the replicas that have lost their data and are the only in-sync replicas."""
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
    """Returns a copy of the broker's recorded starts that no longer lists these partitions as lacking their data."""
    groups = (LackingPartitions(item.directories, item.partitions.difference(partitions)) for item in starts.lacking)
    return BrokerStarts(starts.directories, tuple(item for item in groups if item.partitions))
