"""Searches for the seed with which a simulation finds a deliberate mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from jesenska.testing.simulation.schedule import Simulation
from jesenska.testing.simulation.watches.history import ViolationError


def failure_of(simulated: AbstractContextManager[Simulation]) -> ViolationError | None:
    """The failure that the simulation has found, or None."""
    with simulated as one:
        try:
            one.run()
        except ViolationError as error:
            return error
    return None


def first_failure(
    simulated: Callable[[int], AbstractContextManager[Simulation]], words: Sequence[str], first: int, seeds: int
) -> int:
    """Prints the first seed that fails, and the reason. Returns 0 where the reason contains one of these words, 2
    where it does not, and 1 if none of the seeds fails."""
    for seed in range(first, first + seeds):
        error = failure_of(simulated(seed))
        if error is not None:
            print(f"seed {seed}: {error}")
            return 0 if any(word in str(error) for word in words) else 2
    print("no seed finds it")
    return 1


def first_and_seeds() -> tuple[int, int]:
    """The numbers after the name on the command line: the first seed (1), and the number of seeds (100)."""
    first, seeds = (int(text) for text in (*sys.argv[2:], *("1", "100")[len(sys.argv) - 2 :]))
    return first, seeds
