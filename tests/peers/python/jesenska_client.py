"""Our own client."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable

from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.producer import Producer
from jesenska.records.header import Codec
from tests.peers.python.conversation import READ_SECONDS, Asked, Plan, Row, converse


def write(plan: Plan, topic: str, codec: str, rows: list[Row]) -> None:
    async def work() -> None:
        cluster = Cluster(plan.bootstrap)
        try:
            async with Producer(cluster, compression=Codec[codec.upper()], linger_seconds=20) as producer:
                sent = [
                    await producer.send(topic, row.value, row.key, 0, row.headers or [], row.timestamp_ms)
                    for row in rows
                ]
                await producer.flush()
                await asyncio.gather(*sent)
        finally:
            await cluster.close()

    asyncio.run(work())


def read(plan: Plan, topic: str, count: int) -> list[Row]:
    async def work() -> list[Row]:
        cluster = Cluster(plan.bootstrap)
        partition = TopicPartition(topic, 0)
        rows: list[Row] = []
        try:
            async with asyncio.timeout(READ_SECONDS), Consumer(cluster) as consumer:
                await consumer.assign({partition: 0})
                while len(rows) < count:
                    found = (await consumer.poll(1.0)).get(partition, ())
                    rows += [
                        Row(
                            record.key,
                            record.value,
                            record.timestamp_ms,
                            [(name, value or b"") for name, value in record.headers],
                        )
                        for record in found
                    ]
        finally:
            await cluster.close()
        return rows

    return asyncio.run(work())


def take_part(plan: Plan, asked: Asked) -> Iterable[bytes]:
    values: queue.Queue[bytes | None] = queue.Queue()

    async def work() -> None:
        cluster = Cluster(plan.bootstrap)
        member = GroupConsumer(
            cluster,
            plan.group,
            [plan.topic],
            MembershipOptions(heartbeat_seconds=0.3),
            auto_offset_reset="earliest",
            auto_commit_seconds=None,
        )
        try:
            async with member:
                while not asked.to_leave():
                    for records in (await member.poll(0.2)).values():
                        for record in records:
                            values.put(record.value)
                    if asked.to_commit():
                        await member.commit()
        finally:
            await cluster.close()

    def run() -> None:
        try:
            asyncio.run(work())
        finally:
            values.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    while (value := values.get()) is not None:
        yield value
    thread.join()


if __name__ == "__main__":
    converse(write, read, take_part)
