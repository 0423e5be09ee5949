"""Sends a stream of records to its topic. Continues where an earlier run stopped.

The position is not stored in a file: the number of records in each partition tells which record is next. Each
partition gets its records in the stream's order, from one producer at a time. So sending continues at the right record
after a crash of this program or of the broker. Records that were stored are counted, even if their acknowledgement was
lost. Records that were not stored are not counted. The last record in a partition is compared with the stream's record
at this place. If the two records differ, an error is raised.

The partition of a record is chosen by its key, as in every Kafka client."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import Clock
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.demo.flights import Stream
from jesenska.records.arrow import columns_to_batches, partitions_of_keys
from jesenska.records.header import Codec

if TYPE_CHECKING:
    import pyarrow as pa

#: The number of records that are sent together. Up to a few such groups may be unacknowledged at once.
_CHUNK = 4000
_CHUNKS_AHEAD = 4
_LAST_RECORD_SECONDS = 30.0


@dataclass(slots=True)
class Progress:
    """The progress of sending, read by a reporting thread."""

    total: int = 0
    acknowledged: int = 0
    already_there: int = 0
    timestamp_ms: int = 0
    done: bool = False


class NotContinuedError(JesenskaError):
    """The error that is raised if the topic contains other records than the beginning of this stream, so sending
    cannot be continued."""


class StreamProducer:
    """Sends the records of one stream: at full speed, or at a speed that is `speed_up` times the speed of the records'
    timestamps."""

    def __init__(
        self, connection: ClusterThread, stream: Stream, partitions: int, clock: Clock, speed_up: float | None = None
    ) -> None:
        self.progress = Progress(total=len(stream))
        self._connection = connection
        self._stream = stream
        self._partitions = partitions
        self._clock = clock
        self._speed_up = speed_up
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def send(self) -> None:
        """Sends the records that are not in the topic yet. Returns when every record is acknowledged, or after a call
        of `stop`."""
        import pyarrow as pa

        stream = self._stream
        partition_of = partitions_of_keys(stream.keys, self._partitions, 0)
        rows = pa.table(
            {"partition": partition_of, "key": stream.keys, "value": stream.values, "timestamp": stream.timestamps}
        )
        there = self._connection.persist(self._counts)
        left = self._left(rows, there)
        self.progress.already_there = self.progress.acknowledged = sum(there.values())
        self._connection.run(self._send_rows(rows.take(left) if len(left) < len(rows) else rows))
        self.progress.done = not self._stopping.is_set()

    async def _counts(self) -> dict[int, int]:
        keys = [TopicPartition(self._stream.topic, number) for number in range(self._partitions)]
        first = await list_offsets(self._connection.cluster, dict.fromkeys(keys, EARLIEST))
        last = await list_offsets(self._connection.cluster, dict.fromkeys(keys, LATEST))
        if any(item.offset for item in first.values()):
            raise NotContinuedError(f"Records of the topic {self._stream.topic} were deleted.")
        return {key.partition: item.offset for key, item in last.items()}

    def _left(self, rows: pa.Table, there: dict[int, int]) -> Any:
        """Returns the indices of the rows that must still be sent, in the stream's order. Raises NotContinuedError if
        the topic contains other records."""
        import pyarrow as pa
        import pyarrow.compute as pc

        left = []
        for partition, count in there.items():
            of_partition = pc.indices_nonzero(pc.equal(rows["partition"], partition))
            if count > len(of_partition):
                raise NotContinuedError(
                    f"The topic {self._stream.topic} holds more records in partition {partition} than the stream has."
                )
            if count:
                expected = (
                    rows["key"][of_partition[count - 1].as_py()].as_py(),
                    rows["value"][of_partition[count - 1].as_py()].as_py(),
                )
                if self._connection.run(self._record(partition, count - 1)) != expected:
                    raise NotContinuedError(
                        f"The topic {self._stream.topic} holds another record at offset {count - 1} of partition "
                        f"{partition}."
                    )
            left.append(of_partition.slice(count))
        merged = pa.concat_arrays(left)
        return merged.take(pc.array_sort_indices(merged))

    async def _record(self, partition: int, offset: int) -> tuple[bytes | None, bytes | None]:
        key = TopicPartition(self._stream.topic, partition)
        async with Consumer(self._connection.cluster) as consumer:
            await consumer.assign({key: offset})
            for record in (await consumer.poll(_LAST_RECORD_SECONDS, 1)).get(key, ()):
                return record.key, record.value
        raise NotContinuedError(f"The last record of {key} could not be read.")

    async def _send_rows(self, rows: pa.Table) -> None:
        begun = self._clock.monotonic()
        first_ms = rows["timestamp"][0].as_py() if len(rows) else 0
        chunk = _CHUNK if self._speed_up is None else 100
        async with Producer(self._connection.cluster, create_topics=False) as producer:
            waiting: list[tuple[int, list[asyncio.Future[tuple[int, int]]]]] = []
            for begin in range(0, len(rows), chunk):
                piece = rows.slice(begin, chunk)
                if self._speed_up is not None:
                    due = begun + (piece["timestamp"][0].as_py() - first_ms) / 1000 / self._speed_up
                    await asyncio.to_thread(self._stopping.wait, max(0.0, due - self._clock.monotonic()))
                if self._stopping.is_set():
                    break
                futures = []
                for partition, encoded in await asyncio.to_thread(self._encoded, piece):
                    futures += [await producer.send_batch(self._stream.topic, partition, batch) for batch in encoded]
                waiting.append((len(piece), futures))
                self.progress.timestamp_ms = piece["timestamp"][len(piece) - 1].as_py()
                if len(waiting) > (_CHUNKS_AHEAD if self._speed_up is None else 0):
                    await self._acknowledged(*waiting.pop(0))
            for item in waiting:
                await self._acknowledged(*item)

    async def _acknowledged(self, count: int, futures: list[asyncio.Future[tuple[int, int]]]) -> None:
        try:
            for future in futures:
                await future
        except KafkaError as error:
            raise JesenskaError(f"Sending to the topic {self._stream.topic} failed: {error}") from error
        self.progress.acknowledged += count

    @staticmethod
    def _encoded(piece: pa.Table) -> list[tuple[int, list[bytearray]]]:
        import pyarrow.compute as pc

        found = []
        for number in sorted(pc.unique(piece["partition"]).to_pylist()):
            rows = piece.filter(pc.equal(piece["partition"], number)).combine_chunks()
            batches = columns_to_batches(
                rows["key"], rows["value"], None, rows["timestamp"], default_timestamp=0, codec=Codec.LZ4
            )
            found.append((number, batches))
        return found
