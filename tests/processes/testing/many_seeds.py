"""Runs many seeds of the simulator, in two processes at a time. JESENSKA_SEED is the first seed. By default the first
seed depends on the commit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.profiles import chosen
from tests.tiers import first_seed

_PROCESSES = 2
#: A busy machine takes long, which is not a failure. A run that does not end at all is one.
_SECONDS_MAX = chosen(quick=3600, ci=3600, everything=6 * 3600)
TIMEOUT_SECONDS = _SECONDS_MAX + 60


def run_seeds(brokers: int, seeds: int, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs the seeds, all of which must pass. Returns the command's output."""
    first = first_seed()
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "jesenska.testing.simulation", "--brokers", str(brokers)),
            *("--seed", str(first), "--schedules", str(seeds), "--processes", str(_PROCESSES), *arguments),
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
        timeout=_SECONDS_MAX,
    )
    with capsys.disabled():
        print(
            f"\n{seeds} simulations of {brokers} brokers from seed {first} on took {time.monotonic() - began:.0f} s "
            f"with {_PROCESSES} processes"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{seeds} of {seeds} seeds pass" in done.stderr
    return done.stdout
