"""Apache Kafka Streams with exactly_once_v2 on three brokers, while brokers and instances are killed and paused. Each
result is there once.

By default there is one round with one instance, and a broker is killed. In the long run there are twenty rounds with
two instances, which are killed too, of each of two releases. JESENSKA_SEED chooses the rounds:

    JESENSKA_TESTS=everything python -m pytest tests/processes/crash/test_streams.py -s
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from jesenska.testing.faults import Schedule, apply
from tests.cluster.cluster import BrokerCluster
from tests.processes.crash.kills_and_pauses import SETTINGS, drawn, targets_of
from tests.processes.crash.streams_load import INPUTS, OUTPUTS, PARTITIONS, StreamsLoad, wrong
from tests.processes.crash.talking_process import said
from tests.profiles import chosen, rounds

ROUNDS = rounds(quick=1, ci=1, everything=3)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
RELEASES = chosen(quick=["4.3.1"], ci=["4.3.1"], everything=["3.9.1", "4.3.1"])

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 120 * ROUNDS)]

_SECONDS = (0.1, 6.0)
_STEPS = (20, 80)


def _drawn(seed: int, rounds: int, brokers: list[str], instances: list[str]) -> Schedule:
    turns = [("kill", brokers), ("kill", instances), ("pause", brokers), ("pause", instances)]
    return drawn(seed, rounds, turns, seconds=_SECONDS, steps=_STEPS, hits_two=lambda number, _: number % 3 == 2)


@pytest.mark.parametrize("release", RELEASES)
def test_each_result_is_there_once_whatever_fails(tmp_path: Path, release: str) -> None:
    with BrokerCluster(tmp_path / "cluster", session_ms=1500, settings=SETTINGS) as cluster:
        for topic in (*INPUTS, *OUTPUTS):
            cluster.create(topic, PARTITIONS)
        load = StreamsLoad(cluster.bootstrap, release, 2 if ROUNDS > 1 else 1, tmp_path, SEED)
        targets, brokers = targets_of(cluster, load.instances)
        schedule = _drawn(SEED, ROUNDS, brokers, [item.name for item in load.instances])
        print(schedule.to_json())
        try:
            apply(schedule, targets, load)
        finally:
            starts = {item.name: item.starts for item in load.instances}
            print(
                f"{load.keys} keys, {load.words.total()} words; starts {starts}; errors {said(load.instances, 'error')}"
            )
        cluster.until_whole()
        for topic in OUTPUTS:
            cluster.until_logs_equal(topic, PARTITIONS)
    assert load.keys > 10 * ROUNDS
    assert load.wrong() == []


def test_a_result_that_is_there_twice_or_missing_is_found() -> None:
    words = Counter({"a": 2})
    right = {("counts", 0): [("a", "1"), ("a", "2")], ("pairs", 0): [("0", "left 0+right 0")]}
    assert wrong(right, words, 1) == []
    assert wrong(right, words, 2) == ["pairs too many: []; missing: [(('1', 'left 1+right 1'), 1)]"]
    assert wrong({**right, ("pairs", 1): [("0", "left 0+right 0")]}, words, 1) == [
        "pairs too many: [(('0', 'left 0+right 0'), 1)]; missing: []"
    ]
    assert wrong({**right, ("counts", 0): [("a", "1"), ("a", "2"), ("a", "2")]}, words, 1) == [
        "a was written 2 times and counted up to 2, with the steps [(2, 2)]"
    ]
