"""Quotas: jesenska against Apache Kafka 4.3.1, in the same run.

    python -m bench.quota_bench                     1, 10 and 100 producers, then waits; 5 minutes
    python -m bench.quota_bench --seconds 10 --clients 1 10

Both brokers run at the same time and the rows alternate between them. In a row several producers send as fast as they
may under `producer_byte_rate`, all together 10 MB/s. After the first windows the rate is measured, as a part of the
quota, over three times eleven seconds: a client sends in a burst what its windows allow, and then waits for the next.
Meanwhile a bystander, another client id, sends a record every 20 ms: its p99 alone, and beside the others.

The last row sends the same requests one after the other to both: the greatest difference of `throttle_time_ms`."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection

from bench.brokers import KAFKA
from bench.needs import kafka, require
from bench.raw_clients import create_topic
from jesenska.client.administration.admin import Admin
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

_TOTAL_BYTES: Final = 10_000_000
_RECORD_BYTES: Final = 5_000
_PAUSE_SECONDS: Final = 0.02
#: The windows before the measurement: a client may use in a burst what it has left.
_WARM_UP_SECONDS: Final = 12.0
_TOPIC: Final = "quotas"
_RAW_QUOTA: Final = 50_000.0
_RAW_BYTES: Final = (100_000, 450_000, 20_000, 20_000, 60_000, 150_000, 1_000, 90_000)


class Row(NamedTuple):
    """The rate as a part of the quota, and the bystander's p99 in ms: alone, and beside the others."""

    rate: float
    p99_alone_ms: float
    p99_ms: float


class Throttled:
    """A producer that sends as fast as it may, and counts what is acknowledged."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._cluster = Cluster(bootstrap, ClientConfig(client_id=client_id, request_timeout_seconds=120.0))
        self.sent_bytes = 0
        self._is_stopping = False

    async def run(self) -> None:
        async with Producer(self._cluster, batch_size=20_000, linger_seconds=0.0) as producer:
            while not self._is_stopping:
                for sent in [await producer.send(_TOPIC, b"x" * _RECORD_BYTES) for _ in range(4)]:
                    await sent
                self.sent_bytes += 4 * _RECORD_BYTES
        await self._cluster.close()

    def stop(self) -> None:
        self._is_stopping = True


async def _bystander(bootstrap: str, seconds: float) -> float:
    """The p99 of sending one record, in ms."""
    cluster = Cluster(bootstrap, ClientConfig(client_id="bystander"))
    taken = []
    async with Producer(cluster, linger_seconds=0.0) as producer:
        await (await producer.send(_TOPIC, b"first"))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            await (await producer.send(_TOPIC, b"x" * 100))
            taken.append(time.monotonic() - began)
            await asyncio.sleep(_PAUSE_SECONDS)
    await cluster.close()
    return sorted(taken)[int(len(taken) * 0.99)] * 1000


async def _limit(bootstrap: str, quotas: Mapping[str, float | None]) -> None:
    cluster = Cluster(bootstrap)
    await Admin(cluster).alter_client_quotas(
        [
            ({"client-id": None}, quotas),
            ({"client-id": "bystander"}, {"producer_byte_rate": 1e12}),
            ({"client-id": "raw"}, {"producer_byte_rate": _RAW_QUOTA}),
        ]
    )
    await cluster.close()


async def _row(bootstrap: str, clients: int, seconds: float) -> Row:
    await _limit(bootstrap, {"producer_byte_rate": _TOTAL_BYTES // clients})
    alone = await _bystander(bootstrap, seconds / 3)
    throttled = [Throttled(bootstrap, f"row-{clients}-{number}") for number in range(clients)]
    tasks = [asyncio.ensure_future(one.run()) for one in throttled]
    await asyncio.sleep(_WARM_UP_SECONDS)
    before, began = sum(one.sent_bytes for one in throttled), time.monotonic()
    p99 = await _bystander(bootstrap, seconds)
    rate = (sum(one.sent_bytes for one in throttled) - before) / (time.monotonic() - began)
    for one in throttled:
        one.stop()
    await _limit(bootstrap, {"producer_byte_rate": 1e12})
    await asyncio.gather(*tasks)
    return Row(rate / _TOTAL_BYTES, alone, p99)


def _waits(bootstrap: str) -> list[int]:
    """The `throttle_time_ms` of requests that are sent one after the other; each waits as long as it is told."""
    found = []
    with RawConnection(bootstrap, seconds=60.0) as connection:
        for size in _RAW_BYTES:
            records = bytes(encode_batch([(0, None, b"x" * size, ())]))
            topic = ProduceRequestTopic(name=_TOPIC, partition_data=[ProduceRequestPartition(index=0, records=records)])
            request = ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[topic])
            found.append(connection.ask(request, 8, ProduceResponse).throttle_time_ms)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=33.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 10, 100])
    options = parser.parse_args()
    require("quota_bench", kafka(KAFKA))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(BrokerProcess(directory / "data"))
        theirs = stack.enter_context(ApacheKafka(KAFKA, directory / "kafka"))
        sides = {"jesenska": ours.bootstrap, f"Apache Kafka {KAFKA}": theirs.bootstrap}
        for bootstrap in sides.values():
            create_topic(bootstrap, _TOPIC, 1)
        print("| producers | broker | rate / quota | bystander's p99 alone | beside them |")
        print("|---|---|---|---|---|", flush=True)
        for clients in options.clients:
            for name, bootstrap in sides.items():
                row = asyncio.run(_row(bootstrap, clients, options.seconds))
                print(
                    f"| {clients} | {name} | {row.rate:.3f} | {row.p99_alone_ms:.1f} ms | {row.p99_ms:.1f} ms |",
                    flush=True,
                )
        waits = {name: _waits(bootstrap) for name, bootstrap in sides.items()}
        for name, found in waits.items():
            print(f"throttle_time_ms of {name}: {found}")
        ours_ms, theirs_ms = waits.values()
        print(f"greatest difference: {max(abs(a - b) for a, b in zip(ours_ms, theirs_ms, strict=True))} ms")


if __name__ == "__main__":
    main()
