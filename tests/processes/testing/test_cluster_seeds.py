"""No seed of the simulator breaks the promises of three brokers, and states of brokers meet faults often enough
(`test_seeds` has the seeds of one broker)."""

from __future__ import annotations

import json

import pytest

from jesenska.testing.simulation.watches.coverage import FAULTS
from tests.processes.testing.many_seeds import TIMEOUT_SECONDS, run_seeds
from tests.profiles import rounds

_SEEDS = rounds(quick=3, ci=100, everything=800)

#: The least number of times that each state of a broker meets each fault in this number of seeds of three brokers, and
#: that it meets any fault. They are well below the usual numbers. The columns are `FAULTS`.
_COVERED_SEEDS = 500
#: Of fewer seeds the single faults are not counted, and of still fewer none.
_SHARE_MIN = 0.2
_FLOORS: dict[str, tuple[tuple[int, ...], int]] = {
    "controller": ((99, 30, 23, 58, 27, 0, 0, 73, 268, 49, 44), 1035),
    "leader": ((252, 60, 68, 149, 56, 17, 16, 127, 611, 122, 111), 2389),
    "follower in sync": ((243, 51, 73, 158, 63, 18, 16, 134, 650, 136, 126), 2507),
    "follower out of sync": ((21, 0, 0, 11, 22, 0, 0, 0, 31, 0, 10), 180),
    "starting": ((13, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0), 75),
    "coordinator": ((127, 30, 31, 61, 42, 11, 0, 63, 274, 47, 44), 1110),
}


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_what_three_brokers_promise_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    counts = json.loads(run_seeds(3, _SEEDS, capsys, "--coverage", "--output", "json"))["coverage"]
    share = min(1.0, _SEEDS / _COVERED_SEEDS)
    if share == 1.0:
        below = {
            (state, fault): counts[state][fault]
            for state, (floors, _) in _FLOORS.items()
            for fault, floor in zip(FAULTS, floors, strict=True)
            if counts[state][fault] < floor
        }
        assert not below, f"too seldom, by state and fault: {below}"
    if share >= _SHARE_MIN:
        few = {
            state: sum(counts[state].values())
            for state, (_, floor) in _FLOORS.items()
            if sum(counts[state].values()) < floor * share
        }
        assert not few, f"too seldom, by state: {few}"
