"""Kafka Streams' API on Spark, with jesenska's broker, beside Apache Kafka Streams 3.9.1 on Apache Kafka 3.9.1.

    python -m bench.streams_bench                                       5,000,000 records of 100 bytes, 3 rounds
    python -m bench.streams_bench --records 500000 --rounds 1 --only "word count;join"
    python -m bench.streams_bench --latency                             an update's way at 1,000 records a second

Workloads and inputs are in streams_workloads.py. Both sides get the same bytes, on a broker and with a processor that
have been started for that run. Kafka Streams has two threads and processes at least once, once with its record cache
and once without, where there is state. Ours has Spark's local[2].

records/s           of the input, from the application's being ready until the last output is in its topic
CPU s               processor and broker together, in that time
start s             before it: the processor's process, and the application until it is ready

Kafka Streams is closed at the end, within the time: otherwise its cache would be written within commit.interval.ms.
The outputs of a round are compared, as final tables or as sets of records."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from tests.peers.apache_kafka import java_command
from tests.peers.java_programs import class_path_and_program

from bench.brokers import Apache, Broker, Jesenska
from bench.figures import Figures, cpu, percentile, table
from bench.machine import end_in_order, settle
from bench.needs import SPARK_QUERY, kafka, require
from bench.streams_workloads import PARTITIONS, WORKLOADS, Filling, Workload, first_timestamp_ms, rows_of
from bench.unfinished import Unfinished
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.pipeline.connector.cluster_thread import ClusterThread, connect
from jesenska.pipeline.connector.columns import RowMaker
from jesenska.pipeline.connector.fetching import chunks
from jesenska.pipeline.connector.options import ClientOptions, sink_options, source_options
from jesenska.pipeline.connector.planning import OffsetRange
from jesenska.pipeline.connector.sink import write_rows
from jesenska.pipeline.streams_on_spark.application_topics import bounds

RELEASE: Final = "3.9.1"
_PROGRAM: Final = "StreamsRate"
_OURS, _CACHED, _UNCACHED = "jesenska", "Kafka Streams", "Kafka Streams, no cache"
_DEFAULT: Final = -1
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def tree_cpu(process: int) -> float:
    """Seconds that a process and all below it have used, including children that have ended and were awaited."""
    below: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(number)
        seconds[number] = sum(map(int, fields[11:15])) / _TICKS
    found, left = 0.0, [process]
    while left:
        one = left.pop()
        found += seconds.get(one, 0.0)
        left += below.get(one, [])
    return found


class Processor:
    """A process with lines on its stdin and stdout."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self._log = log
        self._begun = time.monotonic()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self._process.pid
        self.wait_for("ready")
        self.start_seconds = time.monotonic() - self._begun

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait_for(self, word: str) -> list[float]:
        """The numbers after that word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return [float(number) for number in line.split()[1:]]
            print(line, end="", file=sys.stderr)
        raise SystemExit(f"the processor has failed: {self._log.read_text(errors='replace')[-4000:]}")

    def close(self) -> None:
        try:
            self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Side(Protocol):
    """A broker and a processor."""

    broker: Broker

    def prepare(self, processor: Processor) -> float:
        """Seconds until the application is ready, if that is known beforehand."""

    def processor(self, workload: Workload, directory: Path, commit_interval_ms: int) -> Processor: ...


class Ours:
    def __init__(self, directory: Path, max_offsets: int | None, environment: dict[str, str]) -> None:
        self.broker: Broker = Jesenska(directory, {})
        self._max_offsets, self._environment = max_offsets, environment

    def processor(self, workload: Workload, directory: Path, commit_interval_ms: int) -> Processor:
        command = [sys.executable, "-m", "bench.streams_side", self.broker.bootstrap, str(directory), workload.name]
        command += ["--commit-interval-ms", str(max(0, commit_interval_ms))]
        if self._max_offsets is not None:
            command += ["--max-offsets", str(self._max_offsets)]
        return Processor(command, directory.parent / "processor.log", self._environment)

    def prepare(self, processor: Processor) -> float:
        processor.tell("prepare")
        return processor.wait_for("prepared")[0]


class Theirs:
    def __init__(self, directory: Path, cache_bytes: int) -> None:
        self.broker: Broker = Apache(directory, {}, RELEASE)
        self._cache_bytes = cache_bytes

    def processor(self, workload: Workload, directory: Path, commit_interval_ms: int) -> Processor:
        command = java_command(RELEASE, _PROGRAM, heap="2g", log_level="ERROR")
        command[-2:] = class_path_and_program(RELEASE, _PROGRAM, test_driver=True)
        command += [
            self.broker.bootstrap,
            "bench",
            str(directory),
            workload.name,
            str(self._cache_bytes),
            str(commit_interval_ms),
        ]
        return Processor(command, directory.parent / "processor.log")

    def prepare(self, processor: Processor) -> float:
        return 0.0


class Bench:
    def __init__(self, given: argparse.Namespace, scratch: Path) -> None:
        self._given = given
        self._scratch = scratch
        self.figures = {_OURS: Figures(), _CACHED: Figures(), _UNCACHED: Figures()}

    def side(self, name: str, directory: Path) -> Side:
        if name == _OURS:
            return Ours(directory, self._given.max_offsets, dict(item.split("=", 1) for item in self._given.env))
        return Theirs(directory, _DEFAULT if name == _CACHED else 0)

    def round(self, workload: Workload, names: Sequence[str]) -> None:
        """Each side once, in this order; their outputs are compared."""
        first_ms = first_timestamp_ms()
        outputs: dict[str, pa.Table] = {}
        for name in names:
            directory = self._scratch / "run"
            directory.mkdir()
            try:
                outputs[name] = self._run(workload, name, directory, first_ms)
            finally:
                if not self._given.keep:
                    shutil.rmtree(directory, ignore_errors=True)
        first, *others = outputs.items()
        for name, output in others:
            if not output.equals(first[1]):
                raise SystemExit(
                    f"{workload.name}: {name} gives {output.num_rows} results, {first[0]} {first[1].num_rows}, and "
                    f"they differ"
                )
        if others:
            print(
                f"{workload.name}: {first[1].num_rows:,} results, the same of {len(outputs)}",
                file=sys.stderr,
                flush=True,
            )

    def _run(self, workload: Workload, name: str, directory: Path, first_ms: int) -> pa.Table:
        figures = self.figures[name]
        side = self.side(name, directory / "broker")
        settle()
        side.broker.start()
        processor: Processor | None = None
        try:
            create(side.broker.bootstrap, [*workload.topics, "out"])
            seconds = used = 0.0
            for number, (phase, count) in enumerate(
                zip(workload.phases, workload.counts(self._given.records), strict=True)
            ):
                for filling in phase:
                    fill(side.broker.bootstrap, filling, self._given.records, first_ms)
                if processor is None:
                    processor = side.processor(workload, directory / "processor", _DEFAULT)
                    starting = side.prepare(processor) + processor.start_seconds
                before = cpu(side.broker.pid).total, tree_cpu(processor.pid)
                processor.tell(f"process {count * workload.processed}")
                took, other = processor.wait_for("done")
                after = cpu(side.broker.pid).total, tree_cpu(processor.pid)
                seconds, used = seconds + took, used + sum(after) - sum(before)
                if number == 0 and name != _OURS:
                    starting += other
                told = (
                    f"{count:,} records in {took:.1f} s, CPU {after[0] - before[0]:.1f} + {after[1] - before[1]:.1f} s"
                )
                print(f"{workload.name}, {name}: {told}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            figures.add(workload.name, "records/s", sum(workload.counts(self._given.records)) / seconds)
            figures.add(workload.name, "CPU s", used)
            figures.add(workload.name, "start s", starting)
            return output_of(side.broker.bootstrap, workload)
        finally:
            if processor is not None:
                processor.close()
            side.broker.stop()


def create(bootstrap: str, topics: Sequence[str], configs: dict[str, str] | None = None) -> None:
    connection = ClusterThread(ClientOptions(bootstrap))
    try:
        for error in connection.run(
            Admin(connection.cluster).create_topics([NewTopic(topic, PARTITIONS, 1, configs or {}) for topic in topics])
        ).values():
            if error is not None:
                raise error
    finally:
        connection.close()


def fill(bootstrap: str, filling: Filling, records: int, first_ms: int) -> None:
    write_rows(
        sink_options({"kafka.bootstrap.servers": bootstrap, "topic": filling.topic}),
        rows_of(filling, records, first_ms),
    )


def read(bootstrap: str, topic: str, columns: str) -> Iterator[pa.RecordBatch]:
    options = source_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "columns": columns}, streaming=False
    )
    connection = connect(options.client)
    ranges = [OffsetRange(*place) for place in bounds(connection, [topic], {topic: PARTITIONS})]
    maker = RowMaker(options.columns)
    for chunk in chunks(connection, ranges, options):
        yield from maker.rows(chunk)


def output_of(bootstrap: str, workload: Workload) -> pa.Table:
    """The results, in an order that does not depend on the run: a final table, or all records."""
    rows = pa.Table.from_batches(list(read(bootstrap, "out", "key,value")))
    if workload.is_table:
        rows = rows.group_by("key", use_threads=False).aggregate([("value", "last")])
        return rows.sort_by("key").combine_chunks()
    return rows.take(pc.sort_indices(rows, [("key", "ascending"), ("value", "ascending")])).combine_chunks()


# Latency


def latency(bench: Bench, given: argparse.Namespace, scratch: Path) -> None:
    """The time from the append of a record to that of its output, both as the broker notes them."""
    for workload in (one for one in WORKLOADS if one.name in ("filter and map", "word count")):
        for name, interval in ((_OURS, 0), (_OURS, 100), (_CACHED, _DEFAULT), (_CACHED, 100), (_UNCACHED, _DEFAULT)):
            if name == _UNCACHED and not workload.has_state:
                continue
            directory = scratch / "run"
            directory.mkdir()
            found = _latency_of(bench.side(name, directory / "broker"), workload, directory, interval, given.seconds)
            shutil.rmtree(directory, ignore_errors=True)
            setting = "default" if interval == _DEFAULT else str(interval)
            print(f"{workload.name}, {name}, commit.interval.ms {setting}: p50 {percentile(found, 0.5):,.0f} ms, p99 "
                  f"{percentile(found, 0.99):,.0f} ms, "
                  f"{len(found):,} updates, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip


def _latency_of(side: Side, workload: Workload, directory: Path, interval: int, seconds: int) -> list[float]:
    side.broker.start()
    processor: Processor | None = None
    try:
        create(side.broker.bootstrap, ["in", "out"], {"message.timestamp.type": "LogAppendTime"})
        processor = side.processor(workload, directory / "processor", interval)
        processor.tell("run")
        processor.wait_for("running")
        _send(side.broker.bootstrap, "warm-", 10, 1000)
        wanted = _send(side.broker.bootstrap, "", seconds, 1000)
        deadline = time.monotonic() + 90
        while wanted - (times := _times(side.broker.bootstrap, "out")).keys() and time.monotonic() < deadline:
            time.sleep(1)
        begun = _times(side.broker.bootstrap, "in")
        missing = wanted - times.keys()
        if missing:
            raise SystemExit(f"{len(missing)} updates have not come")
        return [float(times[name] - begun[name]) for name in wanted]
    finally:
        if processor is not None:
            processor.tell("stop")
            processor.close()
        side.broker.stop()


def _send(bootstrap: str, prefix: str, seconds: int, rate: int) -> set[str]:
    """Sends `rate` records a second, one after the other; returns their names, which are words."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    begun, sent = time.monotonic(), set()
    for number in range(seconds * rate):
        name = f"w{prefix}{number}"
        producer.produce("in", name.ljust(4), name)
        sent.add(name.strip())
        producer.poll(0)
        ahead = begun + (number + 1) / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush(60)
    return sent


def _times(bootstrap: str, topic: str) -> dict[str, int]:
    """The time of each word's first append, in ms."""
    found: dict[str, int] = {}
    for batch in read(bootstrap, topic, "key,timestamp"):
        for name, at in zip(
            batch.column("key").to_pylist(), batch.column("timestamp").cast(pa.int64()).to_pylist(), strict=True
        ):
            found.setdefault(name.decode().removeprefix("k-").strip(), at // 1000)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks Kafka Streams' API on Spark beside Apache Kafka Streams.")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="words in workloads' names, separated by semicolons")
    parser.add_argument("--sides", default=";".join((_OURS, _CACHED, _UNCACHED)))
    parser.add_argument("--max-offsets", type=int, help="of a micro-batch of ours")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for our processor")
    parser.add_argument("--latency", action="store_true", help="latency, not rates")
    parser.add_argument("--seconds", type=int, default=30, help="of the latency's run")
    parser.add_argument("--dir", help="where to keep the servers' data while it runs")
    parser.add_argument("--keep", action="store_true", help="keep the data of the run in --dir")
    given = parser.parse_args()
    end_in_order()
    names = given.sides.split(";")
    theirs = kafka(RELEASE, streams=True) if given.latency or set(names) - {_OURS} else ()
    require("streams_bench", [*(SPARK_QUERY if given.latency or _OURS in names else ()), *theirs])
    unfinished = Unfinished("streams_bench")
    scratch = Path(tempfile.mkdtemp(dir=given.dir))
    bench = Bench(given, scratch)
    try:
        if given.latency:
            latency(bench, given, scratch)
            return 0
        chosen = [one for one in WORKLOADS if any(word.strip() in one.name for word in given.only.split(";"))]
        for number in range(given.rounds):
            for workload in chosen:
                chosen_sides = [name for name in names if workload.has_state or name != _UNCACHED]
                with unfinished.part(f"{workload.name}, round {number + 1}"):
                    bench.round(workload, chosen_sides if number % 2 == 0 else chosen_sides[::-1])
    finally:
        if not given.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    heading = f"{time.strftime('%Y-%m-%d')}, {given.records:,} records, {given.rounds} rounds, {os.cpu_count()} cores"
    print(table(bench.figures, heading))
    for workload in chosen:
        for other in (_CACHED, _UNCACHED):
            ratios = _ratios(bench.figures[_OURS], bench.figures[other], workload.name)
            if ratios:
                print(f"{workload.name}: {median(ratios):.2f} of the rate of {other}")
    return unfinished.exit_code()


def _ratios(ours: Figures, theirs: Figures, row: str) -> list[float]:
    key = row, "records/s"
    return [mine / other for mine, other in zip(ours.values.get(key, []), theirs.values.get(key, []), strict=False)]


if __name__ == "__main__":
    sys.exit(main())
