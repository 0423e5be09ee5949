"""Mistakes in how a query writes exactly once that are made on purpose, for a simulation of such queries to find.

`JESENSKA_PURE=1 PYTHONHASHSEED=0 python -m tests.processes.testing.planted_micro_batch_bugs NAME [FIRST [SEEDS]]`
prints the first seed that fails, and why. Exit code 1 if none of so many does, 2 if one fails with other words than it
should."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.transactions import Transactions
from jesenska.pipeline import micro_batches
from jesenska.pipeline.micro_batches import MicroBatch, MicroBatchTransaction, Ticket, _Followed
from jesenska.records.decode import ControlMarker, ControlType, read_marker
from jesenska.testing.simulation.micro_batches import Driver, micro_batch_simulation
from tests.processes.testing.planted_search import first_and_seeds, first_failure

_READ_COMMITTED = 1


def the_number_is_read_to_the_stable_offset() -> None:
    """The number of a micro-batch is read up to the last stable offset, so a commit after another query's open
    transaction is not seen. It is read from the beginning each time, since the stable offset may be below an earlier
    one."""
    read_on = micro_batches._read_on

    async def read(cluster: Any, key: Any, name: bytes, end: int) -> MicroBatch | None:
        micro_batches._followed.clear()
        stable = (await list_offsets(cluster, {key: LATEST}, _READ_COMMITTED))[key].offset
        return await read_on(cluster, key, name, min(stable, end))

    setattr(micro_batches, "_read_on", read)  # noqa: B010


def an_aborted_number_counts() -> None:
    """The marker that follows a number is ignored."""

    def committed(data: Any) -> ControlMarker | None:
        marker = read_marker(data)
        return None if marker is None else marker._replace(type=ControlType.COMMIT)

    setattr(micro_batches, "read_marker", committed)  # noqa: B010


def an_undecided_number_counts() -> None:
    """A number counts as soon as it is read."""
    follow = _Followed.follow

    def take(self: _Followed, data: Any, position: int, header: Any, name: bytes) -> None:
        follow(self, data, position, header, name)
        known = [*self.undecided.values(), *([] if self.last is None else [self.last])]
        self.last = max(known, key=lambda batch: batch.number, default=None)

    _Followed.follow = take  # type: ignore[method-assign]


def the_number_is_not_looked_for() -> None:
    """Each attempt assumes that its micro-batch is not written yet."""

    async def nothing(self: MicroBatchTransaction) -> None:
        return None

    MicroBatchTransaction.last_batch = nothing  # type: ignore[method-assign]


def a_task_is_run_a_second_time() -> None:
    """The task writes its rows again, from number 0 on, in the order of the new shuffle."""

    async def write_again(self: Driver, executor: Any, ticket: Any, known: Any, partition: Any, rows: Any) -> None:
        await self._task(executor, ticket, known, partition, rows[::-1])

    Driver._second_attempt = write_again  # type: ignore[method-assign]


def tasks_write_outside_the_transaction() -> None:
    """Each task has a producer of its own."""

    def nobody(self: Ticket, cluster: Any) -> Transactions | None:
        return None

    Ticket.join = nobody  # type: ignore[assignment]


def a_task_that_has_failed_is_not_missed() -> None:
    """The driver commits the records of the other tasks, although one task has failed."""
    run_tasks = Driver._run_tasks

    async def run_most(self: Driver, ticket: Any, known: Any, rows: Any) -> None:
        try:
            await run_tasks(self, ticket, known, rows)
        except Exception as error:
            self.process.world.tell(self.process.name, f"goes on: {error}")

    Driver._run_tasks = run_most  # type: ignore[method-assign]


#: Each mistake, the number of brokers in its simulation, and words of one of its violations.
BUGS: dict[str, tuple[Callable[[], None], int, tuple[str, ...]]] = {
    plant.__name__: (plant, brokers, words)
    for plant, brokers, words in (
        (the_number_is_read_to_the_stable_offset, 1, ("is there from the attempts",)),
        (an_aborted_number_counts, 1, ("should have row",)),
        (an_undecided_number_counts, 1, ("should have row",)),
        (the_number_is_not_looked_for, 1, ("is there from the attempts",)),
        (a_task_is_run_a_second_time, 1, ("should have row", "and stands at offset", "stands behind its record")),
        (tasks_write_outside_the_transaction, 1, ("is not to be committed so far",)),
        (a_task_that_has_failed_is_not_missed, 1, ("should have row", "is committed, and")),
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    plant, brokers, words = BUGS[name]
    plant()
    gc.freeze()
    return first_failure(partial(micro_batch_simulation, brokers=brokers), words, first, seeds)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return search(sys.argv[1], *first_and_seeds())


if __name__ == "__main__":
    sys.exit(main())
