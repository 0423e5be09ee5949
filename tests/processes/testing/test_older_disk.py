"""A broker on an earlier disk, or on an older copy of its disk, does not lead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.older_disk", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )


#: Odd seeds begin with an empty disk, even ones with a copy.
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("arguments", "outcome"), [(("1", "4"), 0), (("--older-leads", "1", "1"), 1), (("--older-leads", "2", "1"), 1)]
)
def test_nothing_is_lost_where_a_broker_gets_back_a_disk_of_before(arguments: tuple[str, ...], outcome: int) -> None:
    done = _run(*arguments)
    assert done.returncode == outcome, done.stdout + done.stderr
