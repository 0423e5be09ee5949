"""No seed of the simulator breaks the promises of four brokers while partitions move between them."""

from __future__ import annotations

import pytest

from tests.processes.testing.many_seeds import TIMEOUT_SECONDS, run_seeds
from tests.profiles import rounds

_SEEDS = rounds(quick=2, ci=40, everything=300)


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_what_brokers_promise_of_moves_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(4, _SEEDS, capsys, "--moves") == ""
