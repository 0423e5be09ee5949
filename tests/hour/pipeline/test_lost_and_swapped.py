"""Programs that are killed, and whose checkpoints and state are lost, copied back and swapped meanwhile, are refused
or right. `python -m tests.processes.crash.lost_and_swapped` tells what happened to which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.crash.lost_and_swapped import run
from tests.profiles import rounds
from tests.tiers import first_seed

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1800)]


def test_what_is_lost_copied_back_or_swapped_is_never_silently_wrong(tmp_path: Path) -> None:
    assert run(tmp_path, rounds(quick=1, ci=1, everything=20), first_seed(), print) == []
