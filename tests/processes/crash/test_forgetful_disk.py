"""A sample of what `python -m tests.processes.crash.forgetful_disk` does: the machine goes down at file operations of
a broker, and its disk has forgotten all data that were not synced."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.processes.crash.forgetful_disk import go_down
from tests.processes.crash.traced_disk import compiler

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tracer is written for Linux"),
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the tracer with"),
]

SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
POINTS = 120


def test_nothing_acknowledged_is_lost_by_a_disk_that_forgets_what_was_not_synced(tmp_path: Path) -> None:
    print(f"JESENSKA_SEED={SEED}")
    failed = go_down(tmp_path, points=POINTS, rounds=1, seed=SEED, workers=2, say=print)
    assert not failed, "\n".join(failed)
