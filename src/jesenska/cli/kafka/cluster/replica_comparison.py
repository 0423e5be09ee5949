"""Compares the replicas of partitions, batch by batch up to the high watermark. This module does not fetch anything
itself.

    offsets_on(broker)   the offsets from which to read the broker's partitions
    compare(answers)     compares the brokers' responses, yields each difference, and moves each partition's offset
                         past the batches that all replicas have in common
    max_lag              the largest lag of a partition: its highest high watermark minus the offset up to which its
                         replicas were compared

If a replica returned nothing, or did not answer, its partition's offset does not move. Two batches are the same if
they end at the same offset, and if two checksums are the same: the checksum in the batch header, and the checksum of
the received bytes. The leader epoch is not covered by these checksums and is not compared."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from jesenska.base.errors import JesenskaError, KafkaError, OffsetOutOfRangeError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.replica_fetch import FetchedReplica
from jesenska.records import codec
from jesenska.records.batch import BatchHeader, iter_headers
from jesenska.records.header import ATTRIBUTES_OFFSET

#: The fetched replicas, by broker and partition.
Answers = Mapping[int, Mapping[TopicPartition, FetchedReplica]]


class ChecksumsDiffer(NamedTuple):
    """A difference: two replicas have different batches that end at the offset `offset`."""

    key: TopicPartition
    offset: int
    first_broker: int
    first_checksum: int
    other_broker: int
    other_checksum: int


class OffsetsDiffer(NamedTuple):
    """A difference: after the last common batch, two replicas have batches that end at different offsets. Later
    batches cannot be compared."""

    key: TopicPartition
    first_broker: int
    first_offset: int
    other_broker: int
    other_offset: int


class MaxLag(NamedTuple):
    """The largest lag, and the partition with this lag. They are -1 and None if no broker has reported a high
    watermark."""

    lag: int = -1
    key: TopicPartition | None = None
    offset: int = -1


class _Replica(NamedTuple):
    broker: int
    high_watermark: int
    data: memoryview
    batches: Iterator[tuple[int, BatchHeader]]


class ReplicaComparison:
    """Compares the replicas of partitions, starting at the given offsets. `replicas` names the brokers of each
    partition."""

    def __init__(self, replicas: Mapping[TopicPartition, Sequence[int]], offsets: Mapping[TopicPartition, int]) -> None:
        self._replicas = {key: sorted(replicas[key]) for key in sorted(replicas)}
        self.offsets = dict(offsets)
        #: The round in which each partition's offset moved last. The partitions whose offsets have not moved for the
        #: longest time are requested first. The reason: only the first partition of a fetch gets a batch that is
        #: larger than the fetch size.
        self._moved = dict.fromkeys(self._replicas, 0)
        self._round = 0
        self.max_lag = MaxLag()

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def brokers(self) -> list[int]:
        return sorted({broker for brokers in self._replicas.values() for broker in brokers})

    def offsets_on(self, broker: int) -> dict[TopicPartition, int]:
        """Returns the offsets from which to read the broker's partitions. The order of the partitions is the same for
        each broker."""
        keys = [key for key, brokers in self._replicas.items() if broker in brokers]
        return {key: self.offsets[key] for key in sorted(keys, key=lambda key: (self._moved[key], key))}

    def out_of_range(self, answers: Answers) -> list[TopicPartition]:
        """Returns the partitions whose offset is out of range in all replicas: records were deleted up to a higher
        offset, or the topic was created again."""
        return [
            key
            for key, brokers in self._replicas.items()
            if all(
                (found := _of(answers, broker, key)) is not None and isinstance(found.error, OffsetOutOfRangeError)
                for broker in brokers
            )
        ]

    def compare(self, answers: Answers) -> Iterator[ChecksumsDiffer | OffsetsDiffer]:
        """Compares the fetched batches of all partitions, and yields the differences. Raises JesenskaError if the data
        of a replica are not batches."""
        self._round += 1
        largest = MaxLag()
        for key in self._replicas:
            before = self.offsets[key]
            high_watermark = yield from self._compare_one(key, answers)
            if self.offsets[key] != before:
                self._moved[key] = self._round
            lag = high_watermark - self.offsets[key]
            if lag > largest.lag:
                largest = MaxLag(lag, key, self.offsets[key])
        self.max_lag = largest

    def _compare_one(
        self, key: TopicPartition, answers: Answers
    ) -> Generator[ChecksumsDiffer | OffsetsDiffer, None, int]:
        """Compares the fetched batches of one partition, and yields the differences. Returns the highest high
        watermark that a replica has reported."""
        replicas = []
        for broker in self._replicas[key]:
            found = _of(answers, broker, key)
            if found is not None:
                replicas.append(_Replica(broker, found.high_watermark, found.data, iter_headers(found.data)))
        while len(replicas) == len(self._replicas[key]):
            following = yield from self._compare_next(key, replicas)
            if following is None:
                break
            self.offsets[key] = following
        return max((replica.high_watermark for replica in replicas), default=-1)

    def _compare_next(
        self, key: TopicPartition, replicas: Sequence[_Replica]
    ) -> Generator[ChecksumsDiffer | OffsetsDiffer, None, int | None]:
        """Compares the next batch of each replica, and yields the differences. Returns the offset after this batch, or
        None if a replica has no further batch."""
        first: tuple[_Replica, int, BatchHeader] | None = None
        is_everywhere = True
        for replica in replicas:
            try:
                position, header = next(replica.batches, (0, None))
            except KafkaError as error:
                raise JesenskaError(
                    f"Replica {replica.broker} of {key} cannot be read at offset {self.offsets[key]}: {error}."
                ) from error
            if header is None or header.last_offset >= replica.high_watermark:
                is_everywhere = False
            elif first is None:
                first = replica, position, header
            elif first[2].last_offset != header.last_offset:
                yield OffsetsDiffer(key, first[0].broker, first[2].last_offset, replica.broker, header.last_offset)
                return None
            else:
                yield from _compare_checksums(key, *first, replica, position, header)
        return first[2].next_offset if first is not None and is_everywhere else None


def _of(answers: Answers, broker: int, key: TopicPartition) -> FetchedReplica | None:
    return answers.get(broker, {}).get(key)


def _compare_checksums(
    key: TopicPartition,
    first: _Replica,
    first_position: int,
    first_header: BatchHeader,
    other: _Replica,
    position: int,
    header: BatchHeader,
) -> Iterator[ChecksumsDiffer]:
    ours, theirs = first_header.crc, header.crc
    if ours == theirs:
        ours, theirs = _of_bytes(first.data, first_position, first_header), _of_bytes(other.data, position, header)
    if ours != theirs:
        yield ChecksumsDiffer(key, header.last_offset, first.broker, ours, other.broker, theirs)


def _of_bytes(data: memoryview, position: int, header: BatchHeader) -> int:
    return codec.crc32c(data, position + ATTRIBUTES_OFFSET, position + header.size_bytes)
