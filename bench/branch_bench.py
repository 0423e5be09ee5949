"""How long a branch of a large topic takes, from the request to its answer, and what it takes on the disk.

    python -m bench.branch_bench [--directory D] [--gigabytes 10] [--branches 1000]

A log of one partition is written beside the broker, in batches of 16 KB and segments of 1 GB, and the broker started
on it. Apache Kafka has nothing like it; copying the records through clients (MirrorMaker) is what takes its place
there.

    first branch    the active segment, of up to 1 GB, is rolled, so that it can be shared
    under load      a producer writes meanwhile: what it has written since the last roll is copied, or rolled
    again           nothing was written since
    many            so many branches of the same topic, one after the other
    source deleted  then every branch is asked for its end, and one of them read from the beginning
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.restart_bench import ROWS, write_log
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess

_SOURCE = "orders"
_AGAIN = 20


def disk_bytes(path: Path) -> int:
    """The disk space of the files, those with several names once."""
    seen = {}
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # a file that is being replaced
                status = (Path(directory) / name).stat()
                seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


async def _branch(admin: Admin, name: str) -> float:
    begun = time.perf_counter()
    await admin.branch_topic(_SOURCE, name)
    return (time.perf_counter() - begun) * 1000


async def _under_load(cluster: Cluster, admin: Admin) -> float:
    async def load() -> None:
        async with Producer(cluster, acks=1) as producer:
            while True:
                for _ in range(50):
                    await producer.send(_SOURCE, bytes(16_000), partition=0)
                await producer.flush()

    loading = asyncio.ensure_future(load())
    try:
        await asyncio.sleep(1)
        return await _branch(admin, "under-load")
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


async def _read_bytes(cluster: Cluster, name: str) -> int:
    key = TopicPartition(name, 0)
    end = (await list_offsets(cluster, {key: LATEST}))[key].offset
    read = 0
    async with Consumer(cluster, auto_offset_reset="none", max_partition_bytes=8 << 20) as consumer:
        await consumer.assign({key: EARLIEST})
        while consumer.position(key) < end:
            read += sum(len(fetched.data) for fetched in await consumer.poll_raw(1))
    return read


async def _measure(broker: BrokerProcess, branches: int) -> None:
    cluster = Cluster(broker.bootstrap)
    admin = Admin(cluster)
    try:
        _tell("first branch", "ms", await _branch(admin, "first"))
        _tell("under load", "ms", await _under_load(cluster, admin))
        await _branch(admin, "settles")
        _tell(
            "again, median",
            "ms",
            statistics.median([await _branch(admin, f"again-{number}") for number in range(_AGAIN)]),
        )
        before, begun = disk_bytes(broker.data), time.perf_counter()
        taken = [await _branch(admin, f"trial-{number}") for number in range(branches)]
        _tell(f"{branches} branches", "s", time.perf_counter() - begun)
        _tell(f"{branches} branches, slowest", "ms", max(taken))
        _tell(f"{branches} branches, disk a branch", "KB", (disk_bytes(broker.data) - before) / branches / 1000)
        keys = [TopicPartition(f"trial-{number}", 0) for number in range(branches)]
        source = TopicPartition(_SOURCE, 0)
        end = (await list_offsets(cluster, {source: LATEST}))[source].offset
        assert await admin.delete_topics([_SOURCE]) == {_SOURCE: None}
        ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
        assert {found.offset for found in ends.values()} == {end}
        begun = time.perf_counter()
        read = await _read_bytes(cluster, keys[-1].topic)
        _tell("source deleted, a branch read", "GB", read / 1e9)
        _tell("source deleted, a branch read", "s", time.perf_counter() - begun)
    finally:
        await cluster.close()


def _tell(row: str, unit: str, value: float) -> None:
    print(f"{row:40}{value:12,.1f} {unit}", flush=True)


async def _create(broker: BrokerProcess) -> None:
    cluster = Cluster(broker.bootstrap)
    try:
        assert await Admin(cluster).create_topics([NewTopic(_SOURCE, 1, 1, configs={"retention.ms": "-1"})]) == {
            _SOURCE: None
        }
    finally:
        await cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--branches", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        data = Path(directory) / "data"
        with BrokerProcess(data) as broker:
            asyncio.run(_create(broker))
            broker.stop()
        write_log(data / f"{_SOURCE}-0", int(options.gigabytes * 1e9), ROWS[0])
        os.sync()  # as a broker does with rolled segments
        with BrokerProcess(data, ready_seconds=600) as broker:
            asyncio.run(_measure(broker, options.branches))


if __name__ == "__main__":
    main()
