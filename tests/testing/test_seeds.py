"""No seed of the simulator breaks what is promised: sixty virtual seconds of a broker and its clients with five faults
each, in two processes at a time.

These take two cores for some minutes, so that they are a set of their own: `pytest -m seeds` runs them alone, `-m "not
seeds"` leaves them out. JESENSKA_SIMULATIONS says how many seeds (default: 200), JESENSKA_SEED which is the first."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

_SEEDS = int(os.environ.get("JESENSKA_SIMULATIONS", "200"))
_FIRST = int(os.environ.get("JESENSKA_SEED", "1"))
_PROCESSES = 2
#: A machine that is busy takes long, which is no failure; what does not end at all is one.
_SECONDS_MAX = 3600


@pytest.mark.seeds
@pytest.mark.timeout(_SECONDS_MAX + 60)
def test_what_is_promised_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "jesenska.testing.simulation", "--seed", str(_FIRST), "--schedules", str(_SEEDS), "--processes", str(_PROCESSES)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=_SECONDS_MAX,
    )
    with capsys.disabled():
        print(f"\n{_SEEDS} simulations took {time.monotonic() - began:.0f} s with {_PROCESSES} processes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    assert f"{_SEEDS} of {_SEEDS} seeds pass" in done.stderr
