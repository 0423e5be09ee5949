"""Checks batches that a leader has sent, before a follower appends them. It does no input or output and does not use
the log.

The leader has assigned their offsets and checked their producers. Since the batches come from a socket, the properties
on which the log depends are checked here: offsets increase, and the batches fill the buffer. The caller checks the
content of the batches (records/check)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.segments.tail import PublishedBatch
from jesenska.records.decode import ControlMarker, read_marker
from jesenska.records.header import BatchHeader


class FollowerBatches(NamedTuple):
    batches: list[PublishedBatch]
    #: Leader epochs that begin in the batches, as pairs of epoch and offset.
    epochs: list[tuple[int, int]]
    #: The transaction markers of the control batches, in order.
    markers: list[ControlMarker | None]
    first_offset: int
    last_offset: int
    max_timestamp: int


def look_at(topic_partition: TopicPartition, buffer: memoryview, headers: Sequence[BatchHeader]) -> FollowerBatches:
    """Checks one or more batches and returns the facts about them. Raises CORRUPT_MESSAGE if offsets do not increase,
    or a transaction marker cannot be read."""
    batches: list[PublishedBatch] = []
    epochs: list[tuple[int, int]] = []
    markers: list[ControlMarker | None] = []
    position, latest_epoch, max_timestamp = 0, -1, -1
    end_offset = headers[0].base_offset
    for header in headers:
        if header.base_offset < end_offset or header.last_offset_delta < 0:
            raise CorruptMessageError(
                f"The leader's batches for {topic_partition} do not go up: {header.base_offset} comes after "
                f"{end_offset - 1}."
            )
        end_offset = header.last_offset + 1
        size_bytes = header.size_bytes
        batches.append(
            PublishedBatch(position, size_bytes, header.base_offset, header.last_offset, header.records_timestamp)
        )
        if header.producer_id >= 0 and header.is_control:
            markers.append(read_marker(buffer[position : position + size_bytes]))
        if header.partition_leader_epoch > latest_epoch:
            latest_epoch = header.partition_leader_epoch
            epochs.append((latest_epoch, header.base_offset))
        max_timestamp = max(max_timestamp, header.max_timestamp)
        position += size_bytes
    assert position == len(buffer), "the headers do not cover the buffer"
    return FollowerBatches(batches, epochs, markers, headers[0].base_offset, end_offset - 1, max_timestamp)
