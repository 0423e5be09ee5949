"""A broker that was alone in sync and starts on an empty disk does not lead until it has its disk again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.processes.testing.unmounted_disk", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "outcome"), [(("2",), 0), (("--empty-leads", "2"), 1)])
def test_nothing_is_lost_where_the_last_one_in_sync_finds_an_empty_disk(
    arguments: tuple[str, ...], outcome: int
) -> None:
    done = _run(*arguments)
    assert done.returncode == outcome, done.stdout + done.stderr
