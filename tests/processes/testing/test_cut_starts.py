"""A broker's start survives the end of its connection to the tree before any of its requests. The broker becomes
controller in that start, so this includes the first reads of a controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.cut_starts", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )


@pytest.mark.timeout(120)
def test_a_start_goes_on_wherever_its_connection_to_the_tree_is_cut() -> None:
    done = _run("1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 100


@pytest.mark.timeout(120)
def test_a_start_that_waits_for_no_connection_is_found_out() -> None:
    done = _run("1", "without-patience")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not start: The metadata in tree:2181 cannot be written or read" in done.stdout
