"""Partitions move between five brokers, while clients write, read, commit and make transactions, and while brokers are
killed, paused and cut off. Moves are changed and cancelled while they run, replicas become more and fewer, and the
coordinators' partitions move, too.

    python -m tests.processes.crash.moves_under_faults                          200 moves, 30 faults: half an hour
    python -m tests.processes.crash.moves_under_faults --moves 20 --faults 5 --seed 7

The seed chooses the moves and the faults (drawn_moves.py). The clients are our own and librdkafka's: idempotent
producers with acks=all, groups that commit, and a bank of transactions (transfers.py). After each round of moves all
faults end, and

    all brokers are up, and all replicas are in sync
    no move is under way, and /admin/reassign_partitions does not exist
    each partition has the replicas of its last accepted target, or after a cancellation those from before
    no broker has a directory of a partition that is not assigned to it
    every client gets on

At the end the histories of all clients are clean, all replicas of a partition have the same log, and no broker has
logged a stack trace. Prints a line for each step. The exit code is 1 where something is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from jesenska.base.errors import (
    InvalidReplicaAssignmentError,
    KafkaError,
    NoReassignmentInProgressError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.client.cluster import Cluster
from jesenska.metadata import paths
from jesenska.testing.faults import RecordedLoad, check, read_history
from jesenska.testing.simulation.watches.move_watch import Expected
from tests.cluster.cluster import BrokerCluster, until
from tests.cluster.witness import Witness
from tests.processes.crash.bank import LIBRDKAFKA, OURS, Bank
from tests.processes.crash.client_process import ClientProcess
from tests.processes.crash.drawn_moves import CONTROLLER, KILL, PAUSE, Harm, Move, Step, drawn
from tests.processes.crash.kills_and_pauses import SETTINGS
from tests.processes.crash.transfers import ENTRIES, TRANSFERS, wrong

BROKERS = 5
#: Internal topics may be moved to two replicas: with fewer than the setting, the controller would add replicas.
_INTERNAL_REPLICAS = "2"
ORDERS, FREIGHT = "orders", "freight"
_PARTITIONS, _REPLICAS = 3, 3
#: The topic FREIGHT has so many records of so many bytes in each partition. A move of it takes some seconds.
_FREIGHT_RECORDS, _FREIGHT_BYTES, _BYTES_PER_SECOND = 1500, 2000, 700_000
#: Each topic that is moved, and the least number of replicas: those with writers keep min.insync.replicas.
_MOVED = {ORDERS: 2, FREIGHT: 1, TRANSFERS: 2, ENTRIES: 2, "__consumer_offsets": 2, "__transaction_state": 2}
_AT_ONCE = 2
_REQUEST_SECONDS, _ANSWERED_SECONDS, _SETTLE_SECONDS, _AGAIN_SECONDS = 60.0, 1.0, 120.0, 0.1
_STEPS = {"ours": 30, "librdkafka": 30, "bank": 3}

Say = Callable[[str], None]


class Clients:
    """All clients. Each of them gets on where the cluster works."""

    def __init__(self, cluster: BrokerCluster, directory: Path) -> None:
        self.ours = RecordedLoad(
            cluster.bootstrap, ORDERS, directory, producers=1, readers=1, members=2, pause_seconds=0.1
        )
        self.librdkafka = ClientProcess(LIBRDKAFKA, cluster.bootstrap, ORDERS, directory, partitions=_PARTITIONS)
        self.bank = Bank(cluster.bootstrap, [OURS, LIBRDKAFKA], directory)

    def start(self) -> None:
        with ThreadPoolExecutor(3) as threads:
            for started in [threads.submit(each.start) for each in (self.ours, self.librdkafka, self.bank)]:
                started.result()

    def steps(self) -> dict[str, int]:
        return {"ours": self.ours.steps(), "librdkafka": self.librdkafka.steps(), "bank": self.bank.steps()}

    def until_on(self) -> None:
        """Returns when each kind has got on by some steps."""
        wanted = {kind: count + _STEPS[kind] for kind, count in self.steps().items()}
        until(
            lambda: all(count >= wanted[kind] for kind, count in self.steps().items()),
            f"not every client gets on to {wanted}",
        )

    def stop(self) -> None:
        with ExitStack() as ending:
            for each in (self.ours, self.librdkafka, self.bank):
                ending.callback(each.stop)

    def mistakes(self) -> list[str]:
        orders = check(read_history([self.ours.path, self.librdkafka.path]))
        transfers = read_history(self.bank.paths)
        return [*map(str, orders), *map(str, check(transfers)), *wrong(transfers, self.bank.transfers)]


class Faults:
    """Faults that last while moves go on: at most two at a time, on different brokers."""

    def __init__(self, cluster: BrokerCluster, say: Say) -> None:
        self._cluster, self._say = cluster, say
        self._hit: dict[int, Future[None]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        self._ending = threading.Event()

    def begin(self, harm: Harm) -> None:
        self._forget(self._hit if len(self._hit) >= _AT_ONCE else [b for b, f in self._hit.items() if f.done()])
        broker_id = harm.broker_id
        if broker_id == CONTROLLER:
            broker_id = self._cluster.view().controller
            if broker_id not in self._cluster.brokers:
                broker_id = self._cluster.answering[0]
        if broker_id in self._hit:
            self._forget([broker_id])
        self._say(f"{harm} (broker {broker_id})")
        self._hit[broker_id] = self._threads.submit(self._do, harm, broker_id)

    def _forget(self, broker_ids: Collection[int]) -> None:
        """Waits until these brokers are well again."""
        for broker_id in list(broker_ids):
            self._hit.pop(broker_id).result()

    def _do(self, harm: Harm, broker_id: int) -> None:
        broker = self._cluster.brokers[broker_id]
        proxies = [proxy for proxy in (broker.proxy, broker.tree_proxy) if proxy is not None]
        if harm.kind == KILL:
            broker.kill()
        elif harm.kind == PAUSE:
            broker.pause()
        else:
            for proxy in proxies:
                proxy.hold()
        try:
            self._ending.wait(harm.seconds)
        finally:
            for proxy in proxies:
                proxy.pass_all()
            broker.heal()

    def end(self) -> None:
        """Returns when all brokers are well."""
        self._forget(self._hit)

    def close(self) -> None:
        self._ending.set()
        self._threads.shutdown()


class Moves:
    """The moves of one cluster, and what is expected of them."""

    def __init__(self, cluster: BrokerCluster, say: Say) -> None:
        self._cluster, self._say = cluster, say
        view = cluster.view()
        self.expected = {
            TopicPartition(topic, number): Expected.settled(partition.replicas)
            for topic in _MOVED
            for number, partition in enumerate(view.topics[topic])
        }
        self.outcomes: dict[str, int] = {}

    def do(self, move: Move) -> None:
        """Requests it. A request that had no answer is repeated."""
        expected, began, is_sure = self.expected[move.key], time.monotonic(), True
        while True:
            try:
                error = self._request(move)
            except (KafkaError, OSError, TimeoutError) as failed:
                # It may have been carried out.
                is_sure = False
                expected.unsure(move.target)
                assert time.monotonic() < began + _REQUEST_SECONDS, f"the request of {move} has no answer: {failed!r}"
                time.sleep(_AGAIN_SECONDS)
                continue
            break
        if time.monotonic() - began > _ANSWERED_SECONDS:
            # The client may have sent it more than once.
            expected.unsure(move.target)
        if error is None:
            expected.cancelled() if move.target is None else expected.begun(move.target)
        else:
            refused = NoReassignmentInProgressError if move.target is None else InvalidReplicaAssignmentError
            is_unclean = isinstance(error, InvalidReplicaAssignmentError)  # also of a cancellation
            assert isinstance(error, refused) or is_unclean, f"{move} is answered {error!r}"
        kind = "cancelled" if move.target is None else "begun"
        outcome = kind if error is None else f"{kind}: {type(error).__name__}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self._say(f"{move}: {'accepted' if error is None else error}{'' if is_sure else ' (asked again)'}")

    def _request(self, move: Move) -> KafkaError | None:
        async def work(client: Cluster) -> KafkaError | None:
            return (await Admin(client).alter_reassignments({move.key: move.target}))[move.key]

        error = self._cluster.ask(work, 20.0)
        if error is not None and error.retriable:
            raise error
        return error

    def ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        async def work(client: Cluster) -> dict[TopicPartition, OngoingReassignment]:
            return await Admin(client).list_reassignments()

        return self._cluster.ask(work)

    def settle(self) -> None:
        """Returns when all moves have ended as they should; no fault may be under way."""
        cluster = self._cluster
        deadline = time.monotonic() + _SETTLE_SECONDS
        while under_way := self.ongoing():
            assert time.monotonic() < deadline, f"after {_SETTLE_SECONDS:g} s moves are under way: {under_way}"
            time.sleep(_AGAIN_SECONDS)
        cluster.until_whole()
        view = cluster.view()
        for key, expected in self.expected.items():
            replicas = view.of(*key).replicas
            assert expected.allows(replicas), f"{key} is on {replicas}, and may be on {expected.may_have} only"
            self.expected[key] = Expected.settled(replicas)
        assert cluster.node(paths.REASSIGN_PARTITIONS) is None
        while strays := self.strays():
            assert time.monotonic() < deadline, f"brokers have replicas that are not theirs, or lack some: {strays}"
            time.sleep(_AGAIN_SECONDS)

    def strays(self) -> dict[int, list[str]]:
        """By broker: directories of partitions that are not assigned to it, or of none, and those that lack."""
        view = self._cluster.view()
        found = {}
        for broker_id, broker in self._cluster.brokers.items():
            wanted = {
                f"{topic}-{number}"
                for topic, partitions in view.topics.items()
                for number, partition in enumerate(partitions)
                if broker_id in partition.replicas
            }
            if wrong_ones := wanted ^ {path.name for path in broker.data.iterdir() if path.is_dir()}:
                found[broker_id] = sorted(wrong_ones)
        return found


def run(directory: Path, seed: int, moves: int, faults: int, say: Say) -> Mapping[str, int]:
    """Does it all. Returns how often requests had each outcome. AssertionError where something is wrong."""
    settings = {
        **SETTINGS,
        "log.segment.bytes": "500000",
        "offsets.topic.replication.factor": _INTERNAL_REPLICAS,
        "transaction.state.log.replication.factor": _INTERNAL_REPLICAS,
    }
    with BrokerCluster(
        directory / "cluster", brokers=BROKERS, session_ms=1500, settings=settings, proxied=True
    ) as cluster:
        for topic in (ORDERS, TRANSFERS, ENTRIES, FREIGHT):
            cluster.create(topic, _PARTITIONS, replicas=_REPLICAS)
        for number in range(_PARTITIONS):
            cluster.write(FREIGHT, [bytes([number]) * _FREIGHT_BYTES] * _FREIGHT_RECORDS, partition=number)
        _throttle(cluster)
        clients = Clients(cluster, directory)
        clients.start()
        with Witness(cluster), ExitStack() as ending:
            ending.callback(clients.stop)
            cluster.until_whole()
            moving, harms = Moves(cluster, say), Faults(cluster, say)
            ending.callback(harms.close)
            least = {key: _MOVED[key.topic] for key in moving.expected}
            for number, steps in enumerate(drawn(seed, moves, faults, list(cluster.brokers), least), 1):
                _round(steps, moving, harms)
                moving.settle()
                clients.until_on()
                say(f"round {number} is right: {clients.steps()}")
        moving.settle()
        for topic in _MOVED:
            cluster.until_logs_equal(topic, _PARTITIONS)
        for number in range(_PARTITIONS):
            assert cluster.values(FREIGHT, number) == [bytes([number]) * _FREIGHT_BYTES] * _FREIGHT_RECORDS
    mistakes = clients.mistakes()
    assert not mistakes, "\n".join(mistakes)
    return moving.outcomes


def _round(steps: list[Step], moving: Moves, harms: Faults) -> None:
    for step in steps:
        if isinstance(step.does, Move):
            moving.do(step.does)
        else:
            harms.begin(step.does)
        time.sleep(step.pause_seconds)
    harms.end()


def _throttle(cluster: BrokerCluster) -> None:
    """Throttles replicas that catch up, so that moves last until they are changed, cancelled and hit by faults."""

    async def work(client: Cluster) -> None:
        change = ConfigChange("follower.replication.throttled.rate", str(_BYTES_PER_SECOND))
        for broker_id in cluster.brokers:
            await Admin(client).alter_configs(BROKER, str(broker_id), [change])
        every = ConfigChange("follower.replication.throttled.replicas", "*")
        for topic in (ORDERS, FREIGHT):
            await Admin(client).alter_configs(TOPIC, topic, [every])

    cluster.ask(work)


def main() -> int:
    parser = argparse.ArgumentParser(description="Moves partitions under load and faults.")
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1948)
    parser.add_argument("--dir", type=Path, help="where logs and data stay; a new directory")
    given = parser.parse_args()
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) if given.dir is None else given.dir
        place.mkdir(parents=True, exist_ok=True)
        try:
            say(str(run(place, given.seed, given.moves, given.faults, say)))
        except AssertionError as error:
            say(f"seed {given.seed} is wrong: {error}")
            for note in getattr(error, "__notes__", ()):
                print(note)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
