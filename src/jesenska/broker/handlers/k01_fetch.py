"""Fetch (key 1), versions 4-18.

    4      record batches v2, isolation level
    5      log start offset
    7      sessions (KIP-227): declined, every answer carries session id 0, which tells the client to send whole requests
    9      leader epochs
    10     zstd
    12     compact; diverging epochs (followers)
    13     topic ids instead of names
    16     hints of a new leader

The answer's records are pieces of the log's files, never read here: the transport sends them from the page cache. The batch that holds the
offset comes whole, the first one even if it exceeds the limits. Until `min_bytes` have gathered the request waits, at most `max_wait_ms`; any
error ends the wait. Partitions are read in the order of the request, which clients turn themselves.

Left out: versions 0-3 (message sets), sessions, followers, preferred read replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode, KafkaError, UnknownTopicIdError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.regions import FileRegion
from jesenska.broker.dispatch import LATER, Context, Outcome, handles
from jesenska.log.files import probe_cold, read_ahead
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseCurrentLeader,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.server import Broker

_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_FIRST_WITH_LEADERS = 12
_MAX_WAIT_MS = 2**31 - 1


class _Wanted:
    """One partition of a request."""

    __slots__ = ("current_leader_epoch", "error", "fetch_offset", "index", "max_bytes", "partition")

    def __init__(self, index: int, fetch_offset: int, current_leader_epoch: int, max_bytes: int) -> None:
        self.index = index
        self.fetch_offset = fetch_offset
        self.current_leader_epoch = current_leader_epoch
        self.max_bytes = max_bytes
        self.partition: Partition | None = None
        self.error: KafkaError | None = None


class _Fetch:
    """A fetch in work: reads what there is, or waits for more (a `waiting.Waiter`)."""

    __slots__ = ("_broker", "_context", "_plan", "_regions", "max_bytes", "min_bytes", "withdraw")

    def __init__(self, broker: Broker, request: FetchRequest, context: Context) -> None:
        self._broker = broker
        self._context = context
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.withdraw: Callable[[], None] | None = None
        self._regions: list[FileRegion] = []
        view, by_id = broker.view, context.version >= 13
        self._plan: list[tuple[FetchResponseTopic, list[_Wanted]]] = []
        for asked in request.topics:
            topic = view.by_id.get(asked.topic_id) if by_id else view.topics.get(asked.topic)
            items = []
            for part in asked.partitions:
                wanted = _Wanted(part.partition, part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes)
                if topic is None:
                    wanted.error = UnknownTopicIdError() if by_id else UnknownTopicOrPartitionError()
                elif not 0 <= part.partition < len(topic.partitions):
                    wanted.error = UnknownTopicOrPartitionError()
                else:
                    wanted.partition = topic.partitions[part.partition]
                items.append(wanted)
            self._plan.append((FetchResponseTopic(topic=asked.topic, topic_id=asked.topic_id), items))

    def read(self) -> tuple[FetchResponse, int, bool]:
        """The answer as things stand, its bytes of records, and whether an error ends the wait."""
        left, total, failed = self.max_bytes, 0, False
        self._regions = []
        responses = []
        moved = False
        for topic, items in self._plan:
            partitions = []
            for wanted in items:
                answer = FetchResponsePartition(partition_index=wanted.index, high_watermark=-1, aborted_transactions=None)
                partitions.append(answer)
                partition = wanted.partition
                try:
                    if partition is None:
                        assert wanted.error is not None
                        raise wanted.error
                    result = partition.read(wanted.fetch_offset, min(wanted.max_bytes, left), wanted.current_leader_epoch, total == 0)
                except KafkaError as error:
                    failed = True
                    answer.error_code = error.code
                    if partition is not None and error.code in _MOVED and self._context.version >= _FIRST_WITH_LEADERS:
                        answer.current_leader = FetchResponseCurrentLeader(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
                        moved = True
                    continue
                assert partition.log is not None
                answer.high_watermark = partition.high_watermark
                answer.last_stable_offset = partition.last_stable_offset
                answer.log_start_offset = partition.log.log_start_offset
                region = result.region
                if region is not None:
                    answer.records = region
                    self._regions.append(region)
                    total += region.size_bytes
                    left -= region.size_bytes
                else:
                    answer.records = b""
            responses.append(FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        response = FetchResponse(responses=responses)
        if moved and self._context.version >= 16:
            response.node_endpoints = [
                FetchResponseNodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in self._broker.endpoints_for(self._context.connection.listener_name)
            ]
        return response, total, failed

    def release(self) -> None:
        """Lets go of what was read and is not sent."""
        for region in self._regions:
            region.release()
        self._regions = []

    def warm(self, response: FetchResponse, send: Callable[[FetchResponse], None]) -> bool:
        """Pages that are not in memory are read in the pool first, so that the loop does not wait for the disk; True if that happens."""
        cold = [region for region in self._regions if probe_cold(region)]
        if not cold:
            return False

        def finish() -> None:
            if self._context.gone:
                self.release()
            else:
                send(response)

        def read_all() -> None:
            for region in cold:
                read_ahead(region)

        self._broker.pool.submit(read_all, finish)
        return True

    def watched(self) -> list[TopicPartition]:
        return [wanted.partition.topic_partition for _, items in self._plan for wanted in items if wanted.partition is not None]

    # --- waiting ------------------------------------------------------------------------------------------------------------------------

    def try_complete(self) -> bool:
        response, total, failed = self.read()
        if total < self.min_bytes and not failed:
            self.release()
            return False
        self.answer(response)
        return True

    def expire(self) -> None:
        self.answer(self.read()[0])

    def answer(self, response: FetchResponse) -> None:
        if self._context.gone:
            self.release()
        elif not self.warm(response, self._context.answer):
            self._context.answer(response)


@handles(FetchRequest, 4, 18)
def handle(broker: Broker, request: FetchRequest, context: Context) -> Outcome:
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(broker, request, context)
    response, total, failed = fetch.read()
    if total >= fetch.min_bytes or failed or request.max_wait_ms <= 0 or not fetch.watched():
        if total and fetch.warm(response, context.answer):
            return LATER
        return response
    fetch.release()
    withdraw = broker.waiting.add(fetch, fetch.watched(), min(request.max_wait_ms, _MAX_WAIT_MS) / 1000)
    context.connection.on_abandoned = withdraw
    return LATER
