"""What clients notice when one of three brokers goes, with replication factor 3: jesenska beside Apache Kafka 4.3.1
(KRaft, each broker a controller, too).

    python -m bench.failover_several [--rounds 30] [--sides jesenska,apart,zookeeper,kafka] [--rows "kill;stop;roll"]

    kill     the leader is killed by kill -9: time until the first record is acknowledged by another
    stop     the leader is stopped in order: the longest time without an acknowledgement
    roll     all three are stopped in order and started again, one after the other, while clients of librdkafka and of
             Apache Kafka are at work with their own settings: what they are told as errors, what the checkers find in
             their history, and the longest time without an acknowledgement

What is measured is what a prober sees: one record a millisecond (later where the one before is not acknowledged yet),
acks=all, connections to all brokers open; where it is refused it asks who leads and tries again at once.

    jesenska    `jesenska up -n 3`, which looks after its brokers
    apart       jesenska's brokers, each started by itself, and their tree: nobody tells it of a broker's death
    zookeeper   the same on Apache ZooKeeper
    kafka       Apache Kafka

All of them with the settings that they have by themselves, but for three replicas of __consumer_offsets."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.cluster.one_request import PRODUCE_VERSION, produce_request, produced
from tests.cluster.view import View, view_of
from tests.peers.apache_kafka import ApacheKafka, java_command, tool_command, wait_for_port
from tests.processes.crash.client_process import JAVA, LIBRDKAFKA, ClientProcess, Together
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.several_brokers import SeveralBrokers
from tests.watched_processes import watched

from bench.brokers import KAFKA
from bench.figures import Figures, percentile, table
from bench.machine import end_in_order
from bench.needs import kafka, require
from bench.unfinished import Unfinished
from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import check, read_history
from jesenska.testing.tree import TreeProcess
from jesenska.wire.messages.k00_produce import ProduceResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

BROKERS = 3
ROWS = ("kill", "stop", "roll")
_TOPIC, _LOADED = "probed", "rolling"
_METADATA_VERSION = 12
_EVERY_SECONDS = 0.001
_ANSWER_SECONDS = 30.0
#: A release that came with a ZooKeeper.
_WITH_ZOOKEEPER = "3.9.1"
#: It gives a session 20 ticks at most, and our sessions have six seconds.
_TICK_MS = 300
_WAIT_SECONDS = 120.0
_LOOK_SECONDS = 0.02
#: Acknowledgements after the last change that belong to a row.
_AFTER = 200


# --- clusters --------------------------------------------------------------------------------------------------------


class Several(Protocol):
    """A cluster of three brokers, by number."""

    addresses: dict[int, str]

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill_one(self, number: int) -> None:
        """kill -9; returns when it is sent."""
        ...

    def stop_one(self, number: int) -> None:
        """Stops a broker in order; returns when the process has ended."""
        ...

    def start_one(self, number: int) -> None:
        """Starts a killed or stopped broker again."""
        ...


class Supervised:
    """jesenska up -n 3. Processes that have ended start again by themselves."""

    def __init__(self, directory: Path) -> None:
        self._brokers = SeveralBrokers(directory / "data", BROKERS)
        self.addresses: dict[int, str] = {}

    def start(self) -> None:
        self._brokers.start()
        self.addresses = dict(enumerate(self._brokers.bootstrap.split(","), 1))

    def stop(self) -> None:
        self._brokers.stop()

    def kill_one(self, number: int) -> None:
        os.kill(self._brokers.processes()[f"broker {number}"], signal.SIGKILL)

    def stop_one(self, number: int) -> None:
        process = self._brokers.processes()[f"broker {number}"]
        with watched(process) as has_ended:
            os.kill(process, signal.SIGTERM)
            assert has_ended()

    def start_one(self, number: int) -> None:
        pass


class Apart:
    """jesenska's brokers beside a tree."""

    def __init__(self, directory: Path) -> None:
        self._tree = self._tree_in(directory)
        self._directory = directory
        self._brokers: dict[int, BrokerProcess] = {}
        self.addresses: dict[int, str] = {}

    def _tree_in(self, directory: Path) -> TreeProcess | ApacheZooKeeper:
        return TreeProcess(directory, {"tickTime": "2000"})

    def start(self) -> None:
        self._tree.start()
        settings = {
            "zookeeper.connect": self._tree.address,
            "offsets.topic.replication.factor": str(BROKERS),
            "group.initial.rebalance.delay.ms": "0",
        }
        for number in range(1, BROKERS + 1):
            self._brokers[number] = BrokerProcess(
                self._directory / f"data-{number}", settings={**settings, "broker.id": str(number)}
            )
        with ThreadPoolExecutor(BROKERS) as starting:
            list(starting.map(lambda broker: broker.start(), self._brokers.values()))
        self.addresses = {number: broker.address for number, broker in self._brokers.items()}

    def stop(self) -> None:
        for process in (*self._brokers.values(), self._tree):
            process.stop()

    def kill_one(self, number: int) -> None:
        self._brokers[number].kill()

    def stop_one(self, number: int) -> None:
        self._brokers[number].stop()

    def start_one(self, number: int) -> None:
        self._brokers[number].start()


class ApacheZooKeeper:
    """One server of Apache ZooKeeper. It ends sessions at whole ticks: one of a second would add up to a second to a
    session's time-out."""

    def __init__(self, directory: Path) -> None:
        self._kafka = ApacheKafka(_WITH_ZOOKEEPER, directory, nodes=0, zookeeper=True, tick_ms=_TICK_MS)

    @property
    def address(self) -> str:
        return str(self._kafka.zookeeper_connect)

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()


class OnZooKeeper(Apart):
    """jesenska's brokers on Apache ZooKeeper."""

    def _tree_in(self, directory: Path) -> ApacheZooKeeper:
        return ApacheZooKeeper(directory / "zookeeper")


class Kafka:
    """Apache Kafka's brokers."""

    def __init__(self, directory: Path) -> None:
        self._kafka = ApacheKafka(KAFKA, directory, nodes=BROKERS)
        self.addresses: dict[int, str] = {}

    def start(self) -> None:
        self._kafka.start()
        self.addresses = dict(enumerate(self._kafka.bootstrap.split(",")))

    def stop(self) -> None:
        self._kafka.stop()

    def kill_one(self, number: int) -> None:
        self._kafka.brokers[number].kill()

    def stop_one(self, number: int) -> None:
        self._kafka.brokers[number].terminate()
        self._kafka.brokers[number].wait(_WAIT_SECONDS)

    def start_one(self, number: int) -> None:
        """Starts a broker again on the same settings and data."""
        self._kafka.brokers[number].wait(_WAIT_SECONDS)
        log = self._kafka.directory / f"broker-{number}.log"
        command = java_command(KAFKA, "kafka.Kafka", str(self._kafka.directory / f"broker-{number}.properties"))
        self._kafka.brokers[number] = self._kafka._spawn(f"broker-{number}", command)
        wait_for_port(self._kafka.ports[number], self._kafka.brokers[number], log)


SIDES: Mapping[str, Callable[[Path], Several]] = {
    "jesenska": Supervised,
    "apart": Apart,
    "zookeeper": OnZooKeeper,
    "kafka": Kafka,
}


def until_whole(side: Several) -> None:
    """Returns when each broker reports all brokers, and all replicas in sync."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            views = [view_of(address) for address in side.addresses.values()]
        except (OSError, ClosedByBrokerError):
            views = []
        if views and all(_is_whole(view) for view in views):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"after {_WAIT_SECONDS:g} s the brokers tell {views}")
        time.sleep(_LOOK_SECONDS)


def _is_whole(view: View) -> bool:
    return len(view.brokers) == BROKERS and all(
        partition.is_whole for partitions in view.topics.values() for partition in partitions
    )


def create(side: Several, topic: str, partitions: int) -> None:
    sizes = ("--partitions", str(partitions), "--replication-factor", str(BROKERS))
    command = tool_command(
        KAFKA,
        "kafka-topics",
        "--bootstrap-server",
        ",".join(side.addresses.values()),
        "--create",
        "--topic",
        topic,
        *sizes,
    )
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kafka-topics failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    until_whole(side)


# --- prober ----------------------------------------------------------------------------------------------------------


class Prober:
    """Writes from the beginning of the `with` block to its end."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses
        self._connections: dict[int, RawConnection] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        #: The time of each acknowledgement, and its broker.
        self.acknowledged: list[tuple[float, int]] = []
        self.refusals = Counter[str]()
        self.leader = next(iter(addresses))

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for(_AFTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        for connection in self._connections.values():
            connection.socket.close()

    def wait_for(self, more: int) -> None:
        """Returns when `more` further records are acknowledged."""
        count = len(self.acknowledged) + more
        self.wait_until(lambda: len(self.acknowledged) >= count)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not is_so():
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise SystemExit(f"the prober stands still: {len(self.acknowledged)} records, {dict(self.refusals)}")
            time.sleep(_EVERY_SECONDS)

    def first_by_another(self, leader: int, since: float) -> float:
        """Waits until another broker has acknowledged a record after `since`; returns the time of the first one."""
        self.wait_until(lambda: self.acknowledged[-1][0] > since and self.acknowledged[-1][1] != leader)
        first = 0.0
        for at, by in reversed(self.acknowledged):
            if at < since or by == leader:
                break
            first = at
        return first

    def gaps(self, since: float) -> list[float]:
        """Times between acknowledgements, from the last one before that time on."""
        begin = next(
            (index for index in range(len(self.acknowledged) - 1, -1, -1) if self.acknowledged[index][0] <= since), 0
        )
        times = [at for at, _ in self.acknowledged[begin:]]
        return [later - earlier for earlier, later in pairwise(times)]

    def _run(self) -> None:
        due = time.perf_counter()
        while not self._stopping.is_set():
            self._write()
            due = max(due + _EVERY_SECONDS, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))

    def _write(self) -> None:
        while not self._stopping.is_set():
            leader = self.leader
            try:
                code, _ = produced(
                    self._connection(leader).ask(produce_request(_TOPIC, b"probe"), PRODUCE_VERSION, ProduceResponse)
                )
            except (OSError, ClosedByBrokerError) as error:
                self._forget(leader)
                self.refusals[type(error).__name__] += 1
            else:
                if code == ErrorCode.NONE:
                    self.acknowledged.append((time.perf_counter(), leader))
                    return
                self.refusals[code.name] += 1
            self._look_for_leader(leader)

    def _look_for_leader(self, before: int) -> None:
        """Takes the leader of the newest epoch that brokers report."""
        told = []
        for number in self._addresses:
            try:
                request = MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)], allow_auto_topic_creation=False)
                answer = self._connection(number).ask(request, _METADATA_VERSION, MetadataResponse)
            except (OSError, ClosedByBrokerError):
                self._forget(number)
                continue
            told += [
                (item.leader_epoch, item.leader_id)
                for item in answer.topics[0].partitions
                if item.leader_id in self._addresses
            ]
        if told:
            self.leader = max(told)[1]
        if not told or self.leader == before:
            # No broker knows a newer leader yet; the brokers need the processor, too.
            time.sleep(_EVERY_SECONDS)

    def _connection(self, number: int) -> RawConnection:
        if number not in self._connections:
            self._connections[number] = RawConnection(self._addresses[number], _ANSWER_SECONDS)
        return self._connections[number]

    def _forget(self, number: int) -> None:
        if (connection := self._connections.pop(number, None)) is not None:
            connection.socket.close()


# --- rows ------------------------------------------------------------------------------------------------------------


def kill(side: Several, prober: Prober, figures: Figures) -> None:
    leader = prober.leader
    killed = time.perf_counter()
    side.kill_one(leader)
    figures.add(
        "kill -9 of the leader",
        "ms to the first record by another",
        (prober.first_by_another(leader, killed) - killed) * 1e3,
    )
    side.start_one(leader)
    until_whole(side)
    prober.wait_for(_AFTER)


def stop(side: Several, prober: Prober, figures: Figures) -> None:
    leader = prober.leader
    begun = time.perf_counter()
    side.stop_one(leader)
    prober.first_by_another(leader, begun)
    prober.wait_for(_AFTER)
    gaps = prober.gaps(begun)
    figures.add("orderly stop of the leader", "ms of the longest gap", max(gaps) * 1e3)
    figures.add("orderly stop of the leader", "ms of gaps meanwhile, p99", percentile(gaps, 0.99) * 1e3)
    side.start_one(leader)
    until_whole(side)
    prober.wait_for(_AFTER)


def roll(side: Several, prober: Prober, load: Together, figures: Figures) -> None:
    row = "rolling restart under load"
    begun, errors = time.perf_counter(), len(load.errors)
    stops, starts = [], []
    for number in side.addresses:
        stopped = time.perf_counter()
        side.stop_one(number)
        load.wait_for(30)
        prober.wait_for(_AFTER)
        stops.append(max(prober.gaps(stopped)))
        started = time.perf_counter()
        side.start_one(number)
        until_whole(side)
        load.wait_for(30)
        prober.wait_for(_AFTER)
        starts.append(max(prober.gaps(started)))
    figures.add(row, "errors at clients", len(load.errors) - errors)
    figures.add(row, "ms of the longest gap at a stop", max(stops) * 1e3)
    figures.add(row, "ms of the longest gap at a start", max(starts) * 1e3)
    figures.add(row, "s", time.perf_counter() - begun)


def run(name: str, directory: Path, rows: list[str], rounds: int, figures: Figures) -> None:
    """All rounds of one cluster."""
    side = SIDES[name](directory)
    try:
        side.start()
        create(side, _TOPIC, 1)
        with Prober(side.addresses) as prober:
            for row, do in (("kill", kill), ("stop", stop)):
                for _ in range(rounds if row in rows else 0):
                    do(side, prober, figures)
            if "roll" in rows:
                _roll_all(side, prober, directory, figures, rounds)
            print(
                f"{name}: {len(prober.acknowledged)} records of the prober, refused {dict(prober.refusals)}", flush=True
            )
    finally:
        side.stop()


def _roll_all(side: Several, prober: Prober, directory: Path, figures: Figures, rounds: int) -> None:
    create(side, _LOADED, 3)
    bootstrap = ",".join(side.addresses.values())
    load = Together([ClientProcess(kind, bootstrap, _LOADED, directory) for kind in (LIBRDKAFKA, JAVA)])
    load.start()
    try:
        for _ in range(rounds):
            roll(side, prober, load, figures)
    finally:
        load.stop()
    found = check(read_history(load.paths))
    figures.add("rolling restart under load", "findings in all histories", len(found))
    for line in (*load.errors, *map(str, found)):
        print(line)


def worst(figures: Figures) -> Figures:
    """The same figures, and for each time the p99 of all rounds and the longest."""
    for (row, unit), values in list(figures.values.items()):
        if unit.startswith("ms "):
            figures.add(f"{row}, p99 of the rounds", unit, percentile(values, 0.99))
            figures.add(f"{row}, the worst round", unit, max(values))
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rows", default=";".join(ROWS))
    parser.add_argument("--dir", help="where to keep the servers' data while it runs")
    options = parser.parse_args(arguments)
    end_in_order()
    names, rows = options.sides.split(","), options.rows.split(";")
    # The clients under load use Java, too; ZooKeeper is from another release.
    require(
        "failover_several",
        [
            *(kafka(KAFKA) if "kafka" in names or "roll" in rows else ()),
            *(kafka(_WITH_ZOOKEEPER) if "zookeeper" in names else ()),
        ],
    )
    unfinished = Unfinished("failover_several")
    sides = {}
    for name in names:
        sides[name] = Figures()
        with (
            unfinished.part(name),
            tempfile.TemporaryDirectory(prefix="jesenska-failover-bench-", dir=options.dir) as directory,
        ):
            run(name, Path(directory), rows, options.rounds, sides[name])
        print(table({name: worst(sides[name])}, f"{name}, {options.rounds} rounds"), flush=True)
    if len(sides) > 1:
        print(
            table(
                sides,
                f"{time.strftime('%Y-%m-%d')}, {BROKERS} brokers, replication factor {BROKERS}, {os.cpu_count()} "
                f"cores, {options.rounds} rounds",
            )
        )
    return unfinished.exit_code()


if __name__ == "__main__":
    raise SystemExit(main())
