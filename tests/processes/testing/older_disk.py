"""A broker is stopped in order and starts on another disk: an empty one, or a copy. With that disk it is alone in
sync, beside other brokers that are paused, and then gets the first disk back. At the end it has the newest disk again.
No acknowledged record is lost.

`JESENSKA_PURE=1 python -m tests.processes.testing.older_disk [--older-leads] [FIRST [SEEDS]]` prints the outcome of
each seed. The exit code is 1 where a record was lost, and 2 where the fault never happened. With `--older-leads` the
first disk counts as the newest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from jesenska.broker.replicas import starts
from jesenska.testing.simulation.machine.host import BrokerHost, Disk
from jesenska.testing.simulation.schedule import Simulation
from tests.processes.testing.scripted_fault import outcome

_AT_SECONDS, _SECONDS = 6.0, 60.0
#: The others are paused until they are out of sync. The first disk is in use until they are back, and a while longer.
_STILL_SECONDS, _OLDER_SECONDS, _PATIENCE_SECONDS = 12.0, 15.0, 20.0
#: Records are written meanwhile.
_ALONE_SECONDS = 1.5
_LOOK_SECONDS = 0.05


def _as_it_is(data: Path) -> None:
    """Leaves the copy of a directory unchanged."""


class _Fault:
    """The fault of the broker that leads the first partition."""

    def __init__(self, one: Simulation, *, is_copied: bool) -> None:
        self.came = False
        self._one = one
        self._is_copied = is_copied
        self._host: BrokerHost
        self._first: Disk
        one.world.at(_AT_SECONDS, self._begin)

    def _begin(self) -> None:
        host = self._host = self._one.hosts[self._one.watch.leader_of(self._one.topic_partitions[0])]

        def replace() -> None:
            self._first = host.replace_disk(_as_it_is) if self._is_copied else host.replace_disk()
            self._when(self._all_are_in_sync, self._stand_still)

        host.stop(replace)

    def _when(self, is_so: Callable[[], bool], then: Callable[[], None]) -> None:
        world = self._one.world
        until = world.now + _PATIENCE_SECONDS

        def look() -> None:
            if is_so():
                then()
            elif world.now < until:
                world.after(_LOOK_SECONDS, look)

        look()

    def _all_are_in_sync(self) -> bool:
        return self._host.is_up and all(
            len(state.isr) == len(self._one.hosts) for state in self._one.watch.states.values()
        )

    def _stand_still(self) -> None:
        for other in self._one.hosts:
            if other is not self._host:
                self._one.pause(other, _STILL_SECONDS)
        number = self._host.number
        self._when(
            lambda: all(state.isr == (number,) for state in self._one.watch.states.values()),
            lambda: self._one.world.after(_ALONE_SECONDS, self._stop),
        )

    def _stop(self) -> None:
        self._host.stop(self._swap)

    def _swap(self) -> None:
        self.came = True
        newest = self._host.replace_disk()
        self._host.mount(self._first)
        self._one.world.after(_OLDER_SECONDS, lambda: self._host.mount(newest))


def _plan(one: Simulation, seed: int) -> Callable[[], bool]:
    fault = _Fault(one, is_copied=seed % 2 == 0)
    return lambda: fault.came


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--older-leads"]
    if len(arguments) < len(sys.argv) - 1:
        starts.is_older = lambda found, starts: False  # type: ignore[attr-defined]
    first, seeds = (int(text) for text in [*arguments, *("1", "4")[len(arguments) :]])
    return outcome(range(first, first + seeds), _plan, seconds=_SECONDS, min_in_sync=1)


if __name__ == "__main__":
    sys.exit(main())
