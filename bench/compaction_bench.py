"""Compaction of ten million keyed records: jesenska's cleaner against Apache Kafka's, on the same batches.

    python -m bench.compaction_bench                       both rows, 3 rounds; 15 minutes
    python -m bench.compaction_bench --rounds 1 --scale 0.1 --rows plain

Records of 100 bytes with a million keys, at random, in batches of 16 KB, written to a topic that is not compacted yet;
then it is, as a whole: `seconds` until the checkpoint of the cleaner has its end, and the broker's CPU seconds
meanwhile. A client with a small request every few milliseconds measures its waiting time before and meanwhile; `loop
late` is jesenska's own figure. One compaction runs at a time, with Kafka's defaults for its memory."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.broker_a_row import run_rows
from bench.brokers import Broker
from bench.figures import Figures, cpu, percentile, resident_mb
from bench.machine import settle
from bench.raw_clients import PRODUCE_VERSION, Probe, ask, check, connect, frame, wait_for_leaders
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

_RECORDS, _KEYS = 10_000_000, 1_000_000
_VALUE_BYTES, _RECORDS_IN_BATCH = 80, 150
_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1", "num.partitions": "1"}
_ROWS = {"plain": Codec.NONE, "lz4": Codec.LZ4}
_IN_FLIGHT = 5
_DAY_MS = 86_400_000
_BEFORE_SECONDS = 3.0
_LIMIT_SECONDS = 900.0


def _batches(codec: Codec, records: int, time_ms: int) -> Iterator[bytes]:
    """The batches, the same for every broker; the last one is late enough to begin another segment."""
    rng = random.Random(7)
    values = [rng.randbytes(_VALUE_BYTES // 2) + bytes(_VALUE_BYTES - _VALUE_BYTES // 2) for _ in range(1000)]
    keys = max(1, records // (_RECORDS // _KEYS))
    for begun in range(0, records, _RECORDS_IN_BATCH):
        count = min(_RECORDS_IN_BATCH, records - begun)
        made = [(time_ms, b"key-%016d" % rng.randrange(keys), values[rng.randrange(1000)], ()) for _ in range(count)]
        yield bytes(encode_batch(made, codec))
    yield bytes(encode_batch([(time_ms + 8 * _DAY_MS, b"last", b"", ())], codec))


def _answer(connection: socket.socket) -> bytes:
    """One answer, of several in flight."""
    length = connection.recv(4, socket.MSG_WAITALL)
    return length + connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)


def _fill(bootstrap: str, topic: str, batches: Iterator[bytes]) -> None:
    waiting = 0
    with connect(bootstrap) as connection:
        for batch in batches:
            data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=batch)])
            connection.sendall(frame(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), PRODUCE_VERSION))
            waiting += 1
            if waiting == _IN_FLIGHT:
                check(_answer(connection), topic)
                waiting -= 1
        for _ in range(waiting):
            check(_answer(connection), topic)


def _create(bootstrap: str, topic: str) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    wanted = CreateTopicsRequestTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=[CreateTopicsRequestConfig(name=key, value=value) for key, value in configs.items()],
    )
    with connect(bootstrap) as connection:
        answer = ask(connection, CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 5, CreateTopicsResponse)
    if answer.topics[0].error_code:
        raise SystemExit(f"the topic cannot be created: {answer.topics[0].error_message}")
    wait_for_leaders(bootstrap, topic, 1)


def _compact(bootstrap: str, topic: str) -> None:
    change = IncrementalAlterConfigsRequestConfig(name="min.cleanable.dirty.ratio", config_operation=0, value="0.0")
    resource = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name=topic, configs=[change])
    with connect(bootstrap) as connection:
        answer = ask(
            connection,
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            0,
            IncrementalAlterConfigsResponse,
        )
    if answer.responses[0].error_code:
        raise SystemExit(f"the topic cannot be changed: {answer.responses[0].error_message}")


def _compacted_up_to(directory: Path, topic: str) -> int:
    """The offset in the cleaner's checkpoint; -1 without one."""
    for path in directory.rglob("cleaner-offset-checkpoint"):
        for line in path.read_text().splitlines()[2:]:
            name, _, offset = line.split()
            if name == topic:
                return int(offset)
    return -1


def _row(broker: Broker, directory: Path, row: str, codec: Codec, scale: float, figures: Figures) -> None:
    records = int(_RECORDS * scale)
    _create(broker.bootstrap, row)
    _fill(broker.bootstrap, row, _batches(codec, records, int(time.time() * 1000) - 30 * _DAY_MS))
    settle()
    with Probe(broker.bootstrap) as probe:
        threading.Event().wait(_BEFORE_SECONDS)
    figures.add(row, "p99 ms of a small request before", percentile(probe.latencies_ms, 0.99))
    broker.loop_lag_p99_ms()
    idle_mb = peak_mb = resident_mb(broker.pid)
    before, begun = cpu(broker.pid), time.monotonic()
    with Probe(broker.bootstrap) as probe, broker.profiled(row):
        _compact(broker.bootstrap, row)
        while _compacted_up_to(directory, row) < records:
            if time.monotonic() > begun + _LIMIT_SECONDS:
                raise SystemExit(f"{broker.name} has not compacted {row} within {_LIMIT_SECONDS:.0f} s")
            threading.Event().wait(0.02)
            peak_mb = max(peak_mb, resident_mb(broker.pid))
        seconds = time.monotonic() - begun
        after = cpu(broker.pid)
    figures.add(row, "seconds", seconds)
    figures.add(row, "broker CPU s", after.total - before.total)
    figures.add(row, "MB more resident at most", peak_mb - idle_mb)
    figures.add(row, "p99 ms of a small request meanwhile", percentile(probe.latencies_ms, 0.99))
    lag = broker.loop_lag_p99_ms()
    if lag is not None:
        figures.add(row, "loop late p99 ms", lag[0])


def main() -> int:
    return run_rows(
        "Benchmarks jesenska's compaction against Apache Kafka's.",
        _ROWS,
        lambda _: _SETTINGS,
        lambda run: _row(run.broker, run.place, run.row, _ROWS[run.row], run.scale, run.figures),
    )


if __name__ == "__main__":
    sys.exit(main())
