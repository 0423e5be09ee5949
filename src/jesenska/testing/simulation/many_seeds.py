"""Runs many seeds in several processes at a time. A process runs a few seeds, one after the other, without collecting
garbage: collecting garbage would take longer than starting the next process."""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from jesenska.testing.simulation.access import access_simulation
from jesenska.testing.simulation.micro_batches import micro_batch_simulation
from jesenska.testing.simulation.moves import moving_simulation
from jesenska.testing.simulation.schedule import Simulation, simulation
from jesenska.testing.simulation.transactional import transactional_simulation
from jesenska.testing.simulation.watches.coverage import Cell

#: The number of seeds that a process runs. A seed with three brokers leaves about 20 MB of garbage.
_SEEDS_OF_A_PROCESS = 10

#: The result of a seed: the seed, its failure (None if it passes), and the counts of faults by broker state.
Outcome = tuple[int, str | None, Counter[Cell]]


#: The functions that make a simulation, by the kind of its clients.
KINDS: Mapping[str, Callable[..., AbstractContextManager[Simulation]]] = {
    "groups": simulation,
    "transactions": transactional_simulation,
    "micro-batches": micro_batch_simulation,
    "access": access_simulation,
    "moves": moving_simulation,
}


def simulated(seed: int, tree_apart: bool, brokers: int, kind: str) -> AbstractContextManager[Simulation]:
    """Returns the simulation of a seed, with clients of this kind."""
    return KINDS[kind](seed, tree_apart=tree_apart, brokers=brokers)


def outcome_of(seed: int, tree_apart: bool, brokers: int, kind: str) -> Outcome:
    failure = None
    with simulated(seed, tree_apart, brokers, kind) as one:
        try:
            one.run()
        except Exception as error:
            failure = f"seed {seed} fails at {one.world.now:.3f} s: {type(error).__name__}: {error}"
        return seed, failure, one.coverage.counts


def outcomes_of(
    seeds: Sequence[int], tree_apart: bool, brokers: int, processes: int, kind: str = "groups"
) -> Iterator[Outcome]:
    """Yields the outcome of each seed as soon as it is known. Raises RuntimeError if a process ends before it has sent
    all its outcomes."""
    made = multiprocessing.get_context("fork")
    size = max(1, min(_SEEDS_OF_A_PROCESS, len(seeds) // (4 * processes)))
    waiting = [seeds[first : first + size] for first in range(0, len(seeds), size)]
    working: dict[Connection, tuple[BaseProcess, list[int]]] = {}
    while waiting or working:
        while waiting and len(working) < processes:
            chosen = waiting.pop(0)
            ours, theirs = made.Pipe(duplex=False)
            process: BaseProcess = made.Process(
                target=_run, args=(chosen, tree_apart, brokers, kind, theirs), daemon=True
            )
            process.start()
            theirs.close()
            working[ours] = process, list(chosen)
        for said in wait(list(working)):
            assert isinstance(said, Connection)
            process, missing = working[said]
            try:
                outcome: Outcome = said.recv()
            except EOFError:
                del working[said]
                said.close()
                process.join()
                if missing:
                    raise RuntimeError(
                        f"The process of seed {missing[0]} ended with code {process.exitcode}."
                    ) from None
            else:
                missing.remove(outcome[0])
                yield outcome


def _run(seeds: Sequence[int], tree_apart: bool, brokers: int, kind: str, outcomes: Connection) -> None:
    """Runs seeds in a process, and sends the outcome of each one."""
    gc.disable()
    for seed in seeds:
        outcomes.send(outcome_of(seed, tree_apart, brokers, kind))
