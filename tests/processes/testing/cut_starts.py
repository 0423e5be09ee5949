"""A broker is started again and again. In each start its connection to the tree is cut once, one message later than in
the start before. The lost message may be a request, or the answer to a request that was carried out.

`JESENSKA_PURE=1 python -m tests.processes.testing.cut_starts [STEP [without-patience]]` cuts at every STEP-th message
and prints the number of starts. If a broker does not start, it prints the broker's sentence, and the exit code is 1.
With `without-patience` a broker does not wait for a new connection."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from jesenska.broker.tree.zookeeper_home import ZooKeeperHome
from jesenska.testing.simulation.clients import create_topic
from jesenska.testing.simulation.machine.network import SimulatedNetwork, SimulatedSocket
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.schedule import Simulation, simulation
from jesenska.testing.simulation.watches.history import ViolationError

#: The time within which a broker is up whose connection was cut once.
_SECONDS = 15.0


class _Cut:
    """Cuts the connection to the tree at a message of the current process. `number` is 0 afterwards."""

    def __init__(self, network: SimulatedNetwork, one: Simulation) -> None:
        self.number = 0
        self._network = network
        self._one = one
        self._carry = network.carry
        network.carry = self._counted  # type: ignore[method-assign]

    def _counted(self, source: SimulatedSocket, target: SimulatedSocket, data: bytes) -> None:
        tree, broker = self._one._tree, self._one.hosts[0].program.process
        if self.number and tree is not None and {source.process, target.process} == {tree.process, broker}:
            self.number -= 1
            if self.number == 0:
                self._network.reset(source)
                return
        self._carry(source, target, data)


def _starts(one: Simulation, step: int) -> int:
    """The number of starts that were cut."""
    cut, host = _Cut(one._network, one), one.hosts[0]
    one._start_tree(one._directory / "tree")
    one._go_on(one._tree_is_ready, 10.0, "the tree does not start")
    host.start()
    one._go_on(lambda: host.is_up, 60.0, "the broker does not start")
    maker = Process(one.world, one._network, "admin")
    made: asyncio.Task[Any] = one._start(maker, create_topic(maker, one._bootstrap, "t", 3, 1, {}))
    one._go_on(made.done, 60.0, "the topic is not made")
    maker.end()
    starts, number = 0, 1
    while True:
        before = host.program
        host.stop()
        one._go_on(lambda before=before: host.program is not before, 60.0, "the broker does not stop")  # type: ignore[misc]
        cut.number = number
        one._go_on(lambda: host.is_up, _SECONDS, f"the broker is not up whose connection was cut at message {number}")
        if cut.number > 0:
            return starts
        starts, number = starts + 1, number + step


def main() -> int:
    logging.disable(logging.CRITICAL)
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    if "without-patience" in sys.argv:
        ZooKeeperHome.patience_seconds = property(lambda self: 0.0, lambda self, value: None)  # type: ignore[assignment]
    with simulation(1, tree_apart=True, faults=0) as one:
        try:
            print(f"{_starts(one, step)} starts were cut")
        except ViolationError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
