"""Simulations of three brokers with one scripted fault, and no others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from jesenska.testing.simulation.schedule import Simulation, simulation
from jesenska.testing.simulation.watches.history import ViolationError


def outcome(
    seeds: Iterable[int], plan: Callable[[Simulation, int], Callable[[], bool]], *, seconds: float, min_in_sync: int
) -> int:
    """Runs a simulation of this number of virtual seconds for each seed, and prints its outcome. `plan` plans the
    fault of a seed, and returns a function that returns whether it happened. Returns the exit code: 1 where a record
    was lost, which ends the runs, 2 where the fault never happened, and 0 otherwise."""
    logging.disable(logging.CRITICAL)
    has_come = False
    for seed in seeds:
        with simulation(seed, brokers=3, faults=0, seconds=seconds, is_synced=False, min_in_sync=min_in_sync) as one:
            came = plan(one, seed)
            try:
                one.run()
            except ViolationError as error:
                print(f"seed {seed}: {error}")
                return 1
            print(f"seed {seed}: {'nothing is lost' if came() else 'the fault did not come'}")
            has_come = has_come or came()
    return 0 if has_come else 2
