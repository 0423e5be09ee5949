"""Many seeds in processes that run a few each: every outcome is reported once, and so is a process that is lost."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from jesenska.testing.simulation import many_seeds


def _simulated(seed: int, tree_apart: bool, brokers: int, kind: str) -> many_seeds.Outcome:
    if tree_apart:
        os._exit(9)
    return seed, f"seed {seed} of {brokers}, {kind}" if seed % 7 == 0 else None, Counter({("leader", "cut"): seed})


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 9, 100])
def test_each_outcome_comes_once(monkeypatch: pytest.MonkeyPatch, count: int, processes: int) -> None:
    monkeypatch.setattr(many_seeds, "outcome_of", _simulated)
    seeds = range(5, 5 + count)
    outcomes = list(many_seeds.outcomes_of(seeds, False, 3, processes, kind="transactions"))
    assert sorted(outcomes, key=lambda outcome: outcome[0]) == [
        _simulated(seed, False, 3, "transactions") for seed in seeds
    ]


def test_a_process_that_ends_too_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_seeds, "outcome_of", _simulated)
    with pytest.raises(RuntimeError, match="The process of seed 5 ended with code 9"):
        list(many_seeds.outcomes_of(range(5, 6), True, 3, 1))
