"""Commits the offsets of groups in a branch (a topic that begins as a copy of its source topic). Each group that has
committed offsets in the source gets the same offsets in the branch. An offset above the branch's end becomes that end.

The members of a group are not disturbed. The commit is an OffsetCommit request without a member id. Brokers of Apache
Kafka refuse that request for a group with members. A broker of jesenska accepts the request if the group has no
offsets in the branch yet and no member subscribes to the branch. While a group is rebalancing, the commit is
repeated."""

from __future__ import annotations

from collections.abc import Mapping

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import OffsetAndMetadata
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.retries import persistently

_NO_EPOCH = -1

#: For each group its offsets in the branch, or the error for which they could not be committed.
GroupsInBranch = dict[str, dict[TopicPartition, int] | KafkaError]


async def branch_offsets(cluster: Cluster, source: str, target: str) -> GroupsInBranch:
    """Commits offsets in the branch `target` for all groups that have offsets in its source topic `source`. Returns
    the results by group."""
    groups = Admin(cluster)
    topic = (await cluster.topics())[target]
    partitions = [TopicPartition(target, number) for number in range(len(topic.partitions))]
    ends = {
        key.partition: found.offset
        for key, found in (await list_offsets(cluster, dict.fromkeys(partitions, LATEST))).items()
    }
    sources = [TopicPartition(source, number) for number in ends]
    done: GroupsInBranch = {}
    for listing in await groups.list_groups():
        try:
            committed = await groups.list_group_offsets(listing.group_id, sources)
            if committed:
                wanted = {
                    TopicPartition(target, key.partition): within(offset, ends[key.partition])
                    for key, offset in committed.items()
                }
                await _commit(groups, listing.group_id, wanted)
                done[listing.group_id] = {key: offset.offset for key, offset in wanted.items()}
        except KafkaError as error:
            done[listing.group_id] = error
    return done


def within(committed: OffsetAndMetadata, end_offset: int) -> OffsetAndMetadata:
    """Returns the committed offset, or the end offset of the branch if that is lower."""
    return committed if committed.offset <= end_offset else OffsetAndMetadata(end_offset, _NO_EPOCH, committed.metadata)


async def _commit(groups: Admin, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commits the offsets of one group. Raises the error of the first partition that failed."""

    async def attempt() -> None:
        results = await groups.alter_group_offsets(group_id, offsets)
        error = next((result for result in results.values() if result is not None), None)
        if error is not None:
            raise error

    await persistently(groups.cluster, (ErrorCode.REBALANCE_IN_PROGRESS,), attempt)
