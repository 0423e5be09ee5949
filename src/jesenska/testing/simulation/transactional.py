"""Simulations whose clients use transactions. There are producers with the request versions of old and new clients,
some with a shared transactional id. Members of a consumer group write a result record for each input record. There is
also a read_committed consumer. The invariants are in `transaction_history` and in `transaction_watch`.

The faults are those of `schedule`. Some faults are aimed at transaction coordinators, and some at one of these
moments:

decided          a coordinator has decided the end of a transaction, and not all of its markers are written
offsets wait     a group coordinator has offsets that are pending until a transaction ends

At the end the brokers' wall clocks are corrected. Then every transaction must end, by its producer or by its timeout,
so that every last stable offset reaches the log's end.

In some seeds transaction coordinators and logs have different speeds (`paces`).

If a lone broker syncs the simulation's topic before each response, it also syncs all other topics. So the transaction
coordinator's decisions are kept after a loss of power."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.testing.simulation.clients import BrokerProgram, create_topic
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.paces import Paces
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.schedule import _REST_SECONDS, TOPIC, Simulation, simulation
from jesenska.testing.simulation.transaction_clients import (
    CLIENTS,
    TRANSFORMERS,
    CommittedReader,
    OffsetReader,
    TransactionalWriter,
    Transformer,
)
from jesenska.testing.simulation.watches.history import RecordPlace
from jesenska.testing.simulation.watches.transaction_history import TransactionHistory, judge_results
from jesenska.testing.simulation.watches.transaction_watch import TransactionWatch
from jesenska.transactions.records import TRANSACTIONS_TOPIC

RESULTS = TopicPartition("results", 0)
TRANSACTIONAL_SECONDS, TRANSACTIONAL_FAULTS = 15.0, 5
#: The number of producers that share a transactional id, and the number of producers with a transactional id of their
#: own.
_SHARED, _OWN = 2, 1
_SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "20000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
#: The fraction of faults that are aimed at a moment, the seconds for which they wait for it, and the seconds between
#: two checks.
_AIMED, _PATIENCE_SECONDS, _LOOK_SECONDS = 0.5, 3.0, 0.001
_OF_TRANSACTIONS = (TOPIC, RESULTS.topic, OFFSETS_TOPIC)


class TransactionalSimulation(Simulation):
    """The run of one seed with transactional clients."""

    FIRST_DISASTERS: ClassVar = (5, 5)

    def __init__(self, seed: int, directory: Path, **others: Any) -> None:
        super().__init__(seed, directory, **others)
        self.known = TransactionHistory()
        self._paces = Paces(seed)
        for host in self.hosts:
            host.when_ready = self._set_pace
        self.transaction_watch = TransactionWatch(self.hosts, _OF_TRANSACTIONS.__contains__)
        self._transactional: list[TransactionalWriter] = []
        self._transformers: list[Transformer] = []
        self._reader: CommittedReader

    def _further_settings(self, brokers: int, others: Mapping[str, str]) -> dict[str, str]:
        replicas = {
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": others.get("min.insync.replicas", "1"),
        }
        return _SETTINGS | replicas | ({"log.flush.interval.messages": "1"} if self.is_synced and brokers == 1 else {})

    def _set_pace(self, program: BrokerProgram) -> None:
        assert program.broker is not None
        self._paces.set(program.broker, program.process)

    # --- programs ----------------------------------------------------------------------------------------------------

    def _begin_clients(self, settings: Mapping[str, str]) -> None:
        maker = Process(self.world, self._network, "admin")
        made = self._start(maker, create_topic(maker, self._bootstrap, RESULTS.topic, 1, len(self.hosts), settings))
        self._go_on(made.done, 60.0, "the topic of results is not made")
        maker.end()
        for number in range(_SHARED + _OWN):
            self._new_transactional(f"id-{max(0, number - 1)}")
        for number in range(2):
            self._new_transformer(f"transformer-{number}")
        process = Process(self.world, self._network, self._name("reader"))
        self._reader = CommittedReader(
            process, self.history, self.known, self._bootstrap, [*self.topic_partitions, RESULTS]
        )
        self._start(process, self._reader.run())

    def _new_transactional(self, transactional_id: str) -> None:
        process = Process(self.world, self._network, self._name("writer"))
        versions = self.world.random.choice((*CLIENTS, CLIENTS[-1], CLIENTS[-1]))
        writer = TransactionalWriter(
            process, self.history, self.known, self._bootstrap, self.topic_partitions, transactional_id, versions
        )
        self._transactional.append(writer)
        self._start(process, writer.run())

    def _new_transformer(self, transactional_id: str) -> None:
        process = Process(self.world, self._network, self._name("member"))
        transformer = Transformer(process, self.history, self.known, self._bootstrap, TOPIC, RESULTS, transactional_id)
        self._transformers.append(transformer)
        self._start(process, transformer.run())

    def _alive(self) -> list[TransactionalWriter | Transformer]:
        everybody: list[TransactionalWriter | Transformer] = [*self._transactional, *self._transformers]
        return [one for one in everybody if not one.process.is_dead]

    def _clients(self) -> list[Process]:
        return [one.process for one in self._alive()]

    def _member_gone(self) -> None:
        """Kills a producer, perhaps within a transaction. A new producer with the same transactional id replaces
        it."""
        gone = self.world.random.choice(self._alive())
        self.world.tell("fault", f"{gone.process.name} is killed")
        gone.process.end()
        if isinstance(gone, Transformer):
            self._new_transformer(gone.transactional_id)
        else:
            self._new_transactional(gone.transactional_id)

    # --- faults ------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.world.random.random() < _AIMED:
            self._at_moment(
                self.world.random.choice((_has_decided, _has_waiting_offsets)), self.world.now + _PATIENCE_SECONDS
            )
        else:
            super()._fault()

    def _at_moment(self, is_so: Callable[[Broker], bool], until: float) -> None:
        """Applies a fault to a broker as soon as `is_so` returns True for this broker. Gives up at the time
        `until`."""
        for host in self.hosts:
            if host.is_up and host.program.broker is not None and is_so(host.program.broker):
                self.later(self.world.random.uniform(0.0, 0.002), partial(self._hit_now, host))
                return
        if self.world.now < until:
            self.later(_LOOK_SECONDS, lambda: self._at_moment(is_so, until))

    def _hit_now(self, host: BrokerHost) -> None:
        random = self.world.random
        kinds: list[Callable[[], object]] = [
            lambda: self.kill(host),
            lambda: self.kill(host),
            lambda: self.stop(host),
            self._cut,
        ]
        kinds += [lambda: self.slow_down(host, 1000.0, random.uniform(1.0, 3.0)), lambda: self._fill_disk(host)]
        if self.is_synced or self._several:
            kinds += [lambda: self.lose_power(host)] * 2
        if self._several:
            other = random.choice([one for one in self.hosts if one is not host])
            kinds += [
                lambda: self.pause(host, random.uniform(0.5, 8.0)),
                lambda: self.cut_between(host, other, random.uniform(0.5, 8.0)),
                lambda: self.kill(other),
            ]
        random.choice(kinds)()

    def _one(self) -> BrokerHost:
        if self._several and self.world.random.random() < 0.3:
            leader = self.watch.leader_of(TopicPartition(TRANSACTIONS_TOPIC, self.world.random.randrange(2)))
            if leader >= 0 and self.may_be_hit(self.hosts[leader]):
                return self.hosts[leader]
        return super()._one()

    def _change_clock(self, host: BrokerHost) -> None:
        self.known.clocks_were_set = True
        super()._change_clock(host)

    def _heal(self) -> None:
        super()._heal()
        for host in self.hosts:
            host.set_clock_right()

    # --- invariants --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.transaction_watch.look()
        super()._watch()

    def _end_clients(self) -> None:
        for writer in self._transactional:
            writer.is_stopping = True
        self._end_of("writer", "a producer does not come to an end")
        self._go_on(self._is_decided, _REST_SECONDS, "a transaction does not come to an end")
        self._go_on(self._is_worked_on, _REST_SECONDS, "the group does not work on every committed record")
        for transformer in self._transformers:
            transformer.is_stopping = True
        self._end_of("member", "a member does not come to an end")
        self._go_on(self._is_decided, _REST_SECONDS, "a member's transaction does not come to an end")
        self._reader.is_stopping = True
        self._end_of("reader", "a reader does not come to an end")

    def _end_of(self, kind: str, otherwise: str) -> None:
        tasks = [task for process, task in self._tasks if process.name.startswith(kind) and not process.is_dead]
        self._go_on(lambda: all(task.done() for task in tasks), _REST_SECONDS, otherwise)
        self._judge_tasks()

    def _is_decided(self) -> bool:
        """Returns True if no transaction is open in any partition, and all last stable offsets are at the log's
        end."""
        if not self._is_in_sync():
            return False
        logs = self.transaction_watch.look()
        return all(
            not scanned.open and scanned.log.last_stable_offset == scanned.log.log_end_offset for scanned in logs
        )

    def _is_worked_on(self) -> bool:
        """Returns True if the reader has got a result for every record whose transaction was committed."""
        made = {place for place, _ in self._results()}
        return all(
            place in made
            for transaction in self.known.transactions
            if transaction.outcome
            for place in transaction.places
            if place.partition != RESULTS
        )

    def _results(self) -> list[tuple[RecordPlace, int]]:
        """Returns the input record of each result, and the offset of the result."""
        found = []
        for place, value in self.known.committed.items():
            if place.partition == RESULTS:
                partition, offset, _ = value.split(b":")
                found.append((RecordPlace(TopicPartition(TOPIC, int(partition)), int(offset)), place.offset))
        return found

    def _judge_clients(self) -> None:
        process = Process(self.world, self._network, "last-committed")
        reader = CommittedReader(process, self.history, self.known, self._bootstrap, [*self.topic_partitions, RESULTS])
        log_ends = {
            scanned.log.topic_partition: scanned.log.log_end_offset for scanned in self.transaction_watch.look()
        }
        reading = self._start(
            process, reader.read_all({partition: log_ends[partition] for partition in reader.expected})
        )
        self._go_on(reading.done, _REST_SECONDS, "the last reader of committed records does not come to an end")
        asking = Process(self.world, self._network, "last-offsets")
        groups = [
            *((group, self.topic_partitions[0]) for group in self.known.groups),
            *((TRANSFORMERS, partition) for partition in self.topic_partitions),
        ]
        asked = self._start(asking, OffsetReader(asking, self.known, self._bootstrap).read(groups))
        self._go_on(asked.done, _REST_SECONDS, "the offsets of groups are not told")
        self._judge_tasks()
        offsets: dict[tuple[str, TopicPartition], int] = asked.result()
        self.known.judge_all()
        for group in self.known.groups:
            self.known.judge_offset(group, offsets[group, self.topic_partitions[0]])
        judge_results(
            [place for place in self.known.committed if place.partition != RESULTS],
            [place for place, _ in self._results()],
            {partition: offsets[TRANSFORMERS, partition] for partition in self.topic_partitions},
        )
        outcomes = [transaction.outcome for transaction in self.known.transactions]
        self.world.tell(
            "simulation",
            f"of {len(outcomes)} transactions {outcomes.count(True)} were committed and {outcomes.count(False)} "
            f"aborted, "
            f"{len(self._results())} results",
        )


def _has_decided(broker: Broker) -> bool:
    shards = (hosted.shard for hosted in broker.coordinators.transactions._runtime._hosted.values())
    return any(transaction.awaited for shard in shards for transaction in shard._known.values())


def _has_waiting_offsets(broker: Broker) -> bool:
    return any(hosted.shard._open for hosted in broker.coordinators.groups._runtime._hosted.values())


def transactional_simulation(
    seed: int, *, tree_apart: bool = False, brokers: int = 1
) -> AbstractContextManager[Simulation]:
    """Gives the `with` block a simulation with transactional clients. The arguments are those of
    `schedule.simulation`."""
    return simulation(
        seed,
        seconds=TRANSACTIONAL_SECONDS,
        faults=TRANSACTIONAL_FAULTS,
        tree_apart=tree_apart,
        brokers=brokers,
        kind=TransactionalSimulation,
    )
