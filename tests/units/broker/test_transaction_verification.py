"""A transaction is verified again with each request to its coordinator: the marker of the transaction before may come
at any moment until the coordinator adds the partition (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.transaction_verification import Guards, Results, TransactionVerification
from jesenska.broker.coordinators.transactions import Transactions
from jesenska.broker.shared_parts import SharedParts
from jesenska.config.layers import BrokerConfig
from jesenska.log.segments.producer_state import ProducerState
from jesenska.replication.partition import Partition
from jesenska.transactions.events import Producer, ProducerAnswer

PARTITION = TopicPartition("t", 0)
PRODUCER = Producer(7, 3)
CONCURRENT, NONE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE


class Led:
    """A partition that this broker leads, with the guard of its producer. `marker` is the marker of the previous
    transaction."""

    def __init__(self) -> None:
        self.topic_partition = PARTITION
        self.producers = ProducerState()
        self.guards = Guards(PRODUCER, {cast(Partition, self): 0}, lambda: 0, adds=True, knows_abortable=True)

    def leader_log(self) -> Any:
        return self

    def marker(self) -> None:
        self.producers.clear()


class Coordinator:
    """Gives the answers of a script one after the other. A step with a function calls it before its answer."""

    def __init__(self, script: Iterable[tuple[ErrorCode, Callable[[], None] | None]]) -> None:
        self._script = list(script)
        self.asked = 0

    def leader_for(self, transactional_id: str) -> int:
        return 1

    def submit(self, transactional_id: str, make: Any, reply: Callable[[ProducerAnswer], None]) -> None:
        self.asked += 1
        error, meanwhile = self._script.pop(0)
        if meanwhile is not None:
            meanwhile()
        reply(ProducerAnswer(error))


def asked(led: Led, script: list[tuple[ErrorCode, Callable[[], None] | None]], **settings: str) -> tuple[Results, int]:
    """Returns the leader's results, and the number of requests to the coordinator."""

    async def body() -> tuple[Results, int]:
        coordinator = Coordinator(script)
        core = SimpleNamespace(config=BrokerConfig(settings), broker_id=1)

        async def connect(broker_id: int) -> Any:
            raise AssertionError("the coordinator is this broker")

        verification = TransactionVerification(cast(SharedParts, core), cast(Transactions, coordinator), connect)
        told: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        verification.ask("id", led.guards, told.set_result)
        return await asyncio.wait_for(told, 30), coordinator.asked

    return asyncio.run(body())


def test_a_marker_that_comes_between_two_questions_makes_nothing_void() -> None:
    led = Led()
    assert asked(led, [(CONCURRENT, led.marker), (NONE, None)]) == ({PARTITION: NONE}, 2)
    assert led.guards.hold()


def test_a_marker_that_comes_beside_the_last_question_has_it_asked_again() -> None:
    led = Led()
    assert asked(led, [(CONCURRENT, None), (NONE, led.marker), (NONE, None)]) == ({PARTITION: NONE}, 3)
    assert led.guards.hold()


def test_a_transaction_that_has_ended_is_told_as_the_coordinator_says_it() -> None:
    led = Led()
    assert asked(led, [(NONE, led.marker), (ErrorCode.INVALID_PRODUCER_EPOCH, None)]) == (
        {PARTITION: ErrorCode.INVALID_PRODUCER_EPOCH},
        2,
    )


@pytest.mark.parametrize("error", [CONCURRENT, NONE])
def test_who_waits_too_long_is_told_to_come_again(error: ErrorCode) -> None:
    led = Led()
    times = {"add.partitions.to.txn.retry.backoff.ms": "10", "add.partitions.to.txn.retry.backoff.max.ms": "5"}
    assert asked(led, [(error, led.marker)], **times) == ({PARTITION: CONCURRENT}, 1)
