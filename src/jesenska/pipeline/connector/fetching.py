"""Reads ranges of offsets from partitions. While the caller works on one chunk, the next chunk of the same range and
the first chunks of the following ranges are being fetched.

    chunks(connection, ranges) -> Chunk, Chunk, ...     each a few MB of whole batches, as they are in the log

A chunk's first batch may begin before the chunk's `start`, and its last batch may end after its `end`: the decoder
takes only the offsets from `start` to `end`.

A fetch that fails because a broker is unreachable, or is no longer the leader, is sent again. The retries end when
kafkaConsumer.pollTimeoutMs (by default default.api.timeout.ms) has passed since the last chunk. Offsets that were
deleted from the log are data loss (planning.py). With the isolation level read_committed, batches of aborted
transactions are removed here: the broker's fetch response lists these transactions."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from jesenska.base.errors import (
    ErrorCode,
    KafkaError,
    LeaderNotAvailableError,
    NetworkException,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import (
    DATA_SOURCE_LOOK_UPS_MAX,
    FETCH_ONE_BATCH_MAX_BYTES,
    SOURCE_RANGES_AHEAD_MAX,
    SOURCE_SAMPLED_TOPICS_MAX,
)
from jesenska.client.cluster import Cluster
from jesenska.client.committed import CommittedBatches
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import SourceOptions
from jesenska.pipeline.connector.planning import Bounds, DataLossError, OffsetRange, bounds_of, data_loss
from jesenska.records.batch import iter_headers
from jesenska.records.message_set import is_message_set, whole_messages
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

_NAMES_NOT_IDS = 12
_SAMPLE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of `topic_partition`, or messages of formats v0 and v1, with the offsets from `start` to `end`.
    Offsets are missing where records were deleted or compacted."""

    topic_partition: TopicPartition
    start: int
    end: int
    buffers: tuple[memoryview, ...]


def chunks(connection: ClusterThread, ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[Chunk]:
    """Yields the records of the ranges in chunks, one range after the other. Errors name the topic, partition and
    offsets of the failed range."""
    waiting = iter([_RangeReader(connection, item, options) for item in ranges])
    coming: deque[tuple[_RangeReader, Future[Chunk | None]]] = deque()
    try:
        while True:
            for reader in itertools.islice(waiting, SOURCE_RANGES_AHEAD_MAX - len(coming)):
                coming.append((reader, connection.submit(reader.next_chunk())))
            if not coming:
                return
            reader, future = coming[0]
            chunk = future.result()
            if chunk is None:
                coming.popleft()
                continue
            coming[0] = (reader, connection.submit(reader.next_chunk()))
            yield chunk
    finally:
        for _, future in coming:
            future.cancel()


async def record_bytes(cluster: Cluster, ranges: Iterable[OffsetRange], options: SourceOptions) -> dict[str, float]:
    """Returns, for each topic, the average size in bytes of a record in the log. The size is measured in a few batches
    at the start of the topic's largest range. Topics whose fetch fails are left out."""
    largest: dict[str, OffsetRange] = {}
    for item in ranges:
        if item.topic not in largest or item.size > largest[item.topic].size:
            largest[item.topic] = item
    wanted = sorted(largest.values(), key=lambda item: -item.size)[:SOURCE_SAMPLED_TOPICS_MAX]
    answers = await asyncio.gather(*(_sample(cluster, item, options) for item in wanted), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaError):
            raise answer
    return {item.topic: answer for item, answer in zip(wanted, answers) if isinstance(answer, float)}


async def _sample(cluster: Cluster, wanted: OffsetRange, options: SourceOptions) -> float | None:
    answer = await _ask(cluster, TopicPartition(wanted.topic, wanted.partition), wanted.start, _SAMPLE_BYTES, options)
    data = answer.records
    if not data:
        return None
    assert isinstance(data, memoryview)
    if is_message_set(data):
        return None
    size_bytes = offsets = 0
    for _, header in iter_headers(data):
        size_bytes += header.size_bytes
        offsets += header.last_offset_delta + 1
    return size_bytes / offsets if offsets else None


class _RangeReader:
    """Reads one range of offsets, and stores the offset at which its next fetch begins. It is used only on the thread
    of the event loop."""

    def __init__(self, connection: ClusterThread, wanted: OffsetRange, options: SourceOptions) -> None:
        self._connection = connection
        self._wanted = wanted
        self._options = options
        self._key = TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.start
        self._fetch_bytes = options.fetch_bytes
        self._unknown_in_a_row = 0

    async def next_chunk(self) -> Chunk | None:
        """Returns the next chunk of the range, or None at its end."""
        try:
            while self._position < self._wanted.end:
                chunk = await self._connection.persistently(self._fetch_or_lose, self._options.poll_timeout_ms)
                if chunk is not None:
                    return chunk
        except DataLossError:
            raise
        except KafkaError as error:
            raise KafkaError.of(
                error.code, f"Reading {self._wanted} failed at offset {self._position}: {error}"
            ) from error
        return None

    async def _fetch_or_lose(self) -> Chunk | None:
        try:
            chunk = await self._fetch()
        except UnknownTopicOrPartitionError:  # of the fetch, or of a look-up that it led to
            await self._unknown()
            return None
        self._unknown_in_a_row = 0
        return chunk

    async def _fetch(self) -> Chunk | None:
        """Sends one fetch. Returns None if the response contains no whole batch at the position. The caller then
        repeats the fetch, unless the position was moved to the range's end because of data loss."""
        start = self._position
        cluster = self._connection.cluster
        try:
            answer = await _ask(cluster, self._key, start, self._fetch_bytes, self._options)
        except OffsetOutOfRangeError:
            await self._lost()
            return None
        except UnknownTopicOrPartitionError:
            raise
        except KafkaError as error:
            if error.retriable:
                cluster.forget_topic(self._key.topic)
            raise
        data = answer.records
        if not data:
            await self._nothing_there(answer)
            return None
        assert isinstance(data, memoryview)
        following, buffers = whole_batches(data, answer, self._options.read_committed)
        if following <= start:
            self._fetch_bytes = min(self._fetch_bytes * 2, FETCH_ONE_BATCH_MAX_BYTES)
            return None
        self._position = following
        return Chunk(self._key, start, min(following, self._wanted.end), buffers)

    async def _bounds(self) -> Bounds:
        return await bounds_of(self._connection.cluster, [self._key], read_committed=self._options.read_committed)

    async def _lost(self) -> None:
        """Handles a position that the log no longer contains: reports data loss, and moves the position to the log's
        earliest offset. If the log contains no later offset of the range, the position moves to the end of the
        range."""
        bounds = await self._bounds()
        earliest, latest = bounds.earliest[self._key], bounds.latest[self._key]
        data_loss(
            f"The offset {self._position} of {self._key} is not in the log, which holds {earliest} to {latest}: it "
            f"was deleted while {self._wanted} was read.",
            self._options.fail_on_data_loss,
        )
        self._position = min(earliest, self._wanted.end) if self._position < earliest else self._wanted.end

    async def _unknown(self) -> None:
        """Handles a leader that does not know the partition. A broker that has just started may not know it yet, so
        the fetch is repeated. If the topic was deleted, data loss is reported and the range ends."""
        self._unknown_in_a_row += 1
        errors = await self._connection.cluster.refresh([self._key.topic])
        if self._key.topic not in errors or self._unknown_in_a_row < DATA_SOURCE_LOOK_UPS_MAX:
            raise LeaderNotAvailableError(f"{self._key} is not known to its leader at present.")
        data_loss(
            f"{self._key} does not exist any more; {self._wanted} is to be read.",
            self._options.fail_on_data_loss,
            "the rest is left out",
        )
        self._position = self._wanted.end

    async def _nothing_there(self, answer: FetchResponsePartition) -> None:
        """Handles an empty fetch response, although records were planned. If the log end offset is below the range's
        end, the missing records are reported as data loss. Otherwise the fetch is repeated: a new leader's high
        watermark may not have reached the records yet."""
        latest = (await self._bounds()).latest[self._key]
        if latest < self._wanted.end:
            sentence = (
                f"{self._key} ends at offset {latest}, but {self._wanted} is to be read: the records from "
                f"{max(latest, self._position)} on are gone."
            )
            data_loss(sentence, self._options.fail_on_data_loss, "the rest is left out")
            self._position = self._wanted.end
            return
        raise RequestTimedOutError(
            f"{self._key}: the broker returned no records at offset {self._position}, although the log goes up to "
            f"offset {latest}."
        )


async def _ask(
    cluster: Cluster, key: TopicPartition, offset: int, max_bytes: int, options: SourceOptions
) -> FetchResponsePartition:
    leads = await cluster.leader_of(key)
    part = FetchRequestPartition(
        partition=key.partition,
        current_leader_epoch=leads.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
    )
    request = FetchRequest(
        max_wait_ms=options.fetch_max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=1 if options.read_committed else 0,
        topics=[FetchRequestTopic(topic=key.topic, partitions=[part])],
    )
    channel = await cluster.channel_of(leads.leader)
    version = channel.version_for(FetchRequest, _NAMES_NOT_IDS)
    try:
        patience = options.fetch_max_wait_ms / 1000 + cluster.request_timeout_seconds
        async with asyncio.timeout(
            patience if options.poll_timeout_ms is None else min(patience, options.poll_timeout_ms / 1000)
        ):
            answer: FetchResponse = await channel.send(request, version)
    except TimeoutError:
        channel.close("a fetch was not answered in time")
        raise RequestTimedOutError(f"{key}: the broker did not answer a fetch at offset {offset} in time.") from None
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError.of(answer.error_code, f"{key}: the broker refuses a fetch.")
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.partition_index == key.partition and topic.topic == key.topic:
                if partition.error_code != ErrorCode.NONE:
                    raise KafkaError.of(
                        partition.error_code, f"the broker answers {error_name(partition.error_code)} to a fetch."
                    )
                return partition
    raise NetworkException(f"{key}: the broker's answer leaves the partition out.")


def whole_batches(
    data: memoryview, answer: FetchResponsePartition, read_committed: bool
) -> tuple[int, tuple[memoryview, ...]]:
    """Returns the offset after the last whole batch or message, and the data as buffers, without batches of aborted
    transactions. Each buffer contains only batches, or only messages of formats v0 and v1. A log contains both if its
    topic's message format was changed."""
    following, begin = -1, 0
    buffers: list[memoryview] = []
    committed = CommittedBatches(answer.aborted_transactions or ()) if read_committed else None
    while begin < len(data):
        end = begin
        if is_message_set(data[begin:]):
            for _, following_position, offset in whole_messages(data, begin):
                end, following = following_position, offset + 1
            buffers.append(data[begin:end])
        else:
            end, following = _batches(data, begin, following, committed, buffers)
        if end == begin:
            break
        begin = end
    return following, tuple(buffer for buffer in buffers if buffer)


def _batches(
    data: memoryview, begin: int, following: int, committed: CommittedBatches | None, buffers: list[memoryview]
) -> tuple[int, int]:
    """Adds the record batches from the position `begin` on to the buffers. Returns the position after the last batch,
    and the offset after the last record."""
    end = begin
    try:
        for position, header in iter_headers(data, begin):
            end = position + header.size_bytes
            following = header.next_offset
            if committed is not None and not committed.holds(header):
                buffers.append(data[begin:position])
                begin = end
    except UnsupportedForMessageFormatError:
        pass  # messages follow
    buffers.append(data[begin:end])
    return end, following
