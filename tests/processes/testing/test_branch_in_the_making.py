"""A branch whose brokers die, or do not know the high watermark of its source, is complete or does not exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scene", ["killed", "power", "succeeded", "unknown"])
@pytest.mark.parametrize(("arguments", "outcome"), [(("5",), 0), (("--whatever-is-known", "5"), 1)])
def test_a_branch_has_all_that_was_committed_or_is_not_there(
    scene: str, arguments: tuple[str, ...], outcome: int
) -> None:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.branch_in_the_making", scene, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )
    assert done.returncode == outcome, done.stdout + done.stderr
