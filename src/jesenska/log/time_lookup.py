"""From a time to an offset, over a list of segments: the time index says about where, headers narrow it to a batch, and that one batch is opened.

Costs a read of the batch and of what the cache does not hold; the records of one batch become Python objects. Asked by clients a few times at their start,
not per fetch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jesenska.log.segment import LogSegment
from jesenska.records.decode import decode_batch
from jesenska.records.header import BatchHeader


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Sequence[LogSegment], log_start_offset: int, timestamp_ms: int) -> TimestampOffset | None:
    """The first record whose timestamp is at least `timestamp_ms`; None if there is none."""
    for segment in segments:
        if segment.size_bytes == 0 or segment.largest_timestamp() < timestamp_ms:
            continue
        start = max(segment.time_index.lookup(timestamp_ms), log_start_offset)
        place = segment.find(start)
        if place is None:
            continue
        for position, header in segment.headers(place.position):
            if header.max_timestamp < timestamp_ms:
                continue
            for offset, timestamp in _record_times(segment, position, header):
                if timestamp >= timestamp_ms and offset >= log_start_offset:
                    return TimestampOffset(timestamp, offset, header.partition_leader_epoch)
    return None


def first_of_largest(segments: Sequence[LogSegment]) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log; None if no record has one."""
    best: LogSegment | None = None
    for segment in segments:
        if segment.size_bytes and segment.largest_timestamp() > (-1 if best is None else best.max_timestamp):
            best = segment
    place = None if best is None else best.find(best.max_timestamp_offset)
    if best is None or place is None:
        return None
    header = best.header_at(place.position)
    for offset, timestamp in _record_times(best, place.position, header):
        if timestamp >= header.max_timestamp:
            return TimestampOffset(timestamp, offset, header.partition_leader_epoch)
    return None


def _record_times(segment: LogSegment, position: int, header: BatchHeader) -> Iterable[tuple[int, int]]:
    """Offset and timestamp of each record of a batch."""
    if header.has_log_append_time:
        return ((header.base_offset + delta, header.max_timestamp) for delta in range(header.last_offset_delta + 1))
    batch = segment.read_bytes(position, header.size_bytes)
    return ((record.offset, record.timestamp_ms) for record in decode_batch(batch, verify=False, header=header))
