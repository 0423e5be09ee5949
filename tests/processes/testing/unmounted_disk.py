"""A broker that is alone in sync starts on an empty disk, beside others that are not in sync. Later it is started
again on its old disk. No acknowledged record is lost.

`JESENSKA_PURE=1 python -m tests.processes.testing.unmounted_disk [--empty-leads] [SEEDS]` prints the outcome of each
seed. The exit code is 1 where a record was lost, and 2 where the fault never happened. With `--empty-leads` a broker
leads although it has lost data."""

from __future__ import annotations

import sys
from collections.abc import Callable

from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.schedule import Simulation
from tests.processes.testing.scripted_fault import outcome

_AT_SECONDS, _SECONDS = 10.0, 50.0
#: The others are paused until they are out of sync. The disk is away until they are back, and a while longer.
_STILL_SECONDS, _UNMOUNTED_SECONDS, _PATIENCE_SECONDS = 9.0, 15.0, 8.5
_LOOK_SECONDS = 0.05


class _Fault:
    """The fault of the broker that leads the first partition."""

    def __init__(self, one: Simulation) -> None:
        self.came = False
        self._one = one
        self._host: BrokerHost
        one.world.at(_AT_SECONDS, self._begin)

    def _begin(self) -> None:
        self._host = self._one.hosts[self._one.watch.leader_of(self._one.topic_partitions[0])]
        for other in self._one.hosts:
            if other is not self._host:
                self._one.pause(other, _STILL_SECONDS)
        self._look()

    def _look(self) -> None:
        number, world = self._host.number, self._one.world
        if all(state.isr == (number,) for state in self._one.watch.states.values()):
            self.came = True
            self._host.unmount(_UNMOUNTED_SECONDS)
        elif world.now < _AT_SECONDS + _PATIENCE_SECONDS:
            world.after(_LOOK_SECONDS, self._look)


def _plan(one: Simulation, seed: int) -> Callable[[], bool]:
    fault = _Fault(one)
    return lambda: fault.came


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--empty-leads"]
    if len(arguments) < len(sys.argv) - 1:
        ReplicaManager._has_lost_data = lambda self, topic_partition, leader, config: False  # type: ignore[method-assign]
    return outcome(range(1, 1 + (int(arguments[0]) if arguments else 3)), _plan, seconds=_SECONDS, min_in_sync=1)


if __name__ == "__main__":
    sys.exit(main())
