"""No seed of the simulator breaks what is promised: sixty virtual seconds of a broker, or of three, and their clients
with five faults each, in two processes at a time.

These take two cores for some minutes, so that they are a set of their own: `pytest -m seeds` runs them alone, `-m "not
seeds"` leaves them out. JESENSKA_SIMULATIONS says how many seeds of one broker (default: 200),
JESENSKA_CLUSTER_SIMULATIONS how many of three (default: 60), JESENSKA_SEED which is the first."""

from __future__ import annotations

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


@pytest.mark.seeds
@pytest.mark.timeout(_SECONDS_MAX + 60)
@pytest.mark.parametrize("brokers", _SEEDS)
def test_what_is_promised_holds_under_every_seed(brokers: int, capsys: pytest.CaptureFixture[str]) -> None:
    began, seeds = time.monotonic(), _SEEDS[brokers]
    arguments = ["--brokers", str(brokers), "--seed", str(_FIRST), "--schedules", str(seeds), "--processes", str(_PROCESSES)]
    done = subprocess.run(
        [sys.executable, "-m", "jesenska.testing.simulation", *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=_SECONDS_MAX,
    )
    with capsys.disabled():
        print(f"\n{seeds} simulations of {brokers} brokers took {time.monotonic() - began:.0f} s with {_PROCESSES} processes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    assert f"{seeds} of {seeds} seeds pass" in done.stderr
