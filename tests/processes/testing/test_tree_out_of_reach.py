"""The tree is unreachable for thirty seconds, with min.insync.replicas=2. Leaders whose followers were away for part
of that time commit again before the tree is back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.tree_out_of_reach", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "outcome"), [((), 0), (("--proposals-stand", "1"), 1)])
def test_leaders_commit_again_with_their_followers_before_the_tree_is_back(
    arguments: tuple[str, ...], outcome: int
) -> None:
    done = _run(*arguments)
    assert done.returncode == outcome, done.stdout + done.stderr
