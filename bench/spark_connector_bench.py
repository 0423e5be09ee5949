"""Rows a second between Spark and topics, beside Spark's official Kafka connector: read, read and write, a stream that
counts by key, and the time that a small micro-batch takes.

python bench/spark_connector_bench.py                  5,000,000 rows of 100 bytes with keys, 4 partitions, local[2],
                                                       three rounds
python bench/spark_connector_bench.py --rounds 1 --rows 200000
python bench/spark_connector_bench.py --rounds 15 --only stream        rows of that name alone

    jesenska              our source and sink on a broker of jesenska's
    ours on Kafka         our source and sink on Apache Kafka
    official on Kafka     spark-sql-kafka-0-10 in an environment of its own (official_connector.py) on the same Apache
                          Kafka

Every side is one Spark session that lives for the whole run, with the same Java, cores, heap and settings, and does
every row once before it counts (Java compiles what it runs often). Rounds are interleaved: each row is done by the
three sides one after the other, another one first in each round, so that what else the machine does falls on all. What
is read was written on both brokers by our sink. A row's figure is the median of the rounds, its ratio the median of
the rounds' ratios: the speed of a shared machine changes from one round to the next. The last row is the time of
micro-batches that have one record of one partition each, p50 and p99 over all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.brokers import KAFKA, Apache, Broker, Jesenska
from bench.machine import settle
from bench.needs import OFFICIAL_CONNECTOR, SPARK_QUERY, kafka, require
from bench.official_connector import CONNECTOR, SPARK, official_jars, official_python
from bench.raw_clients import create_topic

OURS, OURS_ON_KAFKA, OFFICIAL = "jesenska", "ours on Kafka", "official on Kafka"
ROWS = BATCH_READ, READ_AND_WRITE, STREAM = "batch read", "read and write", "stream, count by key"
KEYS = 1000
TRIGGERS = 5
#: The number of timed micro-batches, and of the ones before them.
BATCHES, BATCHES_BEFORE = 60, 15

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


class Side:
    """One Spark session in its process (spark_side.py)."""

    def __init__(self, python: str, source: str, bootstrap: str, scratch: Path, settings: Mapping[str, str]) -> None:
        scratch.mkdir()
        self._log = scratch / "log"
        arguments = [
            python,
            str(Path(__file__).with_name("spark_side.py")),
            source,
            bootstrap,
            str(scratch),
            json.dumps(settings),
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=scratch
            )

    def do(self, name: str, *arguments: Any) -> tuple[float, Any]:
        """The seconds, and the result of the work."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{name} failed:\n{self._log.read_text(errors='replace')[-4000:]}")
        answer = json.loads(line)
        return answer["seconds"], answer["found"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--ours-only", action="store_true", help="without Apache Kafka and the official connector: for profiling"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="WORD",
        help="rows whose names have this in them, without the time of micro-batches",
    )
    options = parser.parse_args()
    if not any(options.only in name for name in ROWS):
        parser.error(f"no row has {options.only!r} in its name; there are: {', '.join(ROWS)}")
    require(
        "spark_connector_bench", SPARK_QUERY if options.ours_only else [*SPARK_QUERY, *kafka(KAFKA), OFFICIAL_CONNECTOR]
    )
    with tempfile.TemporaryDirectory() as scratch:
        _run(options, Path(scratch))


def _run(options: argparse.Namespace, scratch: Path) -> None:
    import pyspark

    settings = {**_SETTINGS, "spark.master": options.master, "spark.driver.memory": options.heap}
    # A setting of jesenska.pipeline.session() as well: larger Arrow batches.
    ours = {**settings, "spark.sql.execution.arrow.maxRecordsPerBatch": "50000"}
    brokers: list[Broker] = (
        [Jesenska(scratch, {})] if options.ours_only else [Jesenska(scratch, {}), Apache(scratch, {})]
    )
    sides: dict[str, Side] = {}
    try:
        for broker in brokers:
            broker.start()
        sides[OURS] = Side(sys.executable, "jesenska", brokers[0].bootstrap, scratch / "ours", ours)
        if not options.ours_only:
            sides[OURS_ON_KAFKA] = Side(
                sys.executable, "jesenska", brokers[1].bootstrap, scratch / "ours-on-kafka", ours
            )
            with_jars = {**settings, "spark.jars": ",".join(map(str, official_jars()))}
            sides[OFFICIAL] = Side(
                str(official_python()), "kafka", brokers[1].bootstrap, scratch / "official", with_jars
            )
        addresses = dict(zip(sides, [brokers[0].bootstrap, *(broker.bootstrap for broker in brokers[1:] * 2)]))
        for broker in brokers:
            create_topic(broker.bootstrap, "bench", options.partitions)
            create_topic(broker.bootstrap, "latency", 1)
        for name in [OURS, OURS_ON_KAFKA][: len(brokers)]:
            sides[name].do("fill", "bench", options.rows, options.size, KEYS)
            sides[name].do("fill", "latency", BATCHES_BEFORE + BATCHES, options.size, KEYS)
        heading = (
            f"{options.rows:,} rows of {options.size} B, {KEYS} keys, {options.partitions} partitions, "
            f"{options.master}, heap {options.heap}, median of"
            f" {options.rounds}; PySpark {pyspark.__version__}; official: PySpark and {CONNECTOR} {SPARK}; Apache "
            f"Kafka {KAFKA}"
        )
        print(heading, flush=True)
        print(_table(_measure(sides, addresses, options)))
        if not options.only:
            print(_latencies(sides, options.rounds), flush=True)
    finally:
        for side in sides.values():
            side.close()
        for broker in brokers:
            broker.stop()


def _measure(
    sides: Mapping[str, Side], addresses: Mapping[str, str], options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Rows a second by row and side, all rounds."""
    rows: int = options.rows
    copies = 0

    def read(side: str) -> tuple[float, int]:
        return sides[side].do("read", "bench")

    def copy(side: str) -> tuple[float, int]:
        nonlocal copies
        copies += 1
        create_topic(addresses[side], f"copy-{copies}", options.partitions)
        return sides[side].do("copy", "bench", f"copy-{copies}", rows)

    def stream(side: str) -> tuple[float, int]:
        return sides[side].do("stream", "bench", rows, TRIGGERS)

    all_work: dict[str, Callable[[str], tuple[float, int]]] = {BATCH_READ: read, READ_AND_WRITE: copy, STREAM: stream}
    work = {name: do for name, do in all_work.items() if options.only in name}
    figures: dict[str, dict[str, list[float]]] = {name: {side: [] for side in sides} for name in work}
    for number in range(options.rounds + 1):
        for name, do in work.items():
            settle()
            for side in _turned(list(sides), number):
                seconds, found = do(side)
                assert found == rows, f"{name}, {side}: {found} of {rows} rows"
                if number:
                    figures[name][side].append(rows / seconds)
                said = f"round {number}" if number else "warm-up"
                print(
                    f"{time.strftime('%H:%M:%S')} {said:8} {name:22} {side:18} {rows / seconds:>12,.0f} rows/s",
                    flush=True,
                )
    return figures


def _turned(sides: list[str], number: int) -> list[str]:
    """The sides, another one first in each round."""
    first = number % len(sides)
    return sides[first:] + sides[:first]


def _latencies(sides: Mapping[str, Side], rounds: int) -> str:
    """The row of small micro-batches. Spark forgets the progress of all but the last hundred, which is why each round
    is a query."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            settle()
            found[side] += sides[side].do("latency", "latency", BATCHES)[1]
    cells = []
    for values in found.values():
        cuts = quantiles(values, n=100)
        cells.append(f"{cuts[49]:.2f} / {cuts[98]:.2f} s")
    return f"| one micro-batch of one record, p50 / p99 of {BATCHES * rounds} | {' | '.join(cells)} |"


def _table(figures: Mapping[str, Mapping[str, list[float]]]) -> str:
    sides = list(next(iter(figures.values())))
    ratios = [side for side in sides if side != OFFICIAL] if OFFICIAL in sides else []
    lines = [
        f"| rows/s | {' | '.join(sides)} |{''.join(f' {side} / official |' for side in ratios)}",
        "|---" * (1 + len(sides) + len(ratios)) + "|",
    ]
    for name, found in figures.items():
        medians = {side: median(values) for side, values in found.items()}
        cells = [f"{medians[side]:,.0f}" for side in sides]
        cells += [
            f"{median(ours / theirs for ours, theirs in zip(found[side], found[OFFICIAL], strict=True)):.2f}"
            for side in ratios
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
