"""Rows of many records: Apache Kafka's perf tools and kcat write and read them."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from functools import partial

from bench.brokers import KAFKA
from bench.figures import percentile
from bench.machine import settle
from bench.needs import KCAT, kafka
from bench.raw_clients import Probe
from bench.rows import Row, Run

_SIXTY_FOUR_KB = ("batch.size=65536", "linger.ms=10")
_LZ4 = ("compression.type=lz4",)
_RECORDS = {100: 5_000_000, 1000: 1_000_000}
_TOOLS = kafka(KAFKA)
#: A queue that a reader never fills: with a full queue kcat at times waits for a second, which is not the broker's
#: time.
_ROOMY = ("queued.min.messages=10000000", "queued.max.messages.kbytes=1000000")


def _topic(run: Run, size: int, partitions: int) -> str:
    return run.topic(f"of-{size}-{partitions}", partitions)


def _perf(run: Run, topic: str, records: int, size: int, settings: tuple[str, ...]) -> str:
    said = run.tool(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(size),
        "--throughput",
        "-1",
        "--bootstrap-server",
        run.broker.bootstrap,
        "--command-property",
        *settings,
    )
    run.topics[topic] += records
    return said


def _filled(run: Run, size: int, partitions: int) -> str:
    """The name of a topic with at least twice the row's number of records, so that each partition has its even
    share."""
    topic, records = _topic(run, size, partitions), run.scaled(_RECORDS[size])
    while run.topics[topic] < 2 * records:
        _perf(run, topic, records, size, ("acks=1", *_SIXTY_FOUR_KB))
    return topic


def _produce(run: Run, row: str, *, size: int, partitions: int, settings: tuple[str, ...], probe: bool = False) -> None:
    topic, records = _topic(run, size, partitions), run.scaled(_RECORDS[size])
    if "warm" not in run.topics:
        # The first run of a Java broker is slower than later ones: both get the same warm-up.
        _perf(run, run.topic("warm", 6), run.scaled(500_000), 100, ("acks=1",))
    settle(run.scale)
    with run.measured(row):
        if probe:
            with Probe(run.broker.bootstrap) as other:
                said = _perf(run, topic, records, size, settings)
            run.figures.add(row, "p50 ms of another client's small request", percentile(other.latencies_ms, 0.5))
            run.figures.add(row, "p99 ms of another client's small request", percentile(other.latencies_ms, 0.99))
            return
        said = _perf(run, topic, records, size, settings)
    run.figures.add(row, "records/s", float(re.findall(r"([\d.]+) records/sec", said)[-1]))


def _kcat_produce(run: Run, row: str) -> None:
    topic, records = _topic(run, 100, 6), run.scaled(1_000_000)
    with tempfile.NamedTemporaryFile() as lines:
        lines.write((b"x" * 99 + b"\n") * records)
        lines.flush()
        settle(run.scale)
        with run.measured(row):
            begun = time.monotonic()
            run.command(
                [
                    "kcat",
                    "-b",
                    run.broker.bootstrap,
                    "-P",
                    "-t",
                    topic,
                    "-X",
                    "queue.buffering.max.messages=1000000",
                    "-l",
                    lines.name,
                ]
            )
            seconds = time.monotonic() - begun
    run.figures.add(row, "records/s", records / seconds)


def _group(run: Run, row: str, *, size: int, partitions: int) -> None:
    topic, records = _filled(run, size, partitions), run.scaled(_RECORDS[size])
    # A new group for each reading: it begins at the first record.
    group = f"group-{re.sub(r'[^a-z0-9]+', '-', row)}-{len(run.figures.values.get((row, 'records/s'), ()))}"
    settle(run.scale)
    with run.measured(row):
        said = run.tool(
            "kafka-consumer-perf-test",
            "--bootstrap-server",
            run.broker.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--group",
            group,
            "--timeout",
            "60000",
            "--hide-header",
        )
    fields = [word.strip() for word in said.strip().splitlines()[-1].split(",")]
    assert int(fields[4]) >= records, said
    run.figures.add(row, "records/s", float(fields[5]))
    run.figures.add(row, "records/s after joining", float(fields[9]))


def _kcat(run: Run, row: str, *, partitions: int, settings: tuple[str, ...] = (), readings: int = 3) -> None:
    topic, records = _filled(run, 100, partitions), run.scaled(_RECORDS[100])
    extra = [word for setting in settings for word in ("-X", setting)]
    for _ in range(readings):
        settle(run.scale)
        with run.measured(row):
            begun = time.monotonic()
            reading = [
                "kcat",
                "-b",
                run.broker.bootstrap,
                "-C",
                "-t",
                topic,
                "-o",
                "beginning",
                "-c",
                str(records // partitions),
                "-e",
                "-q",
                *extra,
            ]
            readers = [
                subprocess.Popen([*reading, "-p", str(index)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for index in range(partitions)
            ]
            if any([reader.wait() for reader in readers]):  # noqa: C419  (each is waited for)
                raise SystemExit(f"kcat failed against {run.broker.name}")
            seconds = time.monotonic() - begun
        run.figures.add(row, "records/s", records / seconds)


def _produce_row(size: int, partitions: int, acks: str, settings: tuple[str, ...] = (), said: str = "") -> Row:
    records = "5 M" if size == 100 else "1 M"
    name = f"produce {records} x {size} B, {partitions} partition{'s' if partitions > 1 else ''}, acks={acks}{said}"
    return Row(
        name, "load", partial(_produce, size=size, partitions=partitions, settings=(f"acks={acks}", *settings)), _TOOLS
    )


ROWS = [
    _produce_row(100, 6, "1"),
    _produce_row(100, 1, "1"),
    _produce_row(100, 6, "1", _SIXTY_FOUR_KB, ", 64 KB batches"),
    _produce_row(1000, 6, "1"),
    _produce_row(100, 6, "all"),
    _produce_row(100, 1, "all"),
    _produce_row(100, 1, "all", _SIXTY_FOUR_KB, ", 64 KB batches"),
    _produce_row(100, 6, "1", _LZ4, ", lz4"),
    _produce_row(100, 1, "1", _LZ4, ", lz4"),
    _produce_row(100, 6, "all", (*_SIXTY_FOUR_KB, *_LZ4), ", 64 KB batches, lz4"),
    _produce_row(1000, 6, "all", _SIXTY_FOUR_KB, ", 64 KB batches"),
    _produce_row(1000, 1, "all"),
    _produce_row(1000, 1, "1", (*_SIXTY_FOUR_KB, *_LZ4), ", 64 KB batches, lz4"),
    Row("produce 1 M x 100 B, 6 partitions, kcat", "load", _kcat_produce, (KCAT,)),
    Row(
        "while 5 M x 100 B are produced",
        "load",
        partial(_produce, size=100, partitions=6, settings=("acks=1",), probe=True),
        _TOOLS,
    ),
    Row("consume 5 M x 100 B, 6 partitions, group", "load", partial(_group, size=100, partitions=6), _TOOLS),
    Row("consume 5 M x 100 B, 1 partition, group", "load", partial(_group, size=100, partitions=1), _TOOLS),
    Row("consume 1 M x 1000 B, 6 partitions, group", "load", partial(_group, size=1000, partitions=6), _TOOLS),
    # In about a third of its readings kcat sleeps for a second, with either broker: nine show how fast it is.
    Row("consume 5 M x 100 B, 1 partition, kcat", "load", partial(_kcat, partitions=1, readings=9), (*_TOOLS, KCAT)),
    Row(
        "consume 5 M x 100 B, 1 partition, kcat with a queue that never fills",
        "load",
        partial(_kcat, partitions=1, settings=_ROOMY),
        (*_TOOLS, KCAT),
    ),
    Row("consume 5 M x 100 B, 6 partitions, 6 kcat", "load", partial(_kcat, partitions=6), (*_TOOLS, KCAT)),
]
