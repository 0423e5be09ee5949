"""Writes the end marker (commit or abort) of a transaction to every partition of the transaction. If this broker leads
the partition, the marker is written at once. Otherwise it is sent to the leader, and sent again until it is written.
Special cases:

  the partition's topic is deleted         no marker is needed
  no leader, or the leader refuses         sent again after a pause, to the current leader
  INVALID_PRODUCER_EPOCH                   the producer has a newer epoch: the marker is written already or not needed
  this broker no longer coordinates        nothing more is sent; the new coordinator sends all markers again
    the transaction

A marker that is sent twice is written twice, which does no harm: the second marker finds no open transaction.
`MarkerWriter` writes markers to the partitions that this broker leads, for its own coordinator and for other brokers
(WriteTxnMarkers)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.broker.coordinators.groups import Groups
from jesenska.broker.peer_task import PeerTask
from jesenska.broker.shared_parts import SharedParts
from jesenska.coordination.shard import Marker, OfTransaction
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.net.channel import Channel
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.transactions.events import MarkersWritten, SendMarkers
from jesenska.transactions.transaction import RAISES_EPOCH
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 30.0
#: Most markers in one request, because sender and receiver are busy while it is encoded and decoded.
_MARKERS_AT_ONCE: Final = 500
#: A transaction version that no coordinator sends. Apache Kafka 4.3.1 also fails to write a marker with it.
_UNKNOWN_VERSION: Final = -1


class MarkerWriter:
    """Writes transactions' end markers to the partitions that this broker leads."""

    def __init__(self, core: SharedParts, groups: Groups) -> None:
        self._core = core
        self._groups = groups

    def write(
        self,
        topic_partition: TopicPartition,
        marker: Marker,
        transaction_version: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Writes the end marker of a transaction to a partition. Calls `done` when the marker is committed, or with
        the error; the call may come before this method returns. With transaction version 2, a marker must have a newer
        producer epoch than the open transaction. A marker with the same epoch belongs to an earlier transaction, and
        is refused."""
        topic = self._core.view.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        partition, of = topic.partitions[topic_partition.partition], marker.of
        try:
            log = partition.leader_log()
            if transaction_version == _UNKNOWN_VERSION:
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            if transaction_version >= RAISES_EPOCH and log.producers.has_open_transaction(
                of.producer_id, of.producer_epoch
            ):
                done(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            if topic_partition.topic == OFFSETS_TOPIC and self._groups.keeps(topic_partition.partition):
                self._groups.end(topic_partition.partition, marker, done)
                return
            control = ControlMarker(
                ControlType.COMMIT if marker.commits else ControlType.ABORT, marker.coordinator_epoch
            )

            def appended(outcome: AppendResult | KafkaError) -> None:
                done(outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE)

            result = partition.append_marker(
                of.producer_id, of.producer_epoch, control, self._core.clock.now_ms(), appended
            )
        except KafkaError as error:
            done(error.code)
        else:
            if result is not None:
                done(ErrorCode.NONE)


class _End:
    """The end of one transaction. `lacking` has the partitions to which the marker has not been written yet."""

    __slots__ = ("lacking", "number", "order")

    def __init__(self, number: int, order: SendMarkers) -> None:
        self.number = number
        self.order = order
        self.lacking = set(order.partitions)


class TransactionMarkers:
    """Sends the end markers of the transactions that this broker coordinates. `connect` opens a connection to a
    broker."""

    def __init__(self, core: SharedParts, writer: MarkerWriter, connect: Callable[[int], Awaitable[Channel]]) -> None:
        self._core = core
        self._writer = writer
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._ends: dict[tuple[int, str], _End] = {}
        self._peers: dict[int, _Peer] = {}
        #: The markers that must be sent again after a pause, by transaction.
        self._later: dict[_End, set[TopicPartition]] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: Two functions that the transaction coordinator sets. The first returns the coordinator epoch of a shard, or
        #: None if this broker has ended the shard. The second is called when markers are written.
        self.coordinator_epoch_of: Callable[[int], int | None] = lambda number: None
        self.written: Callable[[int, MarkersWritten], None] = lambda number, event: None

    def send(self, number: int, order: SendMarkers) -> None:
        """Writes the markers of one transaction, for the coordinator's shard with this number."""
        end = self._ends[number, order.transactional_id] = _End(number, order)
        # Called in the next iteration of the event loop: the result of `_route` is an event for the shard, and the
        # shard is still handling the current event.
        self._loop.call_soon(self._route, end, frozenset(end.lacking))

    def forget(self, number: int) -> None:
        """Sends no more markers for the coordinator's shard with this number, because this broker ends the shard."""
        for key in [key for key in self._ends if key[0] == number]:
            del self._ends[key]

    async def close(self) -> None:
        """Stops sending markers."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(peer.close() for peer in self._peers.values()))

    def marker_of(self, end: _End) -> Marker | None:
        """Returns the marker to write for the end of a transaction, or None if this broker no longer coordinates the
        transaction."""
        order = end.order
        epoch = self.coordinator_epoch_of(end.number)
        if epoch is None or self._ends.get((end.number, order.transactional_id)) is not end:
            return None
        return Marker(OfTransaction(order.producer.producer_id, order.producer.epoch), order.commits, epoch)

    def _route(self, end: _End, partitions: Iterable[TopicPartition]) -> None:
        marker = self.marker_of(end)
        if marker is None:
            return
        view, gone = self._core.view, []
        for key in partitions:
            topic = view.topics.get(key.topic)
            if topic is None or key.partition >= len(topic.partitions):
                gone.append(key)
                continue
            leader = topic.partitions[key.partition].leader
            if leader == self._core.broker_id:
                self._writer.write(key, marker, end.order.transaction_version, partial(self.answered, end, key))
            elif leader in view.brokers:
                peer = self._peers.get(leader)
                if peer is None:
                    peer = self._peers[leader] = _Peer(self, partial(self._connect, leader))
                peer.put(end, key)
            else:
                self.send_later(end, key)
        if gone:
            self._done(end, frozenset(gone))

    def answered(self, end: _End, key: TopicPartition, error: int) -> None:
        """Handles a leader's answer to a marker: removes the partition from the partitions that lack the marker, or
        sends the marker again later."""
        if error in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
            if error:
                logger.info(
                    "transaction %s needs no marker in %s: its producer already has a newer epoch there",
                    end.order.transactional_id,
                    key,
                )
            self._done(end, frozenset((key,)))
        else:
            self.send_later(end, key)

    def send_later(self, end: _End, key: TopicPartition) -> None:
        self._later.setdefault(end, set()).add(key)
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._again)

    def _again(self) -> None:
        self._timer = None
        later, self._later = self._later, {}
        for end, keys in later.items():
            self._route(end, keys)

    def _done(self, end: _End, keys: frozenset[TopicPartition]) -> None:
        order, name = end.order, (end.number, end.order.transactional_id)
        if self._ends.get(name) is not end:
            return
        end.lacking -= keys
        if not end.lacking:
            del self._ends[name]
        self.written(end.number, MarkersWritten(order.transactional_id, order.producer, keys))


class _Peer(PeerTask):
    """Sends markers to one other broker. One request is in flight at a time; later markers are sent in the next
    request."""

    def __init__(self, markers: TransactionMarkers, connect: Callable[[], Awaitable[Channel]]) -> None:
        super().__init__(connect)
        self._markers = markers
        self._waiting: dict[_End, set[TopicPartition]] = {}

    def put(self, end: _End, key: TopicPartition) -> None:
        self._waiting.setdefault(end, set()).add(key)
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            taken = {end: self._waiting.pop(end) for end in list(self._waiting)[:_MARKERS_AT_ONCE]}
            if not self._waiting:
                self._news.clear()
            try:
                await self._send(taken)
            except KafkaError as error:
                logger.info("markers of %d transactions are sent again: %s", len(taken), error)
                self._disconnect()
            except Exception:
                logger.exception("markers of %d transactions could not be sent; they are sent again", len(taken))
                self._disconnect()
            for end, keys in taken.items():
                for key in keys:
                    self._markers.send_later(end, key)

    async def _send(self, taken: dict[_End, set[TopicPartition]]) -> None:
        """Sends the markers in `taken`. Partitions that the broker has answered are removed from `taken`."""
        channel = await self._connected()
        request, ends = WriteTxnMarkersRequest(), []
        for end, keys in list(taken.items()):
            marker = self._markers.marker_of(end)
            if marker is None:
                del taken[end]
                continue
            topics = numbers_by_topic(keys)
            ends.append(end)
            request.markers.append(
                WriteTxnMarkersRequestMarker(
                    producer_id=marker.of.producer_id,
                    producer_epoch=marker.of.producer_epoch,
                    transaction_result=marker.commits,
                    topics=[
                        WriteTxnMarkersRequestTopic(name=name, partition_indexes=numbers)
                        for name, numbers in topics.items()
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=end.order.transaction_version,
                )
            )
        if not ends:
            return
        answer = await channel.request(request, WriteTxnMarkersResponse, timeout_seconds=_TIMEOUT_SECONDS)
        by_producer = {end.order.producer.producer_id: end for end in ends}
        for item in answer.markers:
            found = by_producer.get(item.producer_id)
            if found is None:
                continue
            for topic_result in item.topics:
                for result in topic_result.partitions:
                    key = TopicPartition(topic_result.name, result.partition_index)
                    if key in taken[found]:
                        taken[found].discard(key)
                        self._markers.answered(found, key, result.error_code)
