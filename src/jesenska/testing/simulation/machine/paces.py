"""Brokers in which coordinators of transactions and logs are slow against each other. In one of `_PACED` seeds each
broker takes its time, a little or much, for

    a leader's requests to a coordinator before it writes in a transaction
    the markers that it writes
    its disk's work, above all flushes

so that a transaction begins while markers of the one before are still to be written. Other seeds are not changed by
this."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from jesenska.broker.server import Broker
from jesenska.testing.simulation.machine.process import Process

_PACED: Final = 4
#: The most seconds that a request takes, in brokers of each kind; and the slowness of their disks.
_SECONDS: Final = (0.0, 0.005, 0.05)
_DISKS: Final = (1.0, 1.0, 10.0)


class Paces:
    """The paces of one seed's brokers. They have their own source of chance."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"paces of {seed}")  # noqa: S311
        self._are_there = seed % _PACED == 0

    def set(self, broker: Broker, process: Process) -> None:
        """Slows down a broker that has started."""
        if not self._are_there:
            return
        chance = self._chance
        process.slowness = chance.choice(_DISKS)
        broker.coordinators.verification.put = self._later(process, broker.coordinators.verification.put)  # type: ignore[method-assign]
        broker.coordinators.marker_writer.write = self._later(process, broker.coordinators.marker_writer.write)  # type: ignore[method-assign]

    def _later(self, process: Process, work: Callable[..., None]) -> Callable[..., None]:
        most = self._chance.choice(_SECONDS)

        def begin(*arguments: Any) -> None:
            if most:
                process.loop.call_later(self._chance.uniform(0.0, most), work, *arguments)
            else:
                work(*arguments)

        return begin
