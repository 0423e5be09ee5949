"""No seed of the simulator breaks what is promised: sixty virtual seconds of a broker, or of three, and their clients
with five faults each, in two processes at a time.

These take two cores for some minutes, so that they are a set of their own: `pytest -m seeds` runs them alone, `-m "not
seeds"` leaves them out. JESENSKA_SIMULATIONS says how many seeds of one broker (default: 200),
JESENSKA_CLUSTER_SIMULATIONS how many of three (default: 60), JESENSKA_SEED which is the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: How many seeds, by the number of brokers.
_SEEDS = {1: int(os.environ.get("JESENSKA_SIMULATIONS", "200")), 3: int(os.environ.get("JESENSKA_CLUSTER_SIMULATIONS", "60"))}
_FIRST = int(os.environ.get("JESENSKA_SEED", "1"))
_PROCESSES = 2
#: A machine that is busy takes long, which is no failure; what does not end at all is one.
_SECONDS_MAX = 3600


#: How often each state of a broker meets each fault in so many seeds of three brokers, at least: a third of what they
#: gave when this was written, where that was six or more.
_COVERED_SEEDS = 60
_FLOORS: dict[str, dict[str, int]] = {
    "controller": {"killed": 10, "power loss": 5, "stopped": 2, "cut": 7, "slow disk": 6, "pause": 8, "partition": 31, "tree killed": 4, "tree cut off": 6},
    "leader": {
        "killed": 27,
        "power loss": 7,
        "stopped": 9,
        "cut": 18,
        "slow disk": 12,
        "full disk": 2,
        "pause": 16,
        "partition": 71,
        "tree killed": 14,
        "tree cut off": 17,
    },
    "follower in sync": {
        "killed": 25,
        "power loss": 7,
        "stopped": 10,
        "cut": 19,
        "slow disk": 14,
        "full disk": 2,
        "pause": 15,
        "partition": 74,
        "tree killed": 15,
        "tree cut off": 19,
    },
    "follower out of sync": {"slow disk": 3, "partition": 5, "tree killed": 2},
    "coordinator": {"killed": 12, "power loss": 2, "stopped": 6, "cut": 6, "slow disk": 8, "pause": 9, "partition": 26, "tree killed": 4, "tree cut off": 6},
}


@pytest.mark.seeds
@pytest.mark.timeout(_SECONDS_MAX + 60)
@pytest.mark.parametrize("brokers", _SEEDS)
def test_what_is_promised_holds_under_every_seed(brokers: int, capsys: pytest.CaptureFixture[str]) -> None:
    began, seeds = time.monotonic(), _SEEDS[brokers]
    covers = brokers > 1
    arguments = ["--brokers", str(brokers), "--seed", str(_FIRST), "--schedules", str(seeds), "--processes", str(_PROCESSES)]
    done = subprocess.run(
        [sys.executable, "-m", "jesenska.testing.simulation", *arguments, *(["--coverage", "--output", "json"] if covers else [])],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=_SECONDS_MAX,
    )
    with capsys.disabled():
        print(f"\n{seeds} simulations of {brokers} brokers took {time.monotonic() - began:.0f} s with {_PROCESSES} processes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{seeds} of {seeds} seeds pass" in done.stderr
    if not covers:
        assert done.stdout == ""
        return
    counts = json.loads(done.stdout)["coverage"]
    if seeds >= _COVERED_SEEDS:
        below = {(state, fault): counts[state][fault] for state, floors in _FLOORS.items() for fault, floor in floors.items() if counts[state][fault] < floor}
        assert not below, f"too seldom, by state and fault: {below}"
