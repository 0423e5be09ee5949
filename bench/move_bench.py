"""A replica moves from one log directory of its broker to another: jesenska against Apache Kafka 3.9.1, on the same
batches.

    python -m bench.move_bench                       both rows, 3 rounds; 10 minutes
    python -m bench.move_bench --rounds 1 --scale 0.2 --rows load

Two gigabytes in batches of 100 KB are moved without a throttle, at rest or while a producer writes 10 KB to the same
partition every few milliseconds: `MB/s` from the request (AlterReplicaLogDirs) until the replica is in the other
directory (DescribeLogDirs), and the broker's CPU seconds meanwhile. The producer measures its requests before and
meanwhile; `loop late` is jesenska's own figure. Both directories are on one disk."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from pathlib import Path

from bench.broker_a_row import run_rows
from bench.brokers import Broker
from bench.figures import Figures, cpu, percentile
from bench.machine import settle
from bench.raw_clients import PRODUCE_VERSION, Repeated, ask, check, connect, create_topic, frame
from jesenska.records.encode import encode_batch
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from jesenska.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)

_RELEASE = "3.9.1"
_BYTES = 2_000_000_000
_BATCH_BYTES, _SMALL_BATCH_BYTES = 100_000, 10_000
_IN_FLIGHT = 5
_EVERY_MS = 4
_BEFORE_SECONDS = 5.0
_LIMIT_SECONDS = 900.0
_ROWS = ("at rest", "under load")


def _produce(topic: str, size_bytes: int, seed: int) -> bytes:
    batch = encode_batch([(0, None, random.Random(seed).randbytes(size_bytes), ())])
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=batch)])
    return frame(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), PRODUCE_VERSION)


def _answer(connection: socket.socket) -> bytes:
    """One answer, of several in flight."""
    length = connection.recv(4, socket.MSG_WAITALL)
    return length + connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)


def _fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    requests = [_produce(topic, _BATCH_BYTES, seed) for seed in range(50)]
    with connect(bootstrap) as connection:
        for number in range(size_bytes // _BATCH_BYTES):
            connection.sendall(requests[number % len(requests)])
            if number >= _IN_FLIGHT:
                check(_answer(connection), topic)
        for _ in range(min(_IN_FLIGHT, size_bytes // _BATCH_BYTES)):
            check(_answer(connection), topic)


class _Producer(Repeated):
    """Sends a batch every few milliseconds."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(
            bootstrap, _produce(topic, _SMALL_BATCH_BYTES, 0), _EVERY_MS, lambda answer: check(answer, topic)
        )


def _homes(bootstrap: str, topic: str) -> tuple[str, bool, int]:
    """The directory of the replica, True if another copy is being made, and the replica's size."""
    asked = DescribeLogDirsRequest(topics=[DescribeLogDirsRequestTopic(topic=topic, partitions=[0])])
    with connect(bootstrap) as connection:
        answer = ask(connection, asked, 1, DescribeLogDirsResponse)
    replicas = [
        (result.log_dir, replica) for result in answer.results for item in result.topics for replica in item.partitions
    ]
    path, size_bytes = next((path, replica.partition_size) for path, replica in replicas if not replica.is_future_key)
    return path, len(replicas) > 1, size_bytes


def _move(bootstrap: str, topic: str, target: str) -> None:
    wanted = AlterReplicaLogDirsRequestDir(
        path=target, topics=[AlterReplicaLogDirsRequestTopic(name=topic, partitions=[0])]
    )
    with connect(bootstrap) as connection:
        answer = ask(connection, AlterReplicaLogDirsRequest(dirs=[wanted]), 1, AlterReplicaLogDirsResponse)
    if answer.results[0].partitions[0].error_code:
        raise SystemExit(f"the replica is not moved: error {answer.results[0].partitions[0].error_code}")
    begun = time.monotonic()
    while True:
        path, is_on_its_way, _ = _homes(bootstrap, topic)
        if path == target and not is_on_its_way:
            return
        if time.monotonic() > begun + _LIMIT_SECONDS:
            raise SystemExit(f"the replica has not moved within {_LIMIT_SECONDS:.0f} s")
        threading.Event().wait(0.02)


def _row(broker: Broker, directories: list[str], row: str, scale: float, figures: Figures) -> None:
    topic = row.replace(" ", "-")
    create_topic(broker.bootstrap, topic, 1)
    _fill(broker.bootstrap, topic, int(_BYTES * scale))
    settle()
    home, _, size_bytes = _homes(broker.bootstrap, topic)
    target = next(path for path in directories if path != home)
    if row == "under load":
        with _Producer(broker.bootstrap, topic) as producer:
            threading.Event().wait(_BEFORE_SECONDS)
        figures.add(row, "producer's p99 ms before", percentile(producer.latencies_ms, 0.99))
        figures.add(row, "producer's max ms before", max(producer.latencies_ms))
    broker.loop_lag_p99_ms()
    before, begun = cpu(broker.pid), time.monotonic()
    latencies: list[float] = []
    with broker.profiled(row):
        if row == "under load":
            with _Producer(broker.bootstrap, topic) as producer:
                _move(broker.bootstrap, topic, target)
                seconds = time.monotonic() - begun
            latencies = producer.latencies_ms
        else:
            _move(broker.bootstrap, topic, target)
            seconds = time.monotonic() - begun
    figures.add(row, "MB/s", size_bytes / seconds / 1e6)
    figures.add(row, "broker CPU s", cpu(broker.pid).total - before.total)
    if latencies:
        figures.add(row, "producer's p99 ms meanwhile", percentile(latencies, 0.99))
        figures.add(row, "producer's max ms meanwhile", max(latencies))
    lag = broker.loop_lag_p99_ms()
    if lag is not None:
        figures.add(row, "loop late p99 ms", lag[0])


def _directories(place: Path) -> list[str]:
    return [str(place / "one"), str(place / "two")]


def main() -> int:
    return run_rows(
        "Benchmarks moves of replicas between log directories against Apache Kafka's.",
        _ROWS,
        lambda place: {"log.dirs": ",".join(_directories(place)), "num.partitions": "1"},
        lambda run: _row(run.broker, _directories(run.place), run.row, run.scale, run.figures),
        release=_RELEASE,
    )


if __name__ == "__main__":
    sys.exit(main())
