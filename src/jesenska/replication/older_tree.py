"""Detects that the metadata tree (ZooKeeper's nodes) is older than a broker's logs, because its files were restored
from an earlier time. This module does no input or output. It is called once in each start, before the broker
registers.

A leader epoch is written to the tree before any broker learns the epoch, and epochs only increase. So if a log has a
newer epoch than its partition has in the tree, the tree is older than the log. A cluster that continued with an older
tree would elect leaders in epochs that logs already have, with outdated ISRs. Then replicas would cut off acknowledged
records, clients would reject the metadata of their brokers, and producers would get ids that other producers have. So
the broker does not start.

Epochs are compared only if both sides have the same topic id. The reason: a topic that was deleted and created again
begins with new epochs. If one side has no topic id, the partition is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from jesenska.base.identifiers import TopicPartition


class Heard(NamedTuple):
    """The newest leader epoch of a partition, in the metadata tree or in a log, and the id of its topic."""

    topic_id: UUID | None
    leader_epoch: int


def newer_than_tree(
    in_tree: Mapping[TopicPartition, Heard], in_logs: Mapping[TopicPartition, Heard]
) -> TopicPartition | None:
    """Returns the first partition whose log has a newer leader epoch than the metadata tree; None if there is no such
    partition."""
    for topic_partition in sorted(in_tree.keys() & in_logs.keys()):
        written, heard = in_tree[topic_partition], in_logs[topic_partition]
        if (
            written.topic_id is not None
            and written.topic_id == heard.topic_id
            and heard.leader_epoch > written.leader_epoch
        ):
            return topic_partition
    return None
