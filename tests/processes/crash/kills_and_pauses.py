"""Three brokers with transactions and their clients, killed and paused in turn: the common parts of these tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from jesenska.testing.faults import Fault, Round, Schedule, Target
from tests.cluster.cluster import BrokerCluster
from tests.processes.crash.talking_process import Faults, Process

#: Of the brokers: small topics of transactions, and sessions that a standstill may outlast.
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "group.min.session.timeout.ms": "1000",
}


def targets_of(cluster: BrokerCluster, processes: Iterable[Process]) -> tuple[dict[str, Target], list[str]]:
    """All targets of faults by name, and the names of the brokers."""
    brokers = {f"broker {broker_id}": Target(broker) for broker_id, broker in cluster.brokers.items()}
    return {**brokers, **{process.name: Target(Faults(process)) for process in processes}}, list(brokers)


def drawn(
    seed: int,
    rounds: int,
    turns: Sequence[tuple[str, Sequence[str]]],
    *,
    seconds: tuple[float, float],
    steps: tuple[int, int],
    hits_two: Callable[[int, random.Random], bool],
) -> Schedule:
    """Draws rounds. Each of `turns` has a fault and the names of its possible targets. In a round that `hits_two`,
    another target is killed or paused at the same time."""
    chance = random.Random(seed)
    names = list(dict.fromkeys(name for _, targets in turns for name in targets))

    def one(number: int) -> Round:
        kind, targets = turns[number % len(turns)]
        target = chance.choice(targets)
        faults = [Fault(kind, target, round(chance.uniform(*seconds), 3))]
        if hits_two(number, chance):
            other = chance.choice([name for name in names if name != target])
            faults.append(Fault(chance.choice(("kill", "pause")), other, round(chance.uniform(*seconds), 3)))
        return Round(tuple(faults), chance.randint(*steps))

    return Schedule(seed, tuple(one(number) for number in range(rounds)))
