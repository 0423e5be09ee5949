"""No seed of the simulator breaks the promises to clients with transactions and to Spark queries that write exactly
once, with one broker and with three (`test_seeds` and `test_cluster_seeds` have the seeds without transactions)."""

from __future__ import annotations

import pytest

from tests.processes.testing.many_seeds import TIMEOUT_SECONDS, run_seeds
from tests.profiles import rounds

_SEEDS = rounds(quick=1, ci=64, everything=400)
_QUERIES = rounds(quick=1, ci=24, everything=120)
#: Of so many one is of three brokers, which takes more than twice as long.
_OF_THREE = 8


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_what_one_broker_promises_of_transactions_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(1, _SEEDS - _SEEDS // _OF_THREE, capsys, "--transactions") == ""


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_what_three_brokers_promise_of_transactions_holds_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(3, _SEEDS // _OF_THREE, capsys, "--transactions") == ""


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_query_writes_exactly_once_under_every_seed(brokers: int, capsys: pytest.CaptureFixture[str]) -> None:
    of_three = _QUERIES // _OF_THREE
    assert run_seeds(brokers, of_three if brokers == 3 else _QUERIES - of_three, capsys, "--micro-batches") == ""
