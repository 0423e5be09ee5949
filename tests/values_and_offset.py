"""What a partition and a group hold, for tests that put them somewhere else."""

from __future__ import annotations

import asyncio

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer

#: On a busy machine, before the test's own limit.
_SECONDS = 100.0


async def values_and_offset(
    bootstrap: str, partition: TopicPartition, group: str, count: int
) -> tuple[list[bytes | None], int]:
    """The first values of the partition, so many at least, and the offset that the group has committed there."""
    cluster = Cluster(bootstrap)
    found: list[bytes | None] = []
    async with asyncio.timeout(_SECONDS), Consumer(cluster) as consumer:
        await consumer.assign({partition: 0})
        while len(found) < count:
            for records in (await consumer.poll(5)).values():
                found += [record.value for record in records]
    offsets = await Admin(cluster).list_group_offsets(group)
    await cluster.close()
    return found, offsets[partition].offset
