"""examples/consume_transform_produce.py: each input is in the output once, also where the program is killed and
another instance takes over."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess

EXAMPLE = Path(__file__).parents[3] / "examples" / "consume_transform_produce.py"
_PARTITIONS, _SECONDS = 2, 60.0


@contextmanager
def _running(bootstrap: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(EXAMPLE), bootstrap, "orders", "invoices", name])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _fill(bootstrap: str, first: int, count: int) -> None:
    cluster = Cluster(bootstrap)
    await Admin(cluster).create_topics([NewTopic(topic, _PARTITIONS, 1) for topic in ("orders", "invoices")])
    async with Producer(cluster) as producer:
        for number in range(first, first + count):
            await producer.send("orders", b"%d" % number, partition=number % _PARTITIONS)
    await cluster.close()


async def _until_read(bootstrap: str, count: int) -> list[bytes]:
    """The values that a reader of committed records finds, when there are this many."""
    cluster = Cluster(bootstrap)
    keys = [TopicPartition("invoices", number) for number in range(_PARTITIONS)]
    deadline = time.monotonic() + _SECONDS
    found: list[bytes] = []
    async with Consumer(cluster, auto_offset_reset="none", isolation_level=1) as consumer:
        await consumer.assign(dict.fromkeys(keys, EARLIEST))
        while len(found) < count:
            assert time.monotonic() < deadline, found
            for records in (await consumer.poll(1)).values():
                found += [bytes(record.value or b"") for record in records]
        ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST), 1)
        while any(consumer.position(key) < ends[key].offset for key in keys):
            for records in (await consumer.poll(1)).values():
                found += [bytes(record.value or b"") for record in records]
    await cluster.close()
    return sorted(found)


def test_each_input_is_in_the_output_once(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings=settings, warm=True) as broker:
        asyncio.run(_fill(broker.bootstrap, 0, 500))
        with _running(broker.bootstrap, "a"):
            asyncio.run(_until_read(broker.bootstrap, 500))
            asyncio.run(_fill(broker.bootstrap, 500, 500))
        # The program was killed at any point. The next one with its name continues.
        with _running(broker.bootstrap, "a"):
            values = asyncio.run(_until_read(broker.bootstrap, 1000))
    assert values == sorted(b"invoice for %d" % number for number in range(1000))
