"""Rows: a name, a stage (the broker that it runs on, freshly started for each stage and round), and the work.

Rows of one stage run in order on one broker; `Run` keeps the existing topics, so that a reading row finds its records
even if the writing rows were not chosen.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.peers.apache_kafka import tool_command

from bench.brokers import KAFKA, Broker
from bench.figures import Figures, cpu
from bench.needs import Need
from bench.raw_clients import create_topic


@dataclass
class Run:
    """One broker in one round."""

    broker: Broker
    figures: Figures
    scale: float
    #: From the start of its process until it answers.
    ready_seconds: float = 0.0
    #: Records by topic.
    topics: dict[str, int] = field(default_factory=dict)

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.scale))

    def topic(self, name: str, partitions: int) -> str:
        """Creates a topic unless it exists."""
        if name not in self.topics:
            create_topic(self.broker.bootstrap, name, partitions)
            self.topics[name] = 0
        return name

    @contextmanager
    def measured(self, row: str, requests: int = 0) -> Iterator[None]:
        """Measures the broker's CPU seconds of the block; microseconds a request if their number is given."""
        with self.broker.profiled(row):
            self.broker.loop_lag_p99_ms()
            before = cpu(self.broker.pid)
            yield
            after = cpu(self.broker.pid)
        used = after.since(before)
        self.figures.add(row, "broker CPU s", used.total)
        self.figures.add(row, "broker user s", used.user)
        self.figures.add(row, "broker system s", used.system)
        lag = self.broker.loop_lag_p99_ms()
        if lag is not None:
            self.figures.add(row, "loop lag p99 ms", lag[0])
        if requests:
            self.figures.add(row, "broker CPU us a request", used.total / requests * 1e6)

    def command(self, command: list[str]) -> str:
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise SystemExit(
                f"{' '.join(command[-12:])} failed against "
                f"{self.broker.name}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.stdout

    def tool(self, name: str, *arguments: str) -> str:
        """One of Apache Kafka's own tools."""
        return self.command(tool_command(KAFKA, name, *arguments))


@dataclass(frozen=True)
class Row:
    name: str
    stage: str
    do: Callable[[Run, str], None]
    #: The needs besides a broker.
    needs: tuple[Need, ...] = ()
