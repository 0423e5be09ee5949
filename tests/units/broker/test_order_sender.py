"""A broker gets the controller's orders in every version that it speaks, and after any number of attempts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode, NetworkException
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controlling.order_sender import OrderSender
from jesenska.config.listeners import Endpoint
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import LeaderAndIsr, StopReplica, TopicPartitions, UpdateMetadata
from jesenska.controller.events import LeaderAndIsrDone, StopReplicaDone
from jesenska.controller.orders.requests import (
    Orderer,
    leader_and_isr_response,
    read_leader_and_isr,
    read_stop_replica,
    read_update_metadata,
    stop_replica_response,
)
from jesenska.metadata.nodes import BrokerRegistration, PartitionStateNode, TopicNode
from jesenska.wire.language import Message
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest
from jesenska.wire.messages.k05_stop_replica import StopReplicaRequest
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.on_a_loop import on_a_loop
from tests.units.net.fake_channel import FakeChannel

OLDEST, NEWEST = {4: 0, 5: 0, 6: 0}, {4: 7, 5: 4, 6: 8}
BROKERS = {number: BrokerRegistration((Endpoint("INSIDE", "PLAINTEXT", f"h{number}", 9092),), -1) for number in (1, 2)}
ORDERER = Orderer(1, 5, 77)


def _part(name: str = "t", epoch: int = 0) -> TopicPartitions:
    node = TopicNode({0: (1, 2), 1: (2, 1)}, uuid.uuid5(uuid.NAMESPACE_DNS, name))
    partitions = {number: PartitionView(PartitionStateNode(2, epoch, (2, 1), 5), 3) for number in (0, 1)}
    return TopicPartitions(TopicView(name, node, 0, partitions), (0, 1))


class Told:
    """A broker that gets orders and records them in order; it answers `errors` for partitions and `refusals` for whole
    requests, one after the other."""

    def __init__(self, newest: dict[int, int]) -> None:
        self.newest = newest
        self.heard: list[tuple[str, Any]] = []
        self.answered: list[LeaderAndIsrDone | StopReplicaDone] = []
        self.refused: list[int] = []
        self.told_all: list[bool] = []
        self.errors: dict[TopicPartition, int] = {}
        self.refusals: list[ErrorCode] = []
        self.unreachable = 0
        self.channels: list[FakeChannel] = []
        self.sender = OrderSender(
            2,
            ORDERER,
            self._connect,
            lambda: BROKERS,
            "INSIDE",
            answered=self.answered.append,
            refused=self.refused.append,
            pause_seconds=0.0,
            warned_after_seconds=0.0,
        )

    async def _connect(self) -> Any:
        if self.unreachable:
            self.unreachable -= 1
            raise NetworkException("nobody answers")
        self.channels.append(FakeChannel(self._answer, self.newest))
        return self.channels[-1]

    async def _answer(self, request: Message, version: int) -> Message:
        error = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if isinstance(request, LeaderAndIsrRequest):
            assert (request.controller_id, request.controller_epoch) == (1, 5)
            topics = read_leader_and_isr(request, version)
            if not error:
                self.heard.append(
                    ("lead", {part.topic.name: part.topic.partitions[0].state.leader_epoch for part in topics})
                )
                assert [(live.broker_id, live.host_name, live.port) for live in request.live_leaders] == [
                    (2, "h2", 9092)
                ]
            return leader_and_isr_response(version, error, topics, self.errors)
        if isinstance(request, StopReplicaRequest):
            stops = read_stop_replica(request, version)
            if not error:
                self.heard.append(("stop", [(stop.topic_partition, stop.delete) for stop in stops]))
            return stop_replica_response(error, stops, self.errors)
        assert isinstance(request, UpdateMetadataRequest)
        told = read_update_metadata(request, version)
        if not error:
            self.heard.append(
                ("tell", ([part.topic.name for part in told.topics], list(told.gone), sorted(told.brokers)))
            )
            self.told_all.append(told.is_all)
        return UpdateMetadataResponse(error_code=error)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0)


@pytest.mark.parametrize("newest", [OLDEST, {4: 4, 5: 2, 6: 5}, NEWEST])
@on_a_loop
async def test_orders_are_sent_in_their_order_and_answered_by_their_numbers(newest: dict[int, int]) -> None:
    told = Told(newest)
    told.sender.put(LeaderAndIsr(11, 2, (_part(),)))
    told.sender.put(LeaderAndIsr(12, 2, (_part("u"),)))
    told.sender.put(UpdateMetadata(2, (_part(),), (_part("gone"),)))
    told.sender.put(StopReplica(13, 2, "gone", (0, 1)))
    await told.until(lambda: len(told.answered) == 3)
    assert told.heard == [
        ("lead", {"t": 0, "u": 0}),
        ("tell", (["t"], ["gone"], [1, 2])),
        ("stop", [(TopicPartition("gone", 0), True), (TopicPartition("gone", 1), True)]),
    ]
    assert told.answered == [LeaderAndIsrDone(11, 2), LeaderAndIsrDone(12, 2), StopReplicaDone(13, 2)]
    assert len(told.channels) == 1
    await told.sender.close()
    assert told.channels[0].closed


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID])
@pytest.mark.parametrize("newest", [OLDEST, NEWEST])
@on_a_loop
async def test_what_a_broker_could_not_do_comes_with_its_answer(newest: dict[int, int], error: ErrorCode) -> None:
    told = Told(newest)
    told.errors = {TopicPartition("t", 1): error}
    told.sender.put(LeaderAndIsr(1, 2, (_part(),)))
    told.sender.put(StopReplica(2, 2, "t", (0, 1)))
    told.sender.put(StopReplica(3, 2, "other", (0, 1)))
    await told.until(lambda: len(told.answered) == 3)
    lead, stop, other = told.answered
    assert lead == LeaderAndIsrDone(1, 2, frozenset({TopicPartition("t", 1)}))
    assert isinstance(stop, StopReplicaDone)
    assert str(stop.error) == "Broker 2 could not give up its replicas of t (1)."
    assert other == StopReplicaDone(3, 2)
    await told.sender.close()


@on_a_loop
async def test_a_broker_that_is_not_reached_or_answers_an_error_is_told_again_the_newest() -> None:
    told = Told(NEWEST)
    told.unreachable = 2
    told.refusals = [ErrorCode.UNKNOWN_SERVER_ERROR]
    told.sender.put(LeaderAndIsr(1, 2, (_part(epoch=1),)))
    await told.until(lambda: not told.refusals)
    told.sender.put(LeaderAndIsr(2, 2, (_part(epoch=2),)))
    told.sender.put(LeaderAndIsr(3, 2, (_part(epoch=3),)))
    await told.until(lambda: len(told.answered) == 3)
    assert told.heard == [("lead", {"t": 1}), ("lead", {"t": 3})]
    assert len(told.channels) == 2
    await told.sender.close()


@on_a_loop
async def test_each_part_of_all_topics_says_that_it_is_one() -> None:
    told = Told(NEWEST)
    told.sender.put(UpdateMetadata(2, tuple(_part(f"t{number}") for number in range(501)), is_first=True))
    told.sender.put(UpdateMetadata(2, (_part(),)))
    await told.until(lambda: len(told.heard) == 4)
    assert told.told_all == [True, True, True, False]
    await told.sender.close()


@on_a_loop
async def test_a_connection_that_breaks_before_the_answer_is_made_anew() -> None:
    told = Told(NEWEST)
    told.sender.put(UpdateMetadata(2))
    await told.until(lambda: len(told.heard) == 1)
    told.channels[0].is_silent = True
    told.sender.put(LeaderAndIsr(1, 2, (_part(),)))
    await told.until(lambda: len(told.channels[0].sent) == 2)
    told.channels[0].close()
    await told.until(lambda: told.answered == [LeaderAndIsrDone(1, 2)])
    assert told.heard == [("tell", ([], [], [1, 2])), ("lead", {"t": 0})]
    await told.sender.close()


@pytest.mark.parametrize("error", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
@pytest.mark.parametrize(
    "order",
    [LeaderAndIsr(1, 2, (_part(),)), UpdateMetadata(2), StopReplica(1, 2, "t", (0,))],
    ids=["lead", "tell", "stop"],
)
@on_a_loop
async def test_a_broker_that_knows_another_controller_or_is_another_is_told_nothing_more(
    error: ErrorCode, order: LeaderAndIsr | UpdateMetadata | StopReplica
) -> None:
    told = Told(NEWEST)
    told.refusals = [error]
    told.sender.put(order)
    await told.until(lambda: told.refused == [error])
    told.sender.put(UpdateMetadata(2))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (told.heard, told.answered, told.refused) == ([], [], [error])
    assert told.channels[0].closed
    await told.sender.close()


@on_a_loop
async def test_a_broker_that_is_registered_and_not_reached_is_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told(NEWEST)
    told.unreachable = 3
    told.sender.put(LeaderAndIsr(11, 2, (_part(),)))
    await told.until(lambda: len(told.answered) == 1)
    await told.sender.close()
    lines = [
        record
        for record in caplog.records
        if "broker 2 is registered, but this controller has not reached it" in record.getMessage()
    ]
    assert len(lines) == 3
    assert {record.__dict__["once_a_minute"] for record in lines} == {(2, "not told")}
    assert "(nobody answers)" in lines[0].getMessage()
