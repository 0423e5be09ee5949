"""No seed of the simulator breaks the promises: sixty virtual seconds of a broker and its clients with five faults
each. These tests use two cores for long, so they are a set of their own: `pytest -m seeds` runs them and those of
several brokers and of transactions alone, `-m "not seeds"` leaves them out."""

from __future__ import annotations

import pytest

from tests.processes.testing.many_seeds import TIMEOUT_SECONDS, run_seeds
from tests.profiles import rounds

_SEEDS = rounds(quick=5, ci=60, everything=600)


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_what_one_broker_promises_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(1, _SEEDS, capsys) == ""
