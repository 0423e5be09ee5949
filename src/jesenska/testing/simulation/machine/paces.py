"""Slows down parts of brokers, so that transaction coordinators and logs have different speeds. One of `_PACED` seeds
is slowed down. Each broker of such a seed gets random delays for

    a leader's requests to a transaction coordinator before it writes in a transaction
    the transaction markers that the broker writes
    the broker's disk, especially flushes

So a transaction may begin while markers of the previous one are still to be written. Other seeds are not affected."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from jesenska.broker.server import Broker
from jesenska.testing.simulation.machine.process import Process

_PACED: Final = 4
#: The possible maximum delays of a request in seconds. The next line has the possible factors by which disks are
#: slower.
_SECONDS: Final = (0.0, 0.005, 0.05)
_DISKS: Final = (1.0, 1.0, 10.0)


class Paces:
    """Slows down the brokers of one seed. It has its own random number generator, so that the events of other seeds
    stay the same."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"paces of {seed}")  # noqa: S311
        self._are_there = seed % _PACED == 0

    def set(self, broker: Broker, process: Process) -> None:
        """Slows down a broker that has just started."""
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
