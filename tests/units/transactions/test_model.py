"""Random sequences of requests, lost writes, markers in any order, time and crashes against the decider. The answers
to clients, the log and the written markers must agree:

    a decision in the log is never taken back, and is complete when all of its partitions are marked, not before
    an answered commit covers every partition that was confirmed to its producer as part of the transaction
    requests of a fenced producer change nothing
    nothing stays open: when all steps have been done, every decision is complete
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import KeyValue
from jesenska.transactions.events import Producer, ProducerAnswer
from jesenska.transactions.records import TransactionRecord, TransactionValue, encode_record, read_record
from jesenska.transactions.settings import TransactionSettings
from jesenska.transactions.states import ALLOWED_BEFORE, TransactionState
from jesenska.transactions.transaction import LAST_EPOCH
from tests.profiles import examples
from tests.units.transactions.driver import P0, P1, P2, Driver

_NAMES = ("a", "b")
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)


class Transactions(RuleBasedStateMachine):
    @initialize(version=st.sampled_from((0, 2)), epoch=st.sampled_from((0, LAST_EPOCH - 4)))
    def begin(self, version: int, epoch: int) -> None:
        self.driver = Driver(
            TransactionSettings(abort_interval_ms=1000, remove_interval_ms=5000, id_expiration_ms=60_000),
            at_once=False,
            transaction_version=version,
        )
        self.version = version
        #: The newest record of each id, as the log has it.
        self.logged: dict[str, TransactionValue | None] = {}
        #: Partitions that have the marker of the decision which the log holds last.
        self.marked: dict[str, set[TopicPartition]] = {}
        #: Producers that were given, the newest of each id last.
        self.given: dict[str, list[Producer]] = {name: [] for name in _NAMES}
        #: The partitions that were confirmed to each producer as part of its transaction.
        self.told: dict[tuple[str, Producer], set[TopicPartition]] = {}
        #: Requests that wait for an answer: the id and the request.
        self.waiting: dict[int, tuple[Any, ...]] = {}
        self.seen = 0
        for name in _NAMES:
            token = self.driver.ask_init(name)
            self.waiting[token] = ("init", name)
            self.let_through()
            if epoch:
                # As if as many transactions had been.
                transaction = self.driver.coordinator._known[name]
                transaction.value = transaction.value._replace(producer_epoch=epoch)
                self.logged[name] = transaction.value
                self.driver.log[-1] = _encoded(name, transaction.value)
                self.given[name] = [Producer(transaction.value.producer_id, epoch)]

    def let_through(self) -> None:
        while self.driver.pending or self.driver.orders:
            if self.driver.pending:
                self._commit()
            else:
                self._mark(0, frozenset())
        self._look()

    # --- what happens ------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        before = len(self.driver.log)
        record = self.driver.pending[0].records[0]
        self._written(record)
        self.driver.commit()
        assert len(self.driver.log) == before + 1

    def _written(self, record: TransactionRecord) -> None:
        name, value, before = record.transactional_id, record.value, self.logged.get(record.transactional_id)
        if value is not None and before is not None:
            assert before.state in ALLOWED_BEFORE[value.state]
            if value.producer_id == before.producer_id:
                assert value.producer_epoch >= before.producer_epoch
            if before.state in _PREPARED:
                # The decision is kept, and all partitions are marked.
                assert (value.state is TransactionState.COMPLETE_COMMIT) == (
                    before.state is TransactionState.PREPARE_COMMIT
                )
                assert self.marked[name] >= before.partitions
        if value is None:
            assert before is not None
            assert before.state not in (*_PREPARED, TransactionState.ONGOING)
        if value is not None and value.state in _PREPARED:
            self.marked[name] = set()
        if value is not None and value.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            # It is over, even if the request for its end was answered with an error.
            self.told = {key: partitions for key, partitions in self.told.items() if key[0] != name}
        self.logged[name] = value

    def _mark(self, index: int, partitions: frozenset[TopicPartition]) -> None:
        order = self.driver.orders[index % len(self.driver.orders)]
        now = self.logged[order.transactional_id]
        marked = partitions & order.partitions or order.partitions
        if (
            now is not None
            and now.state in _PREPARED
            and order.producer == Producer(now.producer_id, now.producer_epoch)
        ):
            assert order.commits == (now.state is TransactionState.PREPARE_COMMIT)
            assert order.partitions == now.partitions
            self.marked[order.transactional_id] |= marked
        self.driver.orders.remove(order)
        self.driver.orders.insert(0, order)
        self.driver.mark(*marked)
        if order in self.driver.orders and marked != order.partitions:
            # The rest of it comes once more, as from a sender that has seen no answer.
            self.driver.orders.remove(order)
            self.driver.orders.append(order)

    def _look(self) -> None:
        """Handles the answers."""
        for token in [token for token in self.waiting if self.driver.answer(token) is not None]:
            asked = self.waiting.pop(token)
            answer = self.driver.answer(token)
            assert answer is not None
            if answer.error is ErrorCode.NONE:
                getattr(self, f"_{asked[0]}_done")(answer, *asked[1:])

    def _init_done(self, answer: ProducerAnswer, name: str) -> None:
        now = self.logged[name]
        assert now is not None
        assert Producer(now.producer_id, now.producer_epoch) == answer.producer
        assert now.state is TransactionState.EMPTY
        self.given[name].append(answer.producer)
        self.told[name, answer.producer] = set()

    def _add_done(
        self, answer: ProducerAnswer, name: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> None:
        assert producer == self.given[name][-1], "a fenced producer has added partitions"
        self.told.setdefault((name, producer), set()).update(partitions)
        now = self.logged[name]
        assert now is not None
        assert now.partitions >= self.told[name, producer]

    def _end_done(self, answer: ProducerAnswer, name: str, producer: Producer, commits: bool, version: int) -> None:
        now = self.logged[name]
        assert now is not None
        wanted = (
            (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
            if commits
            else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        )
        assert now.state in wanted
        if now.state in _PREPARED and producer == self.given[name][-1]:
            assert now.partitions >= self.told.get((name, producer), set())
        self.told.pop((name, producer), None)
        if version == 2 and answer.producer != self.given[name][-1]:
            self.given[name].append(answer.producer)
            self.told[name, answer.producer] = set()

    # --- rules -------------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(_NAMES),
        goes_on=st.booleans(),
        timeout_ms=st.sampled_from((2000, 600_000)),
        at_once=st.booleans(),
    )
    def init(self, name: str, goes_on: bool, timeout_ms: int, at_once: bool) -> None:
        expected = self.given[name][-1] if goes_on and self.given[name] else None
        self.waiting[self.driver.ask_init(name, expected, timeout_ms)] = ("init", name)
        self._then(at_once)

    def _then(self, at_once: bool) -> None:
        """Lets pending writes reach the log, or leaves them, so that they may be lost."""
        while at_once and self.driver.pending:
            self._commit()
        self._look()

    @rule(
        name=st.sampled_from(_NAMES),
        back=st.sampled_from((0, 0, 0, 1)),
        partitions=st.frozensets(st.sampled_from((P0, P1, P2)), min_size=1),
        at_once=st.sampled_from((True, True, True, False)),
    )
    def add(self, name: str, back: int, partitions: frozenset[TopicPartition], at_once: bool) -> None:
        if len(self.given[name]) > back:
            producer = self.given[name][-1 - back]
            self.waiting[self.driver.ask_add(producer, *partitions, name=name, version=self.version)] = (
                "add",
                name,
                producer,
                partitions,
            )
            self._then(at_once)

    @rule(
        name=st.sampled_from(_NAMES),
        back=st.sampled_from((0, 0, 0, 1)),
        commits=st.booleans(),
        at_once=st.sampled_from((True, True, False)),
    )
    def end(self, name: str, back: int, commits: bool, at_once: bool) -> None:
        if len(self.given[name]) > back:
            producer = self.given[name][-1 - back]
            self.waiting[self.driver.ask_end(producer, commits=commits, name=name, version=self.version)] = (
                "end",
                name,
                producer,
                commits,
                self.version,
            )
            self._then(at_once)

    @precondition(lambda self: self.driver.pending)
    @rule()
    def commit(self) -> None:
        self._commit()
        self._look()

    @precondition(lambda self: self.driver.pending)
    @rule(error=st.sampled_from(_ERRORS))
    def lose(self, error: ErrorCode) -> None:
        self.driver.fail(error)
        self._look()

    @precondition(lambda self: self.driver.orders)
    @rule(index=st.integers(0, 3), partitions=st.frozensets(st.sampled_from((P0, P1, P2))))
    def mark(self, index: int, partitions: frozenset[TopicPartition]) -> None:
        self._mark(index, partitions)
        self._look()

    @rule(milliseconds=st.sampled_from((10, 1500, 4000, 70_000)))
    def wait(self, milliseconds: int) -> None:
        self.driver.tick(milliseconds)
        self._look()

    @rule(written=st.integers(0, 3), happens=st.sampled_from((False, False, True)))
    def crash(self, written: int, happens: bool) -> None:
        """Some of the pending writes are in the log, but were not answered."""
        if not happens:
            return
        for append in self.driver.pending[:written]:
            self._written(append.records[0])
            name, value = append.records[0]
            self.driver.log.append(_encoded(name, value))
        self.waiting.clear()
        self.driver.crash()
        for name, value in self.logged.items():
            if value is not None and (valid := _valid(value)) not in self.given[name]:
                # The client that it was given to has not seen it; earlier confirmations are not valid any more.
                self.given[name].append(valid)
            if value is None or value.state is not TransactionState.ONGOING:
                self.told = {key: partitions for key, partitions in self.told.items() if key[0] != name}
        self._look()

    @invariant()
    def what_is_known_is_what_the_log_says(self) -> None:
        for name, value in self.driver.coordinator.all():
            assert value == self.logged[name]

    def teardown(self) -> None:
        for _ in range(3):
            self.driver.tick(1000)
            self.let_through()
        assert not [value for value in self.logged.values() if value is not None and value.state in _PREPARED]


def _valid(value: TransactionValue) -> Producer:
    """Returns the producer that may continue: if the epochs of a producer id are used up, the one after the
    transaction's end."""
    if value.next_producer_id >= 0:
        return Producer(value.next_producer_id, 0)
    return Producer(value.producer_id, value.producer_epoch)


def _encoded(name: str, value: TransactionValue | None) -> KeyValue:
    encoded = encode_record(TransactionRecord(name, value), 1)
    assert read_record(*encoded) == TransactionRecord(name, value)
    return encoded


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=examples(1.5), stateful_step_count=70, deadline=None)
