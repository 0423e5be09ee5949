"""Transactions: jesenska against Apache Kafka 4.3.1, by that release's own producer.

    python -m bench.transactions_bench                          every row, 3 rounds; 15 minutes
    python -m bench.transactions_bench --rounds 1 --scale 0.2 --rows "10,000;consume"

A producer writes some records of 100 bytes to a topic of six partitions, waits for their answers and commits, again
and again: `transactions/s`, the milliseconds of a commit alone, and the broker's CPU seconds. A fifth as many were
made before, so that neither side's Java is cold. To consume, six kcat with isolation.level=read_committed read a topic
of which every tenth transaction was aborted: records a second."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final, NamedTuple

from tests.peers.java_programs import command_of

from bench.broker_a_row import RowRun, run_rows
from bench.brokers import KAFKA, Broker
from bench.figures import Figures, cpu, percentile
from bench.machine import settle
from bench.needs import KCAT, Need, kafka
from bench.raw_clients import create_topic

_PARTITIONS, _RECORD_BYTES, _ABORTED_EACH, _READINGS = 6, 100, 10, 3
_PROGRAM: Final = "TransactionRate"


class _Load(NamedTuple):
    producers: int
    transactions: int
    records: int


_WRITTEN: Final = {
    "1 record in each": _Load(1, 5_000, 1),
    "100 records in each": _Load(1, 5_000, 100),
    "10,000 records in each": _Load(1, 300, 10_000),
    "100 records in each, 8 producers": _Load(8, 16_000, 100),
}
_CONSUMED: Final = "consume, every tenth aborted"
_FILLED: Final = _Load(6, 3_000, 1_000)
_ROWS: Final = (*_WRITTEN, _CONSUMED)
_SETTINGS: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}


class _Producers:
    """The Java program; it is warm, and waits, when the block begins."""

    def __init__(self, broker: Broker, topic: str, load: _Load, scale: float, aborted_each: int = 0) -> None:
        self._name = broker.name
        self.transactions = max(load.producers, int(load.transactions * scale) // load.producers * load.producers)
        numbers = (load.producers, self.transactions, load.records, _RECORD_BYTES, aborted_each)
        self._command = [
            *command_of(KAFKA, _PROGRAM, heap="512m", log_level="ERROR"),
            broker.bootstrap,
            topic,
            *map(str, numbers),
        ]

    def __enter__(self) -> _Producers:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait_for("ready")
        return self

    def _wait_for(self, begin: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(begin):
                return line[len(begin) :]
        raise SystemExit(f"the producers failed against {self._name}; their error stands above")

    def make(self) -> tuple[float, list[float]]:
        """Makes the transactions: seconds of all, milliseconds of each commit."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        seconds = float(self._wait_for("seconds"))
        return seconds, [float(word) for word in self._wait_for("commits").split()]

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def _write(broker: Broker, row: str, load: _Load, scale: float, figures: Figures) -> None:
    topic = f"of-{load.records}-{load.producers}"
    create_topic(broker.bootstrap, topic, _PARTITIONS)
    settle()
    with _Producers(broker, topic, load, scale) as producers:
        broker.loop_lag_p99_ms()
        before = cpu(broker.pid)
        with broker.profiled(row):
            seconds, commits_ms = producers.make()
        used = cpu(broker.pid).total - before.total
        lag = broker.loop_lag_p99_ms()
    figures.add(row, "transactions/s", producers.transactions / seconds)
    figures.add(row, "commit p50 ms", percentile(commits_ms, 0.5))
    figures.add(row, "commit p99 ms", percentile(commits_ms, 0.99))
    figures.add(row, "broker CPU s", used)
    if lag is not None:
        figures.add(row, "loop late p99 ms", lag[0])


def _consume(broker: Broker, row: str, scale: float, figures: Figures) -> None:
    topic = "read"
    create_topic(broker.bootstrap, topic, _PARTITIONS)
    with _Producers(broker, topic, _FILLED, scale, _ABORTED_EACH) as producers:
        producers.make()
    settle()
    reading = [
        "kcat",
        "-b",
        broker.bootstrap,
        "-C",
        "-t",
        topic,
        "-o",
        "beginning",
        "-e",
        "-q",
        "-f",
        "x",
        "-X",
        "isolation.level=read_committed",
    ]
    for _ in range(_READINGS):
        before, begun = cpu(broker.pid), time.monotonic()
        with broker.profiled(row):
            readers = [
                subprocess.Popen([*reading, "-p", str(number)], stdout=subprocess.PIPE) for number in range(_PARTITIONS)
            ]
            records = sum(len(reader.communicate()[0]) for reader in readers)
        seconds = time.monotonic() - begun
        if any(reader.returncode for reader in readers):
            raise SystemExit(f"kcat failed against {broker.name}")
        figures.add(row, "records/s", records / seconds)
        figures.add(row, "records", float(records))
        figures.add(row, "broker CPU s", cpu(broker.pid).total - before.total)


def _row(run: RowRun) -> None:
    if run.row == _CONSUMED:
        _consume(run.broker, run.row, run.scale, run.figures)
    else:
        _write(run.broker, run.row, _WRITTEN[run.row], run.scale, run.figures)


def _needs(row: str) -> tuple[Need, ...]:
    return (*kafka(KAFKA), KCAT) if row == _CONSUMED else kafka(KAFKA)


def main() -> int:
    return run_rows("Benchmarks transactions against Apache Kafka's.", _ROWS, lambda _: _SETTINGS, _row, needs=_needs)


if __name__ == "__main__":
    sys.exit(main())
