"""Which replicas have lost data that they are known to have had: the disk was replaced or is not mounted, or a part of
a log was taken away. A decider, asked once in a start, before the broker registers.

    the tree says                             and here                            then
    this broker is in the ISR, and others     there is no log                     lost, unless there never was one
    have replicas                             the log ends before the offset      lost
                                              that its own checkpoint names
                                              the log is on an older disk         lost
                                              (`older_directories`)

Such a replica is not led, and no log is made for it, until another broker leads: then it is fetched like any other
(`broker.replicas.replica_manager`). Why that is sound: who is in the ISR has every record that was committed. If a
replica that has lost some of them led, the others would cut their logs to what it has. While it does not lead, nobody
cuts anything; and where somebody else is in sync, that one has what it lost.

There never was a log where nobody has led the partition yet. Nor was there one where no checkpoint of the broker's
directories names the partition, and every directory is the newest that it has had: its first leader may have been cut
off from the controller, or have gone, before it made the log, while the controller elected others. A log that a crash
has taken away before any checkpoint named it is like the end of a log that was not synced (below). Where no other
broker has a replica nothing can be saved by waiting.

A log is compared with its checkpoint after an orderly stop alone. That has synced everything, so what is missing was
taken away. After a crash a log may end earlier because the machine has lost what was not synced: then the broker
leaves every ISR that has another member, and leads alone with what it has, as Apache Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata.nodes import PartitionStateNode

_NO_LEADER: Final = -1


class Written(NamedTuple):
    """What the tree says of a partition: its replicas and its state."""

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
    """The replicas of this broker that have lost data. `logs`: those that it has, or that may be in a directory that
    is offline; `cut_logs`: those that end before their checkpoints, or are older than what the broker had;
    `checkpointed`: the partitions that a checkpoint names.
    `has_other_directory`: the broker was never before in one of its log directories, or one is older than its last
    start."""
    for topic_partition, (replicas, state) in written.items():
        if broker_id not in state.isr or len(replicas) <= 1:
            continue
        had_log = not _was_never_led(state) and (has_other_directory or topic_partition in checkpointed)
        if topic_partition in cut_logs or (had_log and topic_partition not in logs):
            yield topic_partition


def _was_never_led(state: PartitionStateNode) -> bool:
    return state.leader == _NO_LEADER and state.leader_epoch == 0
