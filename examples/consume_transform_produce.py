"""Consumes records from one topic, transforms them, and writes them to another topic. Each record is processed exactly
once. The program uses jesenska's own client:

    python examples/consume_transform_produce.py localhost:9092 orders invoices

Several instances may run at once, each with its own name as a fourth argument: they share the partitions as members
of one consumer group. If an instance is killed, start it again with the same name.

The records that an instance writes and the offsets that it commits are one transaction. If the instance ends before the
transaction is committed, the next instance with its name aborts the transaction, and begins at the last committed
offsets. If an instance was paused for so long that the group has removed it, its offsets are refused and its
transaction is aborted. Consumers with isolation.level=read_committed never see records of an aborted transaction."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from jesenska.base.errors import KafkaError, ProducerFencedError
from jesenska.client.cluster import Cluster
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.positions import Position
from jesenska.client.producer import Producer

GROUP = "invoicing"
READ_COMMITTED = 1


def transform(value: bytes) -> bytes:
    return b"invoice for " + value


async def work(bootstrap: str, source: str, target: str, name: str, goes_on: Callable[[], bool] = lambda: True) -> None:
    """Transforms records while `goes_on()` returns True. Raises ProducerFencedError if another instance was started
    with the same name."""
    while goes_on():
        cluster = Cluster(bootstrap)
        try:
            async with (
                Producer(cluster, transactional_id=f"{GROUP}-{name}") as producer,
                GroupConsumer(
                    cluster,
                    GROUP,
                    [source],
                    MembershipOptions(
                        group_instance_id=name
                    ),  # after a restart the instance has its partitions at once
                    auto_offset_reset="earliest",
                    auto_commit_seconds=None,  # offsets are committed in transactions only
                    isolation_level=READ_COMMITTED,
                ) as consumer,
            ):
                await producer.init_transactions()
                while goes_on():
                    polled = await consumer.poll(1.0)
                    if not polled:
                        continue
                    async with producer.transaction():
                        for records in polled.values():
                            for record in records:
                                await producer.send(target, transform(bytes(record.value or b"")), record.key)
                        ends = {partition: Position(records[-1].offset + 1) for partition, records in polled.items()}
                        await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        except ProducerFencedError:
            raise
        except KafkaError as error:
            # The transaction was aborted. A new member reads its records again, from the committed offsets.
            sys.stderr.write(f"begins again: {error}\n")
            await asyncio.sleep(0.5)
        finally:
            await cluster.close()


if __name__ == "__main__":
    bootstrap, source, target, *names = sys.argv[1:]
    try:
        asyncio.run(work(bootstrap, source, target, names[0] if names else "1"))
    except KeyboardInterrupt:
        pass
