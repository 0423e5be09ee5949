"""Whether the tree that a broker starts with is older than its logs: its files were put back as they were a while ago.
A decider, asked once in a start, before the broker registers.

A leader epoch is in the tree before any broker hears of it, and goes up only. So where a log has heard of a newer
epoch than the partition has in the tree, the tree has gone back. A cluster that goes on from there elects leaders in
epochs that logs have already, with sets in sync that are over: replicas cut off what was acknowledged, clients do not
believe their brokers, and producers get ids that others have. So the broker does not start.

Topics are the same if they have one id: one that was made again under its name begins its epochs anew. Where either
side knows no id, nothing is concluded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from jesenska.base.identifiers import TopicPartition


class Heard(NamedTuple):
    """The newest leader epoch of a partition that somebody has heard of, and the id of its topic."""

    topic_id: UUID | None
    leader_epoch: int


def newer_than_tree(
    in_tree: Mapping[TopicPartition, Heard], in_logs: Mapping[TopicPartition, Heard]
) -> TopicPartition | None:
    """The first partition of which a log has heard of a newer leader epoch than the tree; None where there is none."""
    for topic_partition in sorted(in_tree.keys() & in_logs.keys()):
        written, heard = in_tree[topic_partition], in_logs[topic_partition]
        if (
            written.topic_id is not None
            and written.topic_id == heard.topic_id
            and heard.leader_epoch > written.leader_epoch
        ):
            return topic_partition
    return None
