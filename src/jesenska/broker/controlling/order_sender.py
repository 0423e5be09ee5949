"""Sends the controller's requests (LeaderAndIsr, StopReplica, UpdateMetadata; here called orders) to one broker, over
its own connection. One request is sent at a time, and repeated until the broker answers it. Orders that are added
during a request are merged (`controller.orders.queue`). The result of a request:

  it is answered                the controller gets an event for each order in the request
  no answer, or another error   it is sent again after a pause, over a new connection. A warning names a registered
                                broker that has not been reached for ten seconds
  STALE_CONTROLLER_EPOCH        another broker is controller: nothing more is sent, and `refused` is called
  STALE_BROKER_EPOCH            the broker has registered again: nothing more is sent to the old registration, and
                                `refused` is called
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from jesenska.base.errors import ErrorCode, KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.peer_task import PeerTask
from jesenska.controller.changes.change_state import first_of
from jesenska.controller.effects import LeaderAndIsr, StopReplica, TopicPartitions, UpdateMetadata
from jesenska.controller.events import LeaderAndIsrDone, StopReplicaDone
from jesenska.controller.orders.queue import GiveUp, LeadAndFollow, OrderQueue, Request, Tell
from jesenska.controller.orders.requests import (
    Offline,
    Orderer,
    leader_and_isr,
    leader_and_isr_errors,
    stop_replica,
    stop_replica_errors,
    stops_of,
    update_metadata,
)
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.net.channel import Channel
from jesenska.wire.language import Message
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from jesenska.wire.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse)

#: A stopped broker remains registered until its session ends. A failure that lasts longer than this has another cause.
_WARNED_AFTER_SECONDS: Final = 10.0
#: Most partitions in one request, because sender and receiver are busy while it is encoded and decoded.
_PARTITIONS_AT_ONCE: Final = 500
_FINAL: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
#: Errors of a broker that has no log of a partition: its disk has failed, or it has data of an earlier topic with the
#: same name. The broker's own log names the cause and the remedy. The broker gets the order again when it registers
#: again.
WITHOUT_LOG: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID)


class _RefusedError(Exception):
    """Raised when the broker has answered an error after which no more requests may be sent to this broker."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class OrderSender(PeerTask):
    """Sends orders to one broker, for one controller epoch and one registration of the broker, on the running event
    loop. `brokers` returns all registered brokers, `offline` the replicas whose log directory has failed.
    `listener_name` is the listener between brokers."""

    def __init__(
        self,
        broker_id: int,
        orderer: Orderer,
        connect: Callable[[], Awaitable[Channel]],
        brokers: Callable[[], Mapping[int, BrokerRegistration]],
        listener_name: str,
        *,
        offline: Callable[[], Offline] = dict,
        answered: Callable[[LeaderAndIsrDone | StopReplicaDone], None],
        refused: Callable[[int], None],
        pause_seconds: float = 0.3,
        timeout_seconds: float = 30.0,
        warned_after_seconds: float = _WARNED_AFTER_SECONDS,
    ) -> None:
        super().__init__(connect)
        self.broker_id = broker_id
        self._orderer = orderer
        self._brokers = brokers
        self._offline = offline
        self._listener_name = listener_name
        self._answered = answered
        self._refused = refused
        self._pause_seconds = pause_seconds
        self._timeout_seconds = timeout_seconds
        self._warned_after_seconds = warned_after_seconds
        self._queue = OrderQueue()
        #: The time of the event loop at which requests began to fail; None if the last request succeeded.
        self._failing_since: float | None = None

    def put(self, order: LeaderAndIsr | UpdateMetadata | StopReplica) -> None:
        """Adds an order, which is sent after the earlier orders."""
        self._queue.put(order)
        self._news.set()

    async def _run(self) -> None:
        while True:
            request = self._queue.take()
            if request is None:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._send(request)
            except _RefusedError as error:
                self._disconnect()
                self._refused(error.code)
                return
            except KafkaError as error:
                self._tell_failure(request, error)
                self._disconnect()
                await asyncio.sleep(self._pause_seconds)
            else:
                self._failing_since = None
                self._queue.done()

    def _tell_failure(self, request: Request, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        key = (self.broker_id, "not told")
        if now - self._failing_since < self._warned_after_seconds:
            logger.info(
                "broker %d was not told %s, and is told again: %s",
                self.broker_id,
                type(request).__name__,
                error,
                extra={"once_a_minute": (*key, "yet")},
            )
        else:
            logger.warning(
                "broker %d is registered, but this controller has not reached it for %.0f s (%s): correct its "
                "advertised.listeners, or the network between",
                self.broker_id,
                now - self._failing_since,
                error,
                extra={"once_a_minute": key},
            )

    async def _send(self, request: Request) -> None:
        channel = await self._connected()
        if isinstance(request, LeadAndFollow):
            await self._lead_and_follow(channel, request)
        elif isinstance(request, Tell):
            await self._tell(channel, request)
        else:
            await self._give_up(channel, request)

    async def _lead_and_follow(self, channel: Channel, request: LeadAndFollow) -> None:
        version = channel.version_for(LeaderAndIsrRequest)
        without_log: set[TopicPartition] = set()
        for topics in in_pieces(request.topics):
            message = leader_and_isr(version, self._orderer, topics, self._leaders())
            answer = await self._ask(channel, message, LeaderAndIsrResponse, version)
            errors = leader_and_isr_errors(answer, version, topics)
            # Other errors do not mean that the broker has no log. For example, when an answer is lost, the broker
            # refuses the repeated order although it has carried it out.
            without_log |= {at for at, code in errors.items() if code in WITHOUT_LOG}
        for number in request.numbers:
            self._answered(LeaderAndIsrDone(number, self.broker_id, frozenset(without_log)))

    async def _tell(self, channel: Channel, request: Tell) -> None:
        version = channel.version_for(UpdateMetadataRequest)
        gone = request.gone
        for topics in in_pieces(request.topics):
            message = update_metadata(
                version, self._orderer, topics, gone, self._brokers(), self._offline(), is_all=request.is_all
            )
            await self._ask(channel, message, UpdateMetadataResponse, version)
            gone = ()

    async def _give_up(self, channel: Channel, request: GiveUp) -> None:
        version = channel.version_for(StopReplicaRequest)
        stops = [stop for order in request.orders for stop in stops_of(order)]
        errors: dict[TopicPartition, int] = {}
        for start in range(0, len(stops), _PARTITIONS_AT_ONCE):
            for message in stop_replica(version, self._orderer, stops[start : start + _PARTITIONS_AT_ONCE]):
                errors |= stop_replica_errors(await self._ask(channel, message, StopReplicaResponse, version))
        for order in request.orders:
            failed = [number for number in order.numbers if TopicPartition(order.topic, number) in errors]
            error = (
                KafkaStorageError(
                    f"Broker {self.broker_id} could not give up its replicas of {order.topic} ({first_of(failed)})."
                )
                if failed
                else None
            )
            self._answered(StopReplicaDone(order.number, self.broker_id, error))

    async def _ask(self, channel: Channel, message: Message, response: type[Answer], version: int) -> Answer:
        """Sends a request and returns its answer. Raises _RefusedError if nothing more may be sent to this broker, and
        another KafkaError if the request must be repeated."""
        answer = await channel.request(message, response, timeout_seconds=self._timeout_seconds, at_most=version)
        if answer.error_code in _FINAL:
            raise _RefusedError(answer.error_code)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError.of(answer.error_code, "it has answered an error")
        return answer

    def _leaders(self) -> dict[int, tuple[str, int]]:
        """Returns the host and port of each broker's listener for brokers, by broker id."""
        found = {}
        for broker_id, node in self._brokers().items():
            for item in node.endpoints:
                if item.name == self._listener_name:
                    found[broker_id] = (item.host, item.port)
        return found


def in_pieces(topics: Sequence[TopicPartitions], at_once: int = _PARTITIONS_AT_ONCE) -> list[list[TopicPartitions]]:
    """Divides topics into lists of at most `at_once` partitions. A topic is in one list if possible. Returns one empty
    list if there are no topics."""
    pieces: list[list[TopicPartitions]] = [[]]
    room = at_once
    for topic, numbers in topics:
        for start in range(0, len(numbers), at_once):
            part = TopicPartitions(topic, numbers[start : start + at_once])
            if len(part.numbers) > room:
                pieces.append([])
                room = at_once
            pieces[-1].append(part)
            room -= len(part.numbers)
    return pieces
