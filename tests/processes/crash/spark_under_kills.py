"""The common parts of harnesses that kill a program on Spark while its input grows: the driver as a process, the
input, and the records that a reader of committed records finds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.processes.crash.talking_process import Process
from tests.watched_processes import watched

#: Of three brokers.
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "2",
}


def descendants(process: int) -> list[int]:
    """All processes below a process at this moment."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        children[parent_of(int(path.name))].append(int(path.name))
    found, left = [], [process]
    while left:
        below = children[left.pop()]
        found += below
        left += below
    return found


def parent_of(process: int) -> int:
    """The parent of a process, or 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def words_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def signal_all(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class SparkDriver(Process):
    """A driver at work, which prints "batch ..." for each micro-batch. `seconds` is the longest time that a wait may
    take."""

    def __init__(self, command: list[str], place: Path, number: int, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(f"driver-{number}", command, place)
        self.start()

    @property
    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.lines)

    def until_batches(self, more: int) -> None:
        """Returns when this number of further micro-batches is written."""
        wanted = self.batches + more
        self.until(lambda: self.batches >= wanted, f"does not write {more} micro-batches more", self._seconds)

    def until_all_is_written(self) -> int:
        """Waits for its exit code. Waiting input may delay it as long as it writes micro-batches."""
        while True:
            before = self.batches
            try:
                return self.until_gone(self._seconds)
            except subprocess.TimeoutExpired:
                if self.batches == before:
                    raise self.failure("does not end, and writes no micro-batch any more") from None

    def processes(self) -> list[int]:
        return [self.pid, *descendants(self.pid)]

    def kill_all(self, *, alone: bool = False) -> None:
        """Kills the driver and all its processes. With `alone`, kills only the driver, and waits until the rest ends
        by itself."""
        every = self.processes()
        with watched(*(process for process in every[1:] if words_of(process))) as have_ended:
            signal_all(every[:1] if alone else every, signal.SIGKILL)
            self.kill()
            if not have_ended():
                print("  a JVM or a worker has not ended by itself", flush=True)


class GrowingInput(ABC):
    """Writes all the time, each partition's records in order."""

    def __init__(self, bootstrap: str, pause_seconds: float, seconds: float) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0}
        )
        self._pause_seconds = pause_seconds
        self._seconds = seconds
        self._failures: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    @abstractmethod
    def produce_some(self, producer: Producer) -> None:
        """Produces the next records, with `self.told` as their delivery callback."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _write(self) -> None:
        while not self._ends.wait(self._pause_seconds):
            self.produce_some(self._producer)
            self._producer.poll(0)

    def told(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(self._seconds)
        if self._failures:
            raise AssertionError(f"inputs could not be written: {self._failures[:3]}")


def committed_records(
    bootstrap: str, topic: str, partitions: int, seconds: float
) -> Iterator[tuple[int, bytes | None, bytes]]:
    """The partition, key and value of all records that a reader of committed records finds, each partition in its
    order. A growing partition is read up to its end at the beginning, since its moving end may never be reached."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=seconds)[1]
        for partition in range(partitions)
    }
    left = {partition for partition, end in ends.items() if end}
    deadline = time.monotonic() + seconds
    try:
        while left:
            message = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise AssertionError(f"{topic} cannot be read: partitions {sorted(left)}")
            if message is None:
                continue
            partition, error, key = message.partition(), message.error(), message.key()
            assert partition is not None
            if error is None:
                assert key is None or isinstance(key, bytes)
                yield partition, key, message.value() or b""
                if (message.offset() or 0) >= ends[partition] - 1:
                    left.discard(partition)
            elif error.name() == "_PARTITION_EOF":
                left.discard(partition)
    finally:
        consumer.close()
