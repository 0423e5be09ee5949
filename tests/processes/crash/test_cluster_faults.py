"""Three brokers under load are killed, paused, and cut off from each other, from their clients and from the tree. The
history of the clients is clean, and all replicas have the same log.

JESENSKA_SEED chooses the rounds. Our own clients are at work in one cluster, librdkafka's and Apache Kafka's in
another. The long run has thirty rounds, and a third cluster with all of them at once:

    JESENSKA_TESTS=everything python -m pytest tests/processes/crash/test_cluster_faults.py -s
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from jesenska.testing.faults import Fault, Round, Schedule, Target, apply, check, read_history
from tests.cluster.cluster import BrokerCluster
from tests.cluster.witness import Witness
from tests.processes.crash.client_process import JAVA, LIBRDKAFKA, OURS, Together, assert_clients_took_part, load_of
from tests.processes.testing.test_faults_end_to_end import assert_all_took_part
from tests.profiles import chosen, rounds

ROUNDS = rounds(quick=1, ci=3, everything=8)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
_APART = [OURS, f"{LIBRDKAFKA},{JAVA}"]
LOADS = chosen(quick=_APART, ci=_APART, everything=[*_APART, f"{OURS},{LIBRDKAFKA},{JAVA}"])

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 60 * ROUNDS)]

_KINDS = ("kill", "pause", "cut off")
#: Shorter than a broker's session and longer.
_SECONDS = (0.1, 4.0)
_STEPS = (20, 200)


def _drawn(seed: int, rounds: int, brokers: list[int]) -> Schedule:
    """The schedule: each kind in turn, in each round on one broker or on two."""
    chance = random.Random(seed)

    def faults(kind: str, broker_id: int) -> tuple[Fault, ...]:
        seconds = round(chance.uniform(*_SECONDS), 3)
        if kind != "cut off":
            return (Fault(kind, f"broker {broker_id}", seconds),)
        way = chance.choice(["both", "to target", "to client"])
        return Fault("hold", f"broker {broker_id}", seconds, way), Fault("hold", f"tree of {broker_id}", seconds, way)

    def one(number: int) -> Round:
        hit = chance.sample(brokers, chance.choice([1, 1, 2]))
        kinds = [_KINDS[number % len(_KINDS)], *chance.choices(_KINDS, k=len(hit) - 1)]
        return Round(
            tuple(fault for kind, broker_id in zip(kinds, hit, strict=True) for fault in faults(kind, broker_id)),
            chance.randint(*_STEPS),
        )

    return Schedule(seed, tuple(one(number) for number in range(rounds)))


@pytest.mark.parametrize("kinds", LOADS)
def test_a_cluster_keeps_its_promises_under_faults(tmp_path: Path, kinds: str) -> None:
    settings = {"replica.lag.time.max.ms": "2000", "log.segment.bytes": "50000"}
    with BrokerCluster(tmp_path / "cluster", session_ms=1500, settings=settings, proxied=True) as cluster:
        targets = {}
        for broker_id, broker in cluster.brokers.items():
            targets[f"broker {broker_id}"] = Target(broker, broker.proxy)
            targets[f"tree of {broker_id}"] = Target(None, broker.tree_proxy)
        cluster.create("orders", 3)
        load = Together([load_of(kind, cluster.bootstrap, "orders", tmp_path) for kind in kinds.split(",")])
        schedule = _drawn(SEED, ROUNDS, list(cluster.brokers))
        print(schedule.to_json())
        with Witness(cluster):
            apply(schedule, targets, load)
            cluster.until_whole()
            cluster.until_logs_equal("orders", 3)
            cluster.until_logs_equal("__consumer_offsets", 3)
    history = read_history(load.paths)
    print(f"{len(history)} operations; errors that clients were told: {load.errors_by_kind()}; {load.stuck}")
    for kind in kinds.split(","):
        if kind == OURS:
            assert_all_took_part(history)
        else:
            assert_clients_took_part(history, kind)
    assert check(history) == []
