"""A count with very many keys, by Kafka Streams' API on Spark: memory, size of the state, time of a micro-batch and of
a restart.

    python -m bench.streams_state_bench                       10,000,000 keys, a record of 100 bytes each
    python -m bench.streams_state_bench --keys 1000000

First every key comes once. Then, several times, 100,000 records of any keys, as one micro-batch. Then the application
is started again, and finds 1,000 records more. Spark has local[2]; the broker is jesenska's."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.brokers import Jesenska
from bench.figures import resident_mb
from bench.machine import end_in_order
from bench.needs import SPARK_QUERY, require
from bench.streams_bench import Processor, create, fill, tree_cpu
from bench.streams_workloads import MANY_KEYS, again, first_timestamp_ms

_MICRO_BATCH, _FEW = 100_000, 1_000


class Memory:
    """The most resident memory of the processes of a tree, sampled twice a second: the driver, its JVM, and all other
    Python processes together."""

    def __init__(self, process: int) -> None:
        self._process = process
        self.most_mb: dict[str, float] = {"driver": 0.0, "JVM": 0.0, "workers": 0.0}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(0.5):
            found = {"driver": resident_mb(self._process), "JVM": 0.0, "workers": 0.0}
            for number in _below(self._process):
                try:
                    kind = "JVM" if "(java)" in Path(f"/proc/{number}/stat").read_text() else "workers"
                    found[kind] += resident_mb(number)
                except (OSError, AssertionError):
                    continue  # it has ended
            for kind, size in found.items():
                self.most_mb[kind] = max(self.most_mb[kind], size)

    def close(self) -> str:
        self._ends.set()
        self._thread.join()
        return ", ".join(f"{kind} {size:,.0f} MB" for kind, size in self.most_mb.items())


def _below(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    found, left = [], [process]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def _size_mb(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 1e6


class _Bench:
    def __init__(self, directory: Path, keys: int, micro_batches: int) -> None:
        self._directory = directory / "processor"
        self._keys = keys
        self._micro_batches = micro_batches
        self._broker = Jesenska(directory, {})
        self._first_ms = first_timestamp_ms()

    def run(self) -> None:
        self._broker.start()
        try:
            create(self._broker.bootstrap, [*MANY_KEYS.topics, "out"])
            (filling,) = MANY_KEYS.phases[0]
            fill(self._broker.bootstrap, filling, self._keys, self._first_ms)
            self._state()
            self._restart()
        finally:
            self._broker.stop()

    def _processor(self) -> Processor:
        command = [
            sys.executable,
            "-m",
            "bench.streams_side",
            self._broker.bootstrap,
            str(self._directory),
            MANY_KEYS.name,
        ]
        return Processor(command, self._directory.parent / "processor.log")

    def _process(self, processor: Processor, what: str, records: int) -> None:
        before = tree_cpu(processor.pid)
        processor.tell(f"process {records}")
        seconds, in_batches = processor.wait_for("done")
        used = tree_cpu(processor.pid) - before
        told = f"{records:,} records in {seconds:.1f} s ({in_batches:.2f} s in micro-batches), CPU {used:.1f} s"
        print(f"{what}: {told}, load {os.getloadavg()[0]:.1f}", flush=True)

    def _state(self) -> None:
        processor = self._processor()
        memory = Memory(processor.pid)
        try:
            processor.tell("prepare")
            processor.wait_for("prepared")
            self._process(processor, "every key once", self._keys)
            for line in (self._directory / "progress").read_text().splitlines():
                told = json.loads(line)
                print(f"    micro-batch {told['batch']}: {told['triggerExecution'] / 1000:.1f} s")
            print(f"memory at most: {memory.close()}")
            state = self._directory / "state" / "bench" / "0"
            print(
                f"on disk: stores {_size_mb(state / 'stores'):,.0f} MB, checkpoint "
                f"{_size_mb(state / 'checkpoint'):.2f} MB",
                flush=True,
            )
            for number in range(self._micro_batches):
                self._fill_again(_MICRO_BATCH, number)
                self._process(processor, "one micro-batch", _MICRO_BATCH)
        finally:
            processor.close()
        print(f"on disk when it has ended: stores {_size_mb(state / 'stores'):,.0f} MB", flush=True)

    def _fill_again(self, records: int, number: int) -> None:
        fill(self._broker.bootstrap, again(self._keys), records, self._first_ms + self._keys + number * _MICRO_BATCH)

    def _restart(self) -> None:
        self._fill_again(_FEW, self._micro_batches)
        begun = time.monotonic()
        processor = self._processor()
        try:
            started = time.monotonic() - begun
            processor.tell("prepare")
            processor.wait_for("prepared")
            processor.tell(f"process {_FEW}")
            processor.wait_for("done")
            print(
                f"a restart: output after {time.monotonic() - begun:.1f} s, {started:.1f} s of them until there is a "
                f"session",
                flush=True,
            )
        finally:
            processor.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks a count with very many keys.")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--micro-batches", type=int, default=3)
    parser.add_argument("--dir", help="where to keep the data while it runs")
    given = parser.parse_args()
    require("streams_state_bench", SPARK_QUERY)
    end_in_order()
    directory = Path(tempfile.mkdtemp(dir=given.dir))
    try:
        _Bench(directory, given.keys, given.micro_batches).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
