"""Detects a tree that is older than a broker's logs: its files were restored from an earlier time. A decider, called
once in a start, before the broker registers.

A leader epoch is in the tree before any broker gets it, and only increases. So if a log has a newer epoch than the
partition has in the tree, the tree is older. A cluster that continued from there would elect leaders in epochs that
logs already have, with outdated ISRs: replicas would cut off acknowledged records, clients would reject their brokers'
metadata, and producers would get ids that others have. So the broker does not start.

Topics are the same if they have the same id: a topic that was made again under its name begins its epochs again. If
either side has no id, no conclusion is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from jesenska.base.identifiers import TopicPartition


class Heard(NamedTuple):
    """The newest leader epoch of a partition in the tree or in a log, and the id of its topic."""

    topic_id: UUID | None
    leader_epoch: int


def newer_than_tree(
    in_tree: Mapping[TopicPartition, Heard], in_logs: Mapping[TopicPartition, Heard]
) -> TopicPartition | None:
    """Returns the first partition whose log has a newer leader epoch than the tree; None if no log has one."""
    for topic_partition in sorted(in_tree.keys() & in_logs.keys()):
        written, heard = in_tree[topic_partition], in_logs[topic_partition]
        if (
            written.topic_id is not None
            and written.topic_id == heard.topic_id
            and heard.leader_epoch > written.leader_epoch
        ):
            return topic_partition
    return None
