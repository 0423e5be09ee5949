"""How long a broker takes to be ready after kill -9, by gigabyte of log that it has to check.

    python bench/restart_bench.py [--directory D] [--gigabytes 2] [--rounds 3]

A log is written beside the broker as a load would have left it, none of it below the recovery point; the broker is
killed and started on it, and what is measured is the time until clients can connect, less that of a start without
data. The log's pages are in memory, as they are after a kill; a machine that went down reads them from its disk first.

Rows: batches of 16 KB and of one record of 100 bytes, of producers with and without idempotence, in one partition and
in four.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.log.disk.checkpoints import CLEAN_SHUTDOWN
from jesenska.records.batch import iter_headers, stamp_offsets
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess

_SEGMENT_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_TOPIC = "restart"


class Row(NamedTuple):
    name: str
    records: int
    value_bytes: int
    once: bool
    partitions: int


ROWS = [
    Row("16 KB batches", 16, 1000, False, 1),
    Row("16 KB batches, idempotent", 16, 1000, True, 1),
    Row("16 KB batches, idempotent, 4 partitions", 16, 1000, True, 4),
    Row("one-record batches", 1, 100, False, 1),
    Row("one-record batches, idempotent", 1, 100, True, 1),
    Row("one-record batches, idempotent, 4 partitions", 1, 100, True, 4),
]


def write_log(directory: Path, size_bytes: int, row: Row) -> None:
    """The segments of a partition, as many producers would have written them."""
    now_ms = int(time.time() * 1000)
    batches: list[bytes] = []
    while len(batches) < 1000:
        producer_id = 1000 + len(batches) % 50 if row.once else -1
        epoch, sequence = (0, len(batches) // 50 * row.records) if row.once else (-1, -1)
        records = [(now_ms, None, bytes(row.value_bytes), ()) for _ in range(row.records)]
        batches.append(
            bytes(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
        )
    batches *= 1 + _CHUNK_BYTES // sum(len(batch) for batch in batches)
    chunk = memoryview(bytearray(b"".join(batches)))
    positions = [position for position, _ in iter_headers(chunk)]
    offset = written = 0
    while written < size_bytes:
        with (directory / f"{offset:020}.log").open("wb", buffering=0) as segment:
            while segment.tell() + len(chunk) <= _SEGMENT_BYTES and written < size_bytes:
                for position in positions:
                    stamp_offsets(chunk, position, offset, 0)
                    offset += row.records
                segment.write(chunk)
                written += len(chunk)


def _create(bootstrap: str, partitions: int) -> None:
    async def work() -> None:
        cluster = Cluster(bootstrap)
        try:
            assert await Admin(cluster).create_topics([NewTopic(_TOPIC, partitions, 1)]) == {_TOPIC: None}
        finally:
            await cluster.close()

    asyncio.run(work())


def _start(broker: BrokerProcess) -> float:
    begun = time.perf_counter()
    broker.start()
    return time.perf_counter() - begun


def seconds_per_gb(directory: Path, row: Row, gigabytes: float, rounds: int) -> tuple[float, float]:
    """Seconds a GB, and seconds to ready, the best of some rounds."""
    data = directory / "data"
    broker = BrokerProcess(data, ready_seconds=600)
    broker.start()
    _create(broker.bootstrap, row.partitions)
    broker.kill()
    empty = min(_killed_and_started(broker) for _ in range(rounds))
    size_bytes = int(gigabytes * 1e9 / row.partitions)
    for partition in range(row.partitions):
        write_log(data / f"{_TOPIC}-{partition}", size_bytes, row)
    assert not (data / CLEAN_SHUTDOWN).exists()
    checkpoint = data / "recovery-point-offset-checkpoint"
    checkpoint.unlink(missing_ok=True)
    taken = []
    for _ in range(rounds):
        taken.append(_killed_and_started(broker))
        # The log just checked is not synced: the next start checks it again.
        checkpoint.unlink(missing_ok=True)
    return (min(taken) - empty) / gigabytes, statistics.median(taken)


def _killed_and_started(broker: BrokerProcess) -> float:
    taken = _start(broker)
    broker.kill()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':50}{'s/GB':>8}{'seconds to ready':>20}")
    for row in ROWS:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            per_gb, seconds = seconds_per_gb(Path(directory), row, options.gigabytes, options.rounds)
        print(f"{row.name:50}{per_gb:8.2f}{seconds:20.2f}", flush=True)


if __name__ == "__main__":
    main()
