"""A producer and a consumer that are logged in, on a process of their own: they write and read all the time, and say
how long it took.

    python -m tests.processes.fuzz.logins.bystanders SETTINGS.json

For each line on the standard input they print a line of JSON about the time since the last one: how many records were
written and read, and the 50th and 99th percentile in ms of the time until a record was acknowledged, until it was
read, and of the lateness of a timer in this process, which the machine causes and not the broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from bench.figures import percentile

from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.producer import Producer
from jesenska.config.settings.client_settings import ADMIN_SETTINGS

TOPIC: Final = "bystanders"
_PAUSE_SECONDS: Final = 0.005


class _Times:
    def __init__(self) -> None:
        self.written: list[float] = []
        self.read: list[float] = []
        self.late: list[float] = []

    def line(self) -> str:
        found: dict[str, Any] = {}
        for name, values in (("written", self.written), ("read", self.read), ("late", self.late)):
            found[name] = len(values)
            if values:
                found[f"{name} p50"] = round(percentile(values, 0.5), 2)
                found[f"{name} p99"] = round(percentile(values, 0.99), 2)
                found[f"{name} max"] = round(max(values), 2)
            values.clear()
        return json.dumps(found)


async def _write(cluster: Cluster, times: _Times) -> None:
    async with Producer(cluster, linger_seconds=0.0) as producer:
        while True:
            begun = time.monotonic()
            await (await producer.send(TOPIC, repr(begun).encode()))
            times.written.append((time.monotonic() - begun) * 1000)
            begun = time.monotonic()
            await asyncio.sleep(_PAUSE_SECONDS)
            times.late.append((time.monotonic() - begun - _PAUSE_SECONDS) * 1000)


async def _read(cluster: Cluster, times: _Times) -> None:
    async with Consumer(cluster) as consumer:
        await consumer.assign({TopicPartition(TOPIC, 0): 0})
        while True:
            for records in (await consumer.poll(1.0)).values():
                now = time.monotonic()
                times.read += [(now - float(record.value or b"0")) * 1000 for record in records]


async def _serve(bootstrap: str, settings: Mapping[str, str]) -> None:
    clusters = [Cluster(bootstrap, client_config(ADMIN_SETTINGS, settings)) for _ in range(2)]
    times = _Times()
    loop = asyncio.get_running_loop()
    work = [loop.create_task(_write(clusters[0], times)), loop.create_task(_read(clusters[1], times))]
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    try:
        while True:
            line = loop.create_task(lines.readline())
            await asyncio.wait([line, *work], return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
            if not await line:
                return
            print(times.line(), flush=True)
    finally:
        for task in work:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for cluster in clusters:
            await cluster.close()


class Seen(NamedTuple):
    """What the bystanders met in one phase: counts, and times in ms."""

    figures: Mapping[str, float]

    def __str__(self) -> str:
        parts = []
        for name in ("written", "read", "late"):
            if self.figures[name]:
                times = ", ".join(f"{what} {self.figures[f'{name} {what}']:.1f}" for what in ("p50", "p99", "max"))
                parts.append(f"{name} {self.figures[name]:.0f} ({times} ms)")
        return ", ".join(parts)


class Bystanders:
    """The process, from the test's side. `seen` ends a phase."""

    def __init__(self, directory: Path, bootstrap: str, settings: Mapping[str, str]) -> None:
        self._file = directory / "bystanders.json"
        self._file.write_text(json.dumps({"bootstrap": bootstrap, "settings": settings}))

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdout:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def seen(self) -> Seen:
        """Returns what they met since the last call. Raises RuntimeError if they have failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the producer or the consumer has failed; its error is above")
        return Seen(json.loads(line))


if __name__ == "__main__":
    _given = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(_serve(_given["bootstrap"], _given["settings"]))
