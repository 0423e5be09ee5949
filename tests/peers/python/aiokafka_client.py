"""aiokafka."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.peers.python.conversation import READ_SECONDS, Asked, Plan, Row, converse


def write(plan: Plan, topic: str, codec: str, rows: list[Row]) -> None:
    async def work() -> None:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=plan.bootstrap, compression_type=compression, linger_ms=500, max_batch_size=1 << 20
        ) as producer:
            sent = [await producer.send(topic, row.value, row.key, 0, row.timestamp_ms, row.headers) for row in rows]
            await asyncio.gather(*sent)

    asyncio.run(work())


def read(plan: Plan, topic: str, count: int) -> list[Row]:
    async def work() -> list[Row]:
        rows: list[Row] = []
        async with AIOKafkaConsumer(bootstrap_servers=plan.bootstrap, enable_auto_commit=False) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            async with asyncio.timeout(READ_SECONDS):
                while len(rows) < count:
                    record = await consumer.getone(partition)
                    rows.append(
                        Row(
                            record.key,
                            record.value,
                            record.timestamp,
                            [(name, bytes(value)) for name, value in record.headers],
                        )
                    )
        return rows

    return asyncio.run(work())


def take_part(plan: Plan, asked: Asked) -> Iterable[bytes]:
    values: queue.Queue[bytes | None] = queue.Queue()

    async def work() -> None:
        settings = {
            "group_id": plan.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
        }
        async with AIOKafkaConsumer(plan.topic, bootstrap_servers=plan.bootstrap, **settings) as consumer:
            while not asked.to_leave():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        assert record.value is not None
                        values.put(record.value)
                if asked.to_commit():
                    await consumer.commit()

    def run() -> None:
        try:
            asyncio.run(work())
        finally:
            values.put(None)

    member = threading.Thread(target=run)
    member.start()
    while (value := values.get()) is not None:
        yield value
    member.join()


if __name__ == "__main__":
    converse(write, read, take_part)
