"""Mistakes with transactions that are made on purpose, for a simulation of clients with transactions to find.

`JESENSKA_PURE=1 PYTHONHASHSEED=0 python -m tests.processes.testing.planted_transaction_bugs NAME [FIRST [SEEDS]]`
prints the first seed that fails, and why. Exit code 1 if none of so many does, 2 if one fails with other words than it
should."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.transaction_markers import MarkerWriter, TransactionMarkers
from jesenska.broker.coordinators.transaction_verification import Guards
from jesenska.broker.fetching import fetches
from jesenska.broker.handlers.k00_produce import _Produce
from jesenska.coordination.operations import Append, Appended
from jesenska.coordination.runtime import Runtime
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import aborted_transactions
from jesenska.testing.simulation.transactional import transactional_simulation
from jesenska.transactions.coordinator import TransactionCoordinator
from jesenska.transactions.events import Producer, ProducerAnswer
from jesenska.transactions.states import Step, TransactionState
from jesenska.transactions.transaction import Transaction
from tests.processes.testing.planted_search import first_and_seeds, first_failure

_LATE_SECONDS = 0.3


def a_partition_is_not_marked() -> None:
    """One of several partitions counts as marked without a marker."""
    route = TransactionMarkers._route

    def route_others(self: TransactionMarkers, end: Any, partitions: Any) -> None:
        left_out = sorted(partitions)[2:]
        route(self, end, frozenset(partitions) - frozenset(left_out))
        if left_out:
            self._done(end, frozenset(left_out))

    TransactionMarkers._route = route_others  # type: ignore[method-assign]


def a_commit_is_answered_before_it_is_written() -> None:
    """The decision reaches the log some time after the answer."""
    append = Runtime._append

    def answer_first(self: Runtime[Any], hosted: Any, effect: Append, now_ms: int) -> Any:
        if (
            self._tenant.name != "transactions"
            or effect.records[0].value is None
            or effect.records[0].value.state is not TransactionState.PREPARE_COMMIT
        ):
            return append(self, hosted, effect, now_ms)
        self._loop.call_later(_LATE_SECONDS, append, self, hosted, effect, now_ms)
        return Appended(effect.number)

    Runtime._append = answer_first  # type: ignore[assignment, method-assign]


def who_begins_gets_the_epoch_of_before() -> None:
    """The earlier producer is not fenced."""
    write = TransactionCoordinator._write

    def keep_epoch(self: Any, transaction: Any, value: Any, token: Any, answer: Any, last_epoch: int = -1) -> None:
        epoch = transaction.value.producer_epoch
        if value is not None and value.state is TransactionState.EMPTY and epoch >= 0:
            value = value._replace(producer_epoch=epoch)
            answer = ProducerAnswer(answer.error, Producer(value.producer_id, epoch))
        write(self, transaction, value, token, answer, last_epoch)

    TransactionCoordinator._write = keep_epoch  # type: ignore[method-assign]


def a_timeout_raises_no_epoch() -> None:
    """A producer whose transaction was aborted at its timeout continues the transaction."""
    fence = TransactionCoordinator._fence

    def fence_others(
        self: TransactionCoordinator, transaction: Transaction, token: Any, transaction_version: int, now: Any
    ) -> None:
        if token is not None:
            fence(self, transaction, token, transaction_version, now)
            return
        aborted = transaction.prepared(Step.FENCE, transaction.value.producer_epoch, -1, 0, now.wall_ms)
        self._write(transaction, aborted, None, ProducerAnswer(0), -1)  # type: ignore[arg-type]

    TransactionCoordinator._fence = fence_others  # type: ignore[method-assign]


def all_that_is_committed_is_stable() -> None:
    """The last stable offset is the high watermark."""
    PartitionLog.last_stable_offset = property(lambda self: self.high_watermark)  # type: ignore[method-assign, assignment]


def an_aborted_transaction_is_not_listed() -> None:
    """The first of several aborted transactions is missing."""
    fetches.aborted_transactions = lambda log, offset, result: aborted_transactions(log, offset, result)[:1]  # type: ignore[attr-defined]


def offsets_count_before_the_commit() -> None:
    def replay_within(self: GroupCoordinator, record: Any, of: Any, now: Any, *, counts: bool = True) -> None:
        self.replay(record, now)

    GroupCoordinator.replay_within = replay_within  # type: ignore[method-assign]


def offsets_of_an_open_transaction_are_forgotten() -> None:
    """A coordinator that loads the log of groups loses these offsets."""
    Runtime._take_in_open = lambda self, hosted, record, of, counts: None  # type: ignore[method-assign]


def a_marker_that_is_sent_again_aborts() -> None:
    again = TransactionMarkers._again

    def abort_again(self: TransactionMarkers) -> None:
        for end in self._later:
            end.order = end.order._replace(commits=False)
        again(self)

    TransactionMarkers._again = abort_again  # type: ignore[method-assign]


def what_was_decided_is_forgotten_at_a_restart() -> None:
    """A coordinator that loads its log does not have the markers written."""

    def finish_replay(self: Any, now: Any) -> None:
        self._next_abort_ms = now.monotonic_ms + self._settings.abort_interval_ms
        self._next_removal_ms = now.monotonic_ms + self._settings.remove_interval_ms

    TransactionCoordinator.finish_replay = finish_replay  # type: ignore[method-assign]


def nothing_is_verified() -> None:
    """A late record starts a transaction that is never ended."""
    _Produce.verify = lambda self, transactional_id, now_ms, *, is_kept: self.append(now_ms)  # type: ignore[method-assign]


def a_decision_is_carried_out_before_it_is_committed() -> None:
    """A coordinator does not wait for other replicas of its log."""
    init = Runtime.__init__

    def init_hasty(self: Runtime[Any], tenant: Any, reading: Any, clock: Any) -> None:
        if tenant.name == "transactions":
            object.__setattr__(tenant, "acks", 1)
        init(self, tenant, reading, clock)

    Runtime.__init__ = init_hasty  # type: ignore[method-assign]


def markers_of_groups_are_not_replayed() -> None:
    """The marker is in the log, but the offsets of its transaction do not count before the log is loaded again."""
    write = MarkerWriter.write

    def write_past(
        self: MarkerWriter, topic_partition: TopicPartition, marker: Any, transaction_version: int, done: Any
    ) -> None:
        keeps, self._groups.keeps = self._groups.keeps, lambda number: False  # type: ignore[method-assign]
        try:
            write(self, topic_partition, marker, transaction_version, done)
        finally:
            self._groups.keeps = keeps  # type: ignore[method-assign]

    MarkerWriter.write = write_past  # type: ignore[method-assign]


def the_guard_of_the_first_question_is_kept() -> None:
    """A coordinator that must be asked again is asked with the notes from before the first question. The marker of the
    previous transaction removes them."""
    Guards.hold = lambda self: True  # type: ignore[method-assign]
    take = Guards.take

    def take_once(self: Guards) -> None:
        if not self._noted:
            take(self)

    Guards.take = take_once  # type: ignore[method-assign]


#: Each mistake, the number of brokers in its simulation, and words that the simulation must report for it.
BUGS: dict[str, tuple[Callable[[], None], int, tuple[str, ...]]] = {
    plant.__name__: (plant, brokers, words)
    for plant, brokers, words in (
        (
            a_partition_is_not_marked,
            1,
            ("does not come to an end", "is committed, and", "is not to be committed so far"),
        ),
        (a_commit_is_answered_before_it_is_written, 1, ("is committed, and", "is not to be committed so far")),
        (who_begins_gets_the_epoch_of_before, 1, ("are both told", "was acknowledged as")),
        (a_timeout_raises_no_epoch, 1, ("is worked on twice", "is committed, and")),
        (all_that_is_committed_is_stable, 1, ("and a transaction is open at", "is not to be committed so far")),
        (an_aborted_transaction_is_not_listed, 1, ("is not to be committed so far", "is aborted, and")),
        (offsets_count_before_the_commit, 1, ("is not committed",)),
        (offsets_of_an_open_transaction_are_forgotten, 1, ("was committed with offset", "is worked on twice")),
        (
            a_marker_that_is_sent_again_aborts,
            1,
            ("is worked on twice", "was committed with offset", "is committed, and"),
        ),
        (what_was_decided_is_forgotten_at_a_restart, 1, ("does not come to an end",)),
        (
            nothing_is_verified,
            1,
            ("is accepted, and epoch", "does not come to an end", "is not to be committed so far"),
        ),
        (markers_of_groups_are_not_replayed, 1, ("are not told", "does not work on every")),
        (the_guard_of_the_first_question_is_kept, 1, ("is refused as part of no transaction",)),
        (
            a_decision_is_carried_out_before_it_is_committed,
            3,
            (
                "does not come to an end",
                "is committed, and",
                "is aborted, and",
                "is worked on twice",
                "are both told that they are",
                "was told before",
            ),
        ),
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    plant, brokers, words = BUGS[name]
    plant()
    gc.freeze()
    return first_failure(partial(transactional_simulation, brokers=brokers), words, first, seeds)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return search(sys.argv[1], *first_and_seeds())


if __name__ == "__main__":
    sys.exit(main())
