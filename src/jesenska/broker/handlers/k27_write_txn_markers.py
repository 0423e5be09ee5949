"""WriteTxnMarkers (key 27), versions 0-2: writes the end markers of transactions to partitions that this broker leads.
Transaction coordinators send this request, and so do tools that end a hanging transaction. The answer is sent when
every marker is committed or refused.

As in Apache Kafka, if a partition is named twice for one producer, the result of the last marker is answered. A marker
without a producer, or with transaction version -1 (unknown), is answered UNKNOWN_SERVER_ERROR. Version 2 adds:

    2      with transaction version 2, a marker with the same producer epoch as the open transaction is late, and is
           refused (KIP-1228)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.coordination.shard import Marker, OfTransaction
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)

#: Errors of the group coordinators on this broker. Each is answered as the error of a partition's leader that has the
#: same meaning.
_AS_LEADER = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
}


@dataclass(slots=True)
class _Result:
    """The result of one marker. The error is NONE until the marker is refused."""

    error: ErrorCode = ErrorCode.NONE


class _Request:
    """A WriteTxnMarkers request: the results of its markers by producer, and the number of markers without a
    result."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lacking = 1
        self._results: dict[int, dict[TopicPartition, _Result]] = {}
        self.is_later = False

    def add(self, producer_id: int, key: TopicPartition) -> Callable[[ErrorCode], None]:
        """Adds a marker. Returns the function that must be called with the result of the marker. If a partition is
        named twice for a producer, the result of the last marker is answered."""
        self._lacking += 1
        result = self._results.setdefault(producer_id, {})[key] = _Result()
        return partial(self._done, result)

    def _done(self, result: _Result, error: ErrorCode) -> None:
        result.error = _AS_LEADER.get(error, error)
        self.went_on()

    def went_on(self) -> None:
        self._lacking -= 1
        if not self._lacking and self.is_later:
            self._context.answer(self.response())

    @property
    def is_done(self) -> bool:
        return not self._lacking

    def response(self) -> WriteTxnMarkersResponse:
        response = WriteTxnMarkersResponse()
        for producer_id, results in self._results.items():
            topics: dict[str, WriteTxnMarkersResponseTopic] = {}
            for key, result in results.items():
                topic = topics.setdefault(key.topic, WriteTxnMarkersResponseTopic(name=key.topic))
                topic.partitions.append(
                    WriteTxnMarkersResponsePartition(partition_index=key.partition, error_code=result.error)
                )
            response.markers.append(
                WriteTxnMarkersResponseMarker(producer_id=producer_id, topics=list(topics.values()))
            )
        return response


@handles(WriteTxnMarkersRequest, PeerFamily)
def handle(uses: PeerFamily, request: WriteTxnMarkersRequest, context: Context) -> Outcome:
    work = _Request(context)
    for item in request.markers:
        marker = Marker(
            OfTransaction(item.producer_id, item.producer_epoch), item.transaction_result, item.coordinator_epoch
        )
        for topic in item.topics:
            for number in topic.partition_indexes:
                key = TopicPartition(topic.name, number)
                done = work.add(item.producer_id, key)
                if item.producer_id < 0 or item.producer_epoch < 0:
                    done(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    uses.marker_writer.write(key, marker, item.transaction_version, done)
    work.went_on()
    if work.is_done:
        return work.response()
    work.is_later = True
    return LATER
