"""jesenska against Apache Kafka, in turn on the same machine, driven by the same clients: Kafka's own kafka-producer-perf-test and kcat.

    python -m bench.broker_bench                          every row, 3 rounds; about 15 minutes
    python -m bench.broker_bench --rounds 1 --scale 0.1   a look

Each round starts both brokers freshly, one after the other, and runs every row on one before the other begins. A row's figure is the median of its
rounds, its ratio the median of the rounds' ratios: the two are measured minutes apart on a machine whose speed drifts. Broker CPU seconds are those
of the broker's process during the row (user and system), the steadiest figure on a noisy machine.

Needs Java, Maven and kcat.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.peers.apache_kafka import ApacheKafka, tool_command

from jesenska.testing import BrokerProcess

KAFKA = "4.3.1"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """Figures of one broker: value by row and unit, one list entry for each round."""

    figures: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, row: str, unit: str, value: float) -> None:
        self.figures.setdefault((row, unit), []).append(value)


@dataclass(frozen=True)
class Target:
    name: str
    bootstrap: str
    pid: int


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def run(command: list[str]) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:6])} … failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def create(target: Target, topic: str, partitions: int) -> None:
    run(tool_command(KAFKA, "kafka-topics", "--bootstrap-server", target.bootstrap, "--create", "--topic", topic, "--partitions", str(partitions)))


@contextmanager
def row(target: Target, measured: Measured, name: str) -> Iterator[None]:
    before = cpu_seconds(target.pid)
    yield
    measured.add(name, "broker CPU s", cpu_seconds(target.pid) - before)


def produce(target: Target, measured: Measured, name: str, topic: str, records: int, size: int, *settings: str) -> None:
    with row(target, measured, name):
        said = run(
            tool_command(
                KAFKA, "kafka-producer-perf-test", "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
                "--producer-props", f"bootstrap.servers={target.bootstrap}", *settings,
            )
        )  # fmt: skip
    match = re.findall(r"([\d.]+) records/sec", said)
    measured.add(name, "records/s", float(match[-1]))


def consume(target: Target, measured: Measured, name: str, topic: str, partitions: int, records: int, *settings: str) -> None:
    """Three times in a row: kcat by itself now and then waits for a second when its queue is full, which says nothing of the broker."""
    for _ in range(3):
        _consume_once(target, measured, name, topic, partitions, records, settings)


def _consume_once(target: Target, measured: Measured, name: str, topic: str, partitions: int, records: int, settings: tuple[str, ...]) -> None:
    extra = [word for setting in settings for word in ("-X", setting)]
    with row(target, measured, name):
        begun = time.monotonic()
        readers = [
            subprocess.Popen(
                ["kcat", "-b", target.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-p", str(partition), *extra],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for partition in range(partitions)
        ]
        for reader in readers:
            if reader.wait() != 0:
                raise SystemExit(f"kcat failed against {target.name}")
        seconds = time.monotonic() - begun
    measured.add(name, "records/s", records / seconds)


def work(target: Target, measured: Measured, scale: float) -> None:
    small, large = int(5_000_000 * scale), int(1_000_000 * scale)
    measured.add("idle after start", "resident MB", resident_mb(target.pid))
    create(target, "six", 6)
    create(target, "one", 1)
    create(target, "large", 6)
    # The first run of a Java broker is slower than the ones that follow: both get the same warm-up.
    create(target, "warm", 6)
    produce(target, Measured(), "", "warm", max(1, small // 10), 100, "acks=1")
    produce(target, measured, "produce 5 M x 100 B, 6 partitions, acks=1", "six", small, 100, "acks=1")
    produce(target, measured, "produce 5 M x 100 B, 1 partition, acks=1", "one", small, 100, "acks=1")
    produce(target, measured, "produce 5 M x 100 B, 6 partitions, acks=1, 64 KB batches", "six", small, 100, "acks=1", "batch.size=65536", "linger.ms=10")
    produce(target, measured, "produce 1 M x 1000 B, 6 partitions, acks=1", "large", large, 1000, "acks=1")
    consume(target, measured, "consume 5 M x 100 B, 1 partition, kcat", "one", 1, small)
    roomy = ("queued.min.messages=10000000", "queued.max.messages.kbytes=1000000")
    consume(target, measured, "the same, kcat with a queue that never fills", "one", 1, small, *roomy)
    consume(target, measured, "consume 10 M x 100 B, 6 partitions, 6 kcat", "six", 6, 2 * small)
    measured.add("after the load", "resident MB", resident_mb(target.pid))


def jesenska(directory: Path, measured: Measured, scale: float) -> None:
    begun = time.monotonic()
    with BrokerProcess(directory / "data", settings={"num.partitions": "1"}) as broker:
        measured.add("start to ready", "seconds", time.monotonic() - begun)
        work(Target("jesenska", broker.bootstrap, broker.pid), measured, scale)


def kafka(directory: Path, measured: Measured, scale: float) -> None:
    with ApacheKafka(KAFKA, directory) as peer:
        measured.add("start to ready", "seconds", peer.ready_seconds)
        work(Target("Apache Kafka", peer.bootstrap, peer.pids[0]), measured, scale)


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks jesenska against Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records of each row")
    parser.add_argument("--dir", help="where to keep the brokers' data while it runs")
    options = parser.parse_args()
    ours, theirs = Measured(), Measured()
    sides: list[tuple[str, Callable[[Path, Measured, float], None], Measured]] = [("jesenska", jesenska, ours), ("Apache Kafka", kafka, theirs)]
    for number in range(options.rounds):
        for name, start, measured in sides if number % 2 == 0 else reversed(sides):
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=options.dir) as directory:
                start(Path(directory), measured, options.scale)
    print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, Apache Kafka {KAFKA}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print("| row | figure | jesenska | Apache Kafka | ratio |\n|---|---|---|---|---|")
    for (name, unit), values in ours.figures.items():
        others = theirs.figures[(name, unit)]
        ratio = median(mine / other if other else float("nan") for mine, other in zip(values, others, strict=True))
        digits = 0 if unit == "records/s" else 2
        print(f"| {name} | {unit} | {median(values):,.{digits}f} | {median(others):,.{digits}f} | {ratio:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
