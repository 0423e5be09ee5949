"""The tree's server against Apache ZooKeeper 3.8.4, in turn on the same machine and disk, driven by the same clients.

    python -m bench.tree_bench                              every row, 5 rounds; about five minutes
    python -m bench.tree_bench --list                       the names of the rows
    python -m bench.tree_bench --rows 'getData;32 conn'     rows with one of these words in their name
    python -m bench.tree_bench --rounds 1 --seconds 0.5     a look
    python -m bench.tree_bench --sides jesenska --profile   cProfile of our event loop in each row, into profiles/

Both servers run, each on its own directory; in each row the two are measured in turn, in all rounds, and the one that
begins changes from round to round. `bench/figures.py` explains figures and ratios.

Both make writes durable before they answer (ZooKeeper's forceSync is on), many with one fsync where many wait. `fsyncs
a write` is their number: counted by strace from outside, after the rate was measured, and with the cost of strace.

Needs Java and Maven; strace where fsyncs are counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.fsyncs import Fsyncs, can_trace
from tests.peers.zookeeper import RELEASE as ZOOKEEPER
from tests.peers.zookeeper import ZooKeeper

from bench.figures import Figures, cpu
from bench.needs import kafka, require
from bench.options import only_lists, parser_of, show
from bench.tree_clients import Client, Work, create, creating, getting, run, setting
from bench.unfinished import Unfinished
from jesenska.testing.tree import TreeProcess

_DATA = b"x" * 100
_NODES_EACH = 100
_CONNECTIONS = (1, 8, 32)
#: Requests of one connection in flight in the rows `pipelined`: with 32 connections they stay below ZooKeeper's
#: globalOutstandingLimit of 1000.
_WINDOW = 25
_WARM_UP_SECONDS = 0.5
_OURS, _THEIRS = "jesenska", "ZooKeeper"


class Server(Protocol):
    port: int

    @property
    def pid(self) -> int: ...


class Row(NamedTuple):
    name: str
    operation: str
    connections: int
    window: int


ROWS = [
    Row(f"{operation}, {connections} conn{', pipelined' if window > 1 else ''}", operation, connections, window)
    for operation in ("create", "setData", "getData")
    for window in (1, _WINDOW)
    for connections in _CONNECTIONS
]


def _paths_of(connection: int) -> list[str]:
    return [f"/n/{connection:02d}/{number:03d}" for number in range(_NODES_EACH)]


class Side:
    """One server, with its clients and nodes."""

    def __init__(self, server: Server, figures: Figures, traces: Path) -> None:
        self.server, self.figures = server, figures
        self._traces = traces
        self._parents = 0
        self.clients = [Client(server.port) for _ in range(max(_CONNECTIONS))]
        numbers = range(max(_CONNECTIONS))
        self.clients[0].ask([create("/n"), *[create(f"/n/{number:02d}") for number in numbers]])
        self.clients[0].ask([create(path, _DATA) for number in numbers for path in _paths_of(number)])

    def _work(self, operation: str) -> Work:
        if operation == "setData":
            return setting(_paths_of, _DATA)
        if operation == "getData":
            return getting(_paths_of, _DATA)
        self._parents += 1
        parent = f"/c{self._parents:05d}"
        self.clients[0].ask(
            [create(parent), *[create(f"{parent}/{number:02d}") for number in range(max(_CONNECTIONS))]]
        )
        return creating(parent, _DATA)

    def measure(self, row: Row, seconds: float) -> None:
        clients = self.clients[: row.connections]
        work = self._work(row.operation)
        before = cpu(self.server.pid).total
        told = run(clients, work, row.window, seconds)
        used = cpu(self.server.pid).total - before
        self.figures.add(row.name, "requests/s", told.rate)
        self.figures.add(row.name, "server CPU us a request", used / told.answers * 1e6)
        self.figures.add(row.name, "client CPU share", told.client_cpu_seconds / told.seconds)

    def warm_up(self, row: Row, seconds: float) -> None:
        run(self.clients[: row.connections], self._work(row.operation), row.window, min(_WARM_UP_SECONDS, seconds))

    def count_fsyncs(self, row: Row, seconds: float) -> None:
        work = self._work(row.operation)
        with Fsyncs(self.server.pid, self._traces / "trace") as fsyncs:
            told = run(self.clients[: row.connections], work, row.window, seconds)
            self.figures.add(row.name, "fsyncs a write", fsyncs.stop() / told.answers_in_all)

    def profile(self, row: Row, seconds: float, written: Path, target: Path) -> None:
        work = self._work(row.operation)
        os.kill(self.server.pid, signal.SIGUSR2)
        run(self.clients[: row.connections], work, row.window, seconds)
        written.unlink(missing_ok=True)
        os.kill(self.server.pid, signal.SIGUSR2)
        while not written.exists():  # written under another name first
            time.sleep(0.01)
        shutil.move(written, target / (row.name.replace(", ", "-").replace(" ", "-") + ".txt"))

    def close(self) -> None:
        for client in self.clients:
            client.close()


def _measure(rows: Sequence[Row], sides: dict[str, Figures], options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=options.dir) as directory, ExitStack() as stack:
        found: list[Side] = []
        profile = Path(directory) / "profile"
        for name, figures in sides.items():
            place = Path(directory) / name
            place.mkdir()
            if name == _OURS:
                module = {"module": "bench.profiled_tree"} if options.profile else {}
                server: Server = stack.enter_context(
                    TreeProcess(place, {"tickTime": "2000"}, environment={"JESENSKA_PROFILE": str(profile)}, **module)
                )
            else:
                server = stack.enter_context(ZooKeeper(place, tick_ms=2000, heap="512m"))
            side = Side(server, figures, place)
            stack.callback(side.close)
            found.append(side)
        for row in rows:
            print(row.name, file=sys.stderr, flush=True)
            if options.profile:
                found[0].profile(row, options.seconds, profile, options.profiles)
                continue
            for side in found:
                side.warm_up(row, options.seconds)
            for number in range(options.rounds):
                for side in found if number % 2 == 0 else reversed(found):
                    side.measure(row, options.seconds)
            if row.operation != "getData" and can_trace():
                for side in found:
                    side.count_fsyncs(row, min(options.seconds, 1.0))


def main() -> int:
    parser = parser_of("Benchmarks the tree's server against Apache ZooKeeper.", (_OURS, _THEIRS), rounds=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each row runs on each side in each round")
    parser.add_argument("--profile", action="store_true", help="profile jesenska's event loop in each row")
    options = parser.parse_args()
    words = [word.strip() for word in options.rows.split(";") if word.strip()]
    rows = [
        row
        for row in ROWS
        if not words
        or any(word == row.name or (word in row.name and word not in {other.name for other in ROWS}) for word in words)
    ]
    if options.profile and options.sides != _OURS:
        raise SystemExit(f"--profile goes with --sides {_OURS}: the figures of a profiled server are worth nothing")
    if only_lists(options, [row.name for row in rows]):
        return 0
    sides = {name: Figures() for name in options.sides.split(",")}
    require("tree_bench", kafka(ZOOKEEPER) if _THEIRS in sides else ())
    unfinished = Unfinished("tree_bench")
    with unfinished.part("the rows after these"):
        _measure(rows, sides, options)
    show(sides, options, "Apache ZooKeeper 3.8.4", f" of {options.seconds:g} s")
    return unfinished.exit_code()


if __name__ == "__main__":
    sys.exit(main())
