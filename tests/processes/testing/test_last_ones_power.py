"""A leader that is alone in sync loses its power. With min.insync.replicas=2 no acknowledged record is lost, since it
has synced its log by then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.last_ones_power", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["cut", "paused"])
def test_what_was_acknowledged_survives_the_power_of_the_last_one_in_sync(kind: str) -> None:
    done = _run(kind)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["cut", "paused"])
def test_without_syncs_it_does_not(kind: str) -> None:
    done = _run(kind, "--without-syncs", "10")
    assert done.returncode == 1, done.stdout + done.stderr
