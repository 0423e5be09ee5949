"""Rows of small requests: one record each from many connections, latencies of single records, connections that do
nothing."""

from __future__ import annotations

import re
import socket
import time
from functools import partial

from bench.brokers import KAFKA
from bench.figures import cpu, percentile, resident_mb
from bench.needs import kafka
from bench.raw_clients import (
    ask,
    connect,
    end_to_end_latencies,
    fetch_frame,
    one_in_flight,
    produce_frame,
    produce_latencies,
)
from bench.rows import Row, Run
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

_CONNECTIONS = 32
_IDLE_SECONDS = 5.0


def _one_record_requests(run: Run, row: str, *, partitions: int, acks: int) -> None:
    topic = run.topic(f"small-{partitions}", partitions)
    frames = [produce_frame(topic, index, acks) for index in range(partitions)]
    one_in_flight(run.broker.bootstrap, topic, frames, _CONNECTIONS, max(partitions, run.scaled(50_000)))
    requests = max(partitions, run.scaled(300_000))
    with run.measured(row, requests):
        seconds = one_in_flight(run.broker.bootstrap, topic, frames, _CONNECTIONS, requests)
    run.figures.add(row, "requests/s", requests / seconds)


def _percentiles(run: Run, row: str, latencies_ms: list[float]) -> None:
    run.figures.add(row, "p50 ms", percentile(latencies_ms, 0.5))
    run.figures.add(row, "p99 ms", percentile(latencies_ms, 0.99))


def _produce_latency(run: Run, row: str, *, acks: int) -> None:
    topic = run.topic("latency", 1)
    produce_latencies(run.broker.bootstrap, topic, acks, run.scaled(5_000))
    _percentiles(run, row, produce_latencies(run.broker.bootstrap, topic, acks, run.scaled(10_000)))


def _end_to_end_latency(run: Run, row: str, *, acks: int) -> None:
    topic = run.topic("end-to-end", 1)
    end_to_end_latencies(run.broker.bootstrap, topic, acks, run.scaled(2_000))
    _percentiles(run, row, end_to_end_latencies(run.broker.bootstrap, topic, acks, run.scaled(5_000)))


def _kafka_end_to_end(run: Run, row: str, *, acks: str) -> None:
    topic = run.topic(f"kafka-end-to-end-{acks}", 1)
    with run.measured(row):
        said = run.tool("kafka-end-to-end-latency", run.broker.bootstrap, topic, str(run.scaled(10_000)), acks, "100")
    average = re.search(r"Avg latency: ([\d.]+) ms", said)
    shares = re.search(r"50th = ([\d.]+), 99th = ([\d.]+)", said)
    assert average is not None and shares is not None, said
    run.figures.add(row, "mean ms", float(average[1]))
    run.figures.add(row, "p50 ms", float(shares[1]))
    run.figures.add(row, "p99 ms", float(shares[2]))


def _after_load(run: Run, row: str) -> None:
    run.figures.add(row, "resident MB", resident_mb(run.broker.pid))
    lag = run.broker.loop_lag_p99_ms()
    if lag is not None:
        run.figures.add(row, "event loop late, p99 ms since the start", lag[1])


def _idle(run: Run, row: str, *, connections: int) -> None:
    """Connections that have asked for the versions once and then send nothing."""
    topic = run.topic("latency", 1)
    produce_latencies(run.broker.bootstrap, topic, 1, run.scaled(5_000))
    before = resident_mb(run.broker.pid)
    idle: list[socket.socket] = []
    try:
        for _ in range(connections):
            idle.append(connect(run.broker.bootstrap))
            ask(
                idle[-1],
                ApiVersionsRequest(client_software_name="bench", client_software_version="1"),
                3,
                ApiVersionsResponse,
            )
        run.figures.add(row, "KB each", (resident_mb(run.broker.pid) - before) * 1024 / connections)
        used, seconds = cpu(run.broker.pid).total, max(0.5, _IDLE_SECONDS * min(1.0, run.scale))
        time.sleep(seconds)
        run.figures.add(row, "CPU % while idle", (cpu(run.broker.pid).total - used) / seconds * 100)
        latencies = produce_latencies(run.broker.bootstrap, topic, 1, run.scaled(10_000))
        run.figures.add(row, "p50 ms of another client's produce", percentile(latencies, 0.5))
        run.figures.add(row, "p99 ms of another client's produce", percentile(latencies, 0.99))
    finally:
        for connection in idle:
            connection.close()


def _slow(run: Run, row: str, *, connections: int) -> None:
    """Slow connections: a third sends nothing, a third sends a byte a second of an endless frame, a third asks for
    records and reads no answer."""
    topic = run.topic("latency", 1)
    produce_latencies(run.broker.bootstrap, topic, 1, run.scaled(5_000))
    one_in_flight(run.broker.bootstrap, topic, [produce_frame(topic, 0, 1, 10_000)], 4, 1_000)
    before = resident_mb(run.broker.pid)
    slow: list[socket.socket] = []
    try:
        for number in range(connections):
            slow.append(connect(run.broker.bootstrap))
            if number % 25 == 0:
                # Else the queue of connections to be accepted overflows, and the system tries again a second later.
                time.sleep(0.01)
        for connection in slow[1::3]:
            connection.send(b"\0\1\0\0")
        asking = fetch_frame(topic, 0, 0)
        for connection in slow[2::3]:
            connection.send(asking * 3)
        used, begun = cpu(run.broker.pid).total, time.monotonic()
        latencies: list[float] = []
        for _ in range(5):
            for connection in slow[1::3]:
                connection.send(b"\0")
            latencies += produce_latencies(run.broker.bootstrap, topic, 1, run.scaled(2_000))
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begun) % 1.0))
        run.figures.add(row, "p50 ms of another client's produce", percentile(latencies, 0.5))
        run.figures.add(row, "p99 ms of another client's produce", percentile(latencies, 0.99))
        run.figures.add(
            row, "broker CPU % meanwhile", (cpu(run.broker.pid).total - used) / (time.monotonic() - begun) * 100
        )
        run.figures.add(row, "KB each", (resident_mb(run.broker.pid) - before) * 1024 / connections)
    finally:
        for connection in slow:
            connection.close()


def _one_record_row(partitions: int, acks: str) -> Row:
    name = f"32 connections, one-record requests, {partitions:,} partition{'s' if partitions > 1 else ''}, acks={acks}"
    return Row(
        name, "load", partial(_one_record_requests, partitions=partitions, acks=-1 if acks == "all" else int(acks))
    )


ROWS = [
    _one_record_row(1, "1"),
    _one_record_row(1_000, "1"),
    _one_record_row(1, "all"),
    _one_record_row(1_000, "all"),
    Row("one record at a time, acks=1", "load", partial(_produce_latency, acks=1)),
    Row("one record at a time, acks=all", "load", partial(_produce_latency, acks=-1)),
    Row("one record at a time to a waiting fetch, acks=1", "load", partial(_end_to_end_latency, acks=1)),
    Row("kafka-e2e-latency, 100 B, acks=1", "load", partial(_kafka_end_to_end, acks="1"), kafka(KAFKA)),
    Row("kafka-e2e-latency, 100 B, acks=all", "load", partial(_kafka_end_to_end, acks="all"), kafka(KAFKA)),
    Row("after the load", "load", _after_load),
    Row("1,000 idle connections", "connections", partial(_idle, connections=1_000)),
    Row("999 connections: silent, a byte a second, or not reading", "connections", partial(_slow, connections=999)),
]
