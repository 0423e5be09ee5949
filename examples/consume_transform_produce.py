"""Consumes from one topic, transforms, and produces to another, each record exactly once, with jesenska's own client:

    python examples/consume_transform_produce.py localhost:9092 orders invoices

Several may run at once, each with a name of its own as a fourth argument: they share the partitions as members of one
group. Whatever is killed, start it again under the same name.

What is written and how far it has read are one transaction. Where the program ends in between, the next one of its name
has the transaction aborted, and begins where the last one that was committed has ended. A member that the group has
forgotten meanwhile, because it stood still, is refused its offsets, and the transaction is aborted with what it has
written. Readers of committed records (isolation.level=read_committed) see none of that."""

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
    """Works for as long as it is to go on; ProducerFencedError where another one has the name now."""
    while goes_on():
        cluster = Cluster(bootstrap)
        try:
            async with (
                Producer(cluster, transactional_id=f"{GROUP}-{name}") as producer,
                GroupConsumer(
                    cluster,
                    GROUP,
                    [source],
                    MembershipOptions(group_instance_id=name),  # started again it has its partitions at once
                    auto_offset_reset="earliest",
                    auto_commit_seconds=None,  # transactions alone commit offsets
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
            # The transaction was aborted, and what it had read is read again: by a new member, from what is committed.
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
