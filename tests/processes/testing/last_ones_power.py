"""A leader is left alone in sync and loses its power, with min.insync.replicas=2 and no sync before an answer.

`JESENSKA_PURE=1 python -m tests.processes.testing.last_ones_power cut|paused [--without-syncs] [SEEDS]` prints the
outcome of each seed. The leader is cut off from its followers (cut), or they are paused (paused). The exit code is 1
where a record was lost, and 2 where the fault never happened. With `--without-syncs` a leader with too few in-sync
replicas does not sync its log."""

from __future__ import annotations

import sys
from collections.abc import Callable

from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation.schedule import Simulation
from tests.processes.testing.scripted_fault import outcome

_AT_SECONDS, _SECONDS = 10.0, 30.0


def _planned(*, is_cut: bool) -> Callable[[Simulation, int], Callable[[], bool]]:
    def plan(one: Simulation, seed: int) -> Callable[[], bool]:
        one.world.at(_AT_SECONDS, lambda: one.combined.last_ones_power(is_cut))
        return lambda: any("nobody else is in sync" in line for line in one.world.trace)

    return plan


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--without-syncs"]
    if len(arguments) < len(sys.argv) - 1:
        Replicas.is_to_be_synced = property(lambda self: False)  # type: ignore[assignment,method-assign]
    seeds = int(arguments[1]) if len(arguments) > 1 else 4
    return outcome(range(1, 1 + seeds), _planned(is_cut=arguments[0] == "cut"), seconds=_SECONDS, min_in_sync=2)


if __name__ == "__main__":
    sys.exit(main())
