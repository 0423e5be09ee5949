"""A coordinator of transactions without network or log: appends and markers wait until the test lets them be done,
answers are collected by token."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.operations import Append, Appended, AppendFailed, Operations
from jesenska.coordination.shard import Answer, KeyValue, Now, Order, Tick
from jesenska.transactions.coordinator import TransactionCoordinator
from jesenska.transactions.events import (
    AddPartitions,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    Producer,
    ProducerAnswer,
    SendMarkers,
)
from jesenska.transactions.records import TransactionRecord, TransactionValue, encode_record, read_record
from jesenska.transactions.settings import TransactionSettings
from jesenska.transactions.states import TransactionState

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
WRITE_TIMEOUT_MS = 10_000
_WALL_AHEAD_MS = 1_600_000_000_000


class Driver:
    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        at_once: bool = True,
        log: Sequence[KeyValue] = (),
        transaction_version: int = 2,
        now_ms: int = 1_000_000,
        first_producer_id: int = 1000,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.transaction_version = transaction_version
        self.ids: Iterable[int | None] = itertools.count(first_producer_id)
        self.now_ms = now_ms
        #: Appends are committed and markers written as soon as they are asked for.
        self.at_once = at_once
        self.log: list[KeyValue] = list(log)
        self.pending: list[Append] = []
        self.orders: list[SendMarkers] = []
        self.answers: dict[int, list[ProducerAnswer]] = {}
        self._tokens = itertools.count(1)
        self._begin()

    def _begin(self) -> None:
        ids = self.ids
        self.coordinator = TransactionCoordinator(
            self.settings, lambda: next(iter(ids)), lambda: self.transaction_version
        )
        self.operations = Operations(self.coordinator, WRITE_TIMEOUT_MS)
        for item in self.log:
            record = read_record(item.key, item.value)
            assert record is not None
            self.coordinator.replay(record, self.now)
        self.coordinator.finish_replay(self.now)

    def crash(self) -> None:
        """Loses everything that is not in the log. Another coordinator loads the log."""
        self.pending.clear()
        self.orders.clear()
        self._begin()
        self.tick(0)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + _WALL_AHEAD_MS)

    def token(self) -> int:
        return next(self._tokens)

    def give(self, event: Event | Appended | AppendFailed) -> None:
        for effect in self.operations.handle(event, self.now):
            if isinstance(effect, Answer):
                self.answers.setdefault(effect.token, []).append(effect.response)
            elif isinstance(effect, Order):
                self.orders.append(effect.order)
            else:
                assert isinstance(effect, Append), "transactions log nothing"
                self.pending.append(effect)
        while self.at_once and (self.pending or self.orders):
            if self.pending:
                self.commit()
            else:
                self.mark()

    def commit(self) -> TransactionRecord:
        """Commits the oldest append."""
        append = self.pending.pop(0)
        record: TransactionRecord = append.records[0]
        self.log.append(encode_record(record, 1))
        self.give(Appended(append.number))
        return record

    def fail(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        append = self.pending.pop(0)
        self.give(AppendFailed(append.number, error))

    def mark(self, *partitions: TopicPartition) -> None:
        """Writes the markers of these partitions of the oldest order, or of all."""
        order = self.orders[0]
        if not partitions or frozenset(partitions) == order.partitions:
            del self.orders[0]
        self.give(MarkersWritten(order.transactional_id, order.producer, frozenset(partitions) or order.partitions))

    def tick(self, milliseconds: int) -> None:
        """Advances the time, and wakes the coordinator at the times that it asks for."""
        end = self.now_ms + milliseconds
        while (due := self.operations.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.give(Tick())
        self.now_ms = end

    # --- requests ----------------------------------------------------------------------------------------------------

    def answer(self, token: int) -> ProducerAnswer | None:
        """Returns the answer; None if there is none yet."""
        found = self.answers.get(token, [])
        assert len(found) <= 1, "answered twice"
        return found[0] if found else None

    def ask_init(self, name: str = "a", expected: Producer | None = None, timeout_ms: int = 60_000) -> int:
        token = self.token()
        self.give(InitProducer(token, name, timeout_ms, expected, self.transaction_version))
        return token

    def init(self, name: str = "a", expected: Producer | None = None, timeout_ms: int = 60_000) -> ProducerAnswer:
        return self._done(self.ask_init(name, expected, timeout_ms))

    def begin(self, name: str = "a", timeout_ms: int = 60_000) -> Producer:
        """A producer that has begun."""
        found = self.init(name, timeout_ms=timeout_ms)
        assert found.error is ErrorCode.NONE
        return found.producer

    def ask_add(self, producer: Producer, *partitions: TopicPartition, name: str = "a", version: int = 0) -> int:
        token = self.token()
        self.give(AddPartitions(token, name, producer, frozenset(partitions), version))
        return token

    def add(self, producer: Producer, *partitions: TopicPartition, name: str = "a", version: int = 0) -> ErrorCode:
        return self._done(self.ask_add(producer, *partitions, name=name, version=version)).error

    def ask_end(self, producer: Producer, *, commits: bool, name: str = "a", version: int = 0) -> int:
        token = self.token()
        self.give(EndTransaction(token, name, producer, commits, version))
        return token

    def end(self, producer: Producer, *, commits: bool = True, name: str = "a", version: int = 0) -> ProducerAnswer:
        return self._done(self.ask_end(producer, commits=commits, name=name, version=version))

    def _done(self, token: int) -> ProducerAnswer:
        found = self.answer(token)
        assert found is not None, "not answered yet"
        return found

    def value(self, name: str = "a") -> TransactionValue:
        found = self.coordinator.get(name)
        assert found is not None
        return found

    def state(self, name: str = "a") -> TransactionState:
        return self.value(name).state
