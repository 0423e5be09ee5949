"""A leader is left alone in sync and loses its power, with min.insync.replicas=2 and no sync before an answer.

`JESENSKA_PURE=1 python -m tests.processes.testing.last_ones_power cut|paused [--without-syncs] [SEEDS]` prints what
came of each seed: the leader is cut from its followers, or they stand still. Exit code 1 where something was lost, 2
where the fault never came. With `--without-syncs` nobody syncs a log since too few are in sync."""

from __future__ import annotations

import logging
import sys

from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation.history import ViolationError
from jesenska.testing.simulation.schedule import simulation

_AT_SECONDS, _SECONDS = 10.0, 30.0


def _run(seed: int, *, is_cut: bool) -> bool:
    """Whether the last one in sync lost its power; ViolationError where it lost something."""
    with simulation(seed, brokers=3, faults=0, seconds=_SECONDS, is_synced=False, min_in_sync=2) as one:
        one.world.at(_AT_SECONDS, lambda: one.combined.last_ones_power(is_cut))
        try:
            one.run()
        except ViolationError as error:
            print(f"seed {seed}: {error}")
            raise
        came = any("nobody else is in sync" in line for line in one.world.trace)
        print(f"seed {seed}: {'nothing is lost' if came else 'the fault did not come'}")
        return came


def main() -> int:
    logging.disable(logging.CRITICAL)
    arguments = [argument for argument in sys.argv[1:] if argument != "--without-syncs"]
    if len(arguments) < len(sys.argv) - 1:
        Replicas.is_to_be_synced = property(lambda self: False)  # type: ignore[assignment,method-assign]
    seeds = int(arguments[1]) if len(arguments) > 1 else 4
    try:
        came = [_run(seed, is_cut=arguments[0] == "cut") for seed in range(1, 1 + seeds)]
    except ViolationError:
        return 1
    return 0 if any(came) else 2


if __name__ == "__main__":
    sys.exit(main())
