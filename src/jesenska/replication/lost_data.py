"""Finds the replicas of a broker that have lost data: the disk was replaced or is not mounted, or a part of a log was
removed. This module does no input or output. It is called once in each start, before the broker registers.

  the metadata tree (ZooKeeper) has             this broker has                     result
  this broker in the ISR, and further replicas  no log                              lost, unless the log never existed
                                                a log that ends before the offset   lost
                                                in its own checkpoint
                                                a log on an older disk              lost
                                                (`older_directories`)

Such a replica does not lead, and gets no log, until another broker leads the partition. Then the broker fetches it
from the leader like any other replica (`broker.replicas.replica_manager`).

The reason is that a replica in the ISR has every committed record. If a replica that has lost records became the
leader, its followers would cut their logs to its log. While it does not lead, no log is cut, and any other in-sync
replica still has the lost records.

The log never existed if the partition has never had a leader. The log also counts as never existing in another case:
no checkpoint of the broker's directories names the partition, and no directory is new to the broker or older than its
last start. In this case the broker may have stopped, or lost its connection to the controller, before it created the
log. A log that disappeared in a crash before a checkpoint named it is treated like unsynced records (below). If no
other broker has a replica, waiting cannot save any record.

A log is compared with its checkpoint only after an orderly stop. An orderly stop syncs all records, so records that
are missing were removed later. After a crash a log may end earlier, because the machine has lost unsynced records.
Then the broker leaves every ISR that has another member. If it is the only member of an ISR, it leads with its
remaining records, as Apache Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata.nodes import PartitionStateNode

_NO_LEADER: Final = -1


class Written(NamedTuple):
    """The replicas and the state of a partition, as they are written in the metadata tree (ZooKeeper's nodes)."""

    replicas: Collection[int]
    state: PartitionStateNode


def lost_replicas(
    broker_id: int,
    written: Mapping[TopicPartition, Written],
    logs: Collection[TopicPartition],
    cut_logs: Collection[TopicPartition],
    checkpointed: Collection[TopicPartition],
    *,
    has_other_directory: bool,
) -> Iterator[TopicPartition]:
    """Yields the replicas of this broker that have lost data. `logs` has the partitions whose logs the broker has, or
    that may be in an offline directory. `cut_logs` has the partitions whose logs end before their checkpoints, or are
    in a directory older than the broker's last start. `checkpointed` has the partitions that a checkpoint names.
    `has_other_directory` is True if a log directory is new to the broker, or older than its last start."""
    for topic_partition, (replicas, state) in written.items():
        if broker_id not in state.isr or len(replicas) <= 1:
            continue
        had_log = not _was_never_led(state) and (has_other_directory or topic_partition in checkpointed)
        if topic_partition in cut_logs or (had_log and topic_partition not in logs):
            yield topic_partition


def _was_never_led(state: PartitionStateNode) -> bool:
    return state.leader == _NO_LEADER and state.leader_epoch == 0
