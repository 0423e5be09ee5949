"""Finds the replicas of a broker that have lost data: the disk was replaced or is not mounted, or a part of a log was
removed. A decider, called once in a start, before the broker registers.

    the tree has                              this broker has                     result
    this broker in the ISR, and other         no log                              lost, unless there never was one
    replicas                                  a log that ends before the offset   lost
                                              in its own checkpoint
                                              a log on an older disk              lost
                                              (`older_directories`)

Such a replica does not lead, and no log is made for it, until another broker leads: then it is fetched like any other
(`broker.replicas.replica_manager`). This is safe for the following reason. A replica in the ISR has every committed
record. If a replica that has lost some of them led, the others would cut their logs to its log. While it does not
lead, no log is cut; and if another replica is in sync, that replica has the lost records.

There never was a log if the partition has never had a leader. Nor was there one if no checkpoint of the broker's
directories names the partition, and every directory is the newest that the broker has had: the first leader may have
been cut off from the controller, or have stopped, before it made the log, while the controller elected others. A log
that a crash has removed before a checkpoint named it is like the unsynced end of a log (below). If no other broker has
a replica, waiting cannot save anything.

A log is compared with its checkpoint only after an orderly stop. That stop has synced everything, so missing records
were removed later. After a crash a log may end earlier because the machine has lost unsynced records: then the broker
leaves every ISR that has another member, and leads alone with its remaining records, as Apache Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata.nodes import PartitionStateNode

_NO_LEADER: Final = -1


class Written(NamedTuple):
    """The replicas and the state of a partition in the tree."""

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
    """Yields the replicas of this broker that have lost data. `logs`: the partitions whose logs it has, or that may be
    in a directory that is offline; `cut_logs`: those whose logs end before their checkpoints, or are older than the
    broker's earlier ones; `checkpointed`: the partitions in a checkpoint. `has_other_directory`: one of its log
    directories is new to the broker, or older than its last start."""
    for topic_partition, (replicas, state) in written.items():
        if broker_id not in state.isr or len(replicas) <= 1:
            continue
        had_log = not _was_never_led(state) and (has_other_directory or topic_partition in checkpointed)
        if topic_partition in cut_logs or (had_log and topic_partition not in logs):
            yield topic_partition


def _was_never_led(state: PartitionStateNode) -> bool:
    return state.leader == _NO_LEADER and state.leader_epoch == 0
