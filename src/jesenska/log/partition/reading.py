"""Reads a log: finds the bytes of a file that contain the records from an offset on, or the offset for a timestamp.
The records themselves are only read for a look-up by timestamp.

    the last batches                         their positions are in memory (tail)
    older batches                            the offset index of their segment, and the headers after its entry
    batches from before the broker's start   as older batches, but first checked for damage (checked_batches)
    a timestamp                              the time index and the batches, in another thread (time_lookup)

A look-up may wait for the disk if an index is not loaded, or if pages of the file are not in memory. `read_log` can
refuse such a read. Then `warm_up_for` returns the work that brings the data into memory (cold_reads)."""

from __future__ import annotations

from typing import final

from jesenska.base.errors import CorruptMessageError, OffsetOutOfRangeError
from jesenska.base.regions import FileRegion
from jesenska.log.partition.cold_reads import WarmUp
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.checked_batches import Checked, DamagedRecordsError
from jesenska.log.segments.damage import DamagedSegmentError
from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.log.segments.segment import BatchPlace, ColdError, LogSegment
from jesenska.log.segments.time_lookup import TimeLookup

#: The number of segments that a warm-up reads. The batch for an offset is in the segment of that offset or, if a
#: compaction has left a gap, in one of the next segments. If the batch is farther away, the read waits for the disk.
_WARMED_SEGMENTS_MAX = 4
#: The largest number of checks for one read. Each further check covers batches after the previous check, or inspects
#: the whole segment.
_CHECKS_MAX = 3
_NOWHERE = BatchPlace(-1, -1, -1, -1)


@final
class ReadResult:
    """The result of a read. `region` is None if there is no record at the offset yet. Otherwise the receiver must
    release the region."""

    __slots__ = (
        "base_offset",
        "has_more",
        "is_final",
        "log_end_offset",
        "log_start_offset",
        "position",
        "region",
        "segment_base_offset",
    )

    def __init__(
        self,
        region: FileRegion | None,
        base_offset: int,
        segment_base_offset: int,
        position: int,
        log_start_offset: int,
        log_end_offset: int,
        has_more: bool = False,
        is_final: bool = False,
    ) -> None:
        self.region = region
        #: The base offset of the first batch, which may be below the requested offset.
        self.base_offset = base_offset
        #: The place of the first batch: the base offset of its segment, and the byte position in that segment.
        self.segment_base_offset = segment_base_offset
        self.position = position
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        #: True if there are further readable batches, which the limit of bytes or the end of a segment has excluded.
        self.has_more = has_more
        #: True if a later read at this offset, with the same limit of bytes, would return no more bytes. The reason
        #: may be that the next records are in another segment, or that the next part of the segment is not checked
        #: yet.
        self.is_final = is_final


def read_log(
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    max_offset: int | None = None,
    minimum_one_batch: bool = True,
    wait: bool = True,
) -> ReadResult:
    """Returns the region of the file from the batch that contains `offset` on: at most `max_bytes`, and nothing from
    `max_offset` (default: the log end offset) on. A first batch larger than `max_bytes` is returned completely with
    `minimum_one_batch`. Without it, nothing is returned, because clients report an error if a partition's records have
    no complete batch. Later batches may be cut.

    Raises OFFSET_OUT_OF_RANGE below the log start offset or above the log end offset, CORRUPT_MESSAGE if the disk has
    damaged the batch. Without `wait`, raises ColdError if finding the region could wait for the disk. Then
    `warm_up_for` brings the needed data into memory. The data of the region itself may still be only on the disk."""
    end = log.log_end_offset
    if offset >= end or offset < log.log_start_offset:
        return _read_outside(log, offset)
    bound = end if max_offset is None or max_offset > end else max_offset
    tail = log.tail
    if offset >= tail.first_offset:
        segment = tail.segment
        position, base_offset, first_end = tail.find(offset)
    else:
        try:
            found = _find(log, offset, wait)
        except OSError as error:
            raise log.read_error(error) from error
        if found is None:
            return _nothing_yet(log)
        segment, position, base_offset, first_end = found
    limit = segment.size_bytes
    if bound < end:
        if base_offset >= bound:
            return ReadResult(None, base_offset, segment.base_offset, position, log.log_start_offset, end)
        limit = _bound_position(log, segment, bound, position, wait)
    is_cut = False
    if segment.unchecked_bytes and (checked := segment.checked) is not None:
        checked_end = max(checked.end_from(position), first_end)
        is_cut, limit = checked_end < limit, min(limit, checked_end)
    segment_end = end if segment is log.active_segment else _end_of(log, log.segment_index(segment.base_offset))
    is_final = is_cut or (segment is not log.active_segment and bound >= segment_end)
    size_bytes = limit - position
    if size_bytes > max_bytes:
        first_bytes = first_end - position
        if max_bytes < first_bytes and not minimum_one_batch:
            return ReadResult(
                None, base_offset, segment.base_offset, position, log.log_start_offset, end, True, is_final
            )
        size_bytes = max(max_bytes, first_bytes)
    if size_bytes <= 0:
        return ReadResult(None, base_offset, segment.base_offset, position, log.log_start_offset, end)
    try:
        region = FileRegion(segment.file.handle(), position, size_bytes)
    except OSError as error:
        raise log.read_error(error) from error
    has_more = is_cut or position + size_bytes < limit or bound > segment_end
    return ReadResult(region, base_offset, segment.base_offset, position, log.log_start_offset, end, has_more, is_final)


def _read_outside(log: PartitionLog, offset: int) -> ReadResult:
    """Returns an empty result for a read at the log end offset, where there are no records yet. Raises
    OFFSET_OUT_OF_RANGE for other offsets outside of the log."""
    if offset == log.log_end_offset:
        return _nothing_yet(log)
    raise OffsetOutOfRangeError(
        f"{log.topic_partition} holds offsets {log.log_start_offset} to {log.log_end_offset}, not {offset}."
    )


def _nothing_yet(log: PartitionLog) -> ReadResult:
    segment, end = log.active_segment, log.log_end_offset
    return ReadResult(None, end, segment.base_offset, segment.size_bytes, log.log_start_offset, end)


def aborted_transactions(log: PartitionLog, offset: int, result: ReadResult) -> list[AbortedTransaction]:
    """Returns the aborted transactions with records in the region that was read from `offset` on. The list may include
    transactions whose records come shortly after the region, as in Kafka: the end of the region is looked up in the
    offset index, which is less exact than the batches' headers."""
    region = result.region
    if region is None:
        return []
    first = log.segment_index(result.segment_base_offset)
    indexes = [segment.transaction_index for segment in log.segments[first:] if segment.transaction_index is not None]
    if not indexes:
        return []
    segment = log.segments[first]
    end = (
        segment.offset_index.offset_bound(result.position + region.size_bytes)
        if segment.offset_index.is_loaded
        else None
    )
    if end is None:
        end = log.segments[first + 1].base_offset if first + 1 < len(log.segments) else log.log_end_offset
    found: list[AbortedTransaction] = []
    for index in indexes:
        if index.find(offset, end, found):
            break
    return found


def _find(log: PartitionLog, offset: int, wait: bool = True) -> tuple[LogSegment, int, int, int] | None:
    """Returns the segment, position, base offset and end of the first batch whose last offset is at least `offset`;
    None if there is no such batch."""
    segments = log.segments
    for index in range(log.segment_index(offset), len(segments)):
        segment = segments[index]
        if segment.unchecked_bytes:
            place = _find_checked(log, segment, offset, _end_of(log, index), wait)
        else:
            place = segment.find(offset) if wait else segment.find_warm(offset)
        if place is not None:
            return segment, place.position, place.base_offset, place.position + place.size_bytes
    return None


def _end_of(log: PartitionLog, index: int) -> int:
    """Returns the end offset of the segment with this index."""
    segments = log.segments
    return segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset


def _find_checked(log: PartitionLog, segment: LogSegment, offset: int, bound: int, wait: bool) -> BatchPlace | None:
    """Finds a batch as `LogSegment.find` does, in a segment with unchecked batches. The batch, and all batches that
    are read to find it, must have been checked, or are checked now if `wait` is true. Raises DamagedRecordsError if
    the batch is damaged."""
    offset = max(offset, segment.base_offset)
    for _ in range(_CHECKS_MAX):
        checked = segment.checked
        if checked is None:
            return segment.find(offset) if wait else segment.find_warm(offset)
        damage = checked.damage_at(offset)
        if damage is not None:
            raise DamagedRecordsError(
                f"{log.topic_partition} is damaged on the disk ({damage.reason}): read on at offset "
                f"{damage.next_offset}.",
                damage.next_offset,
            )
        place = _find_in_checked(segment, checked, offset, wait)
        if place is not None:
            return None if place is _NOWHERE else place
        if not wait:
            raise ColdError
        warm_up = WarmUp([segment], [bound], offset)
        warm_up.run()
        warm_up.done()
    raise DamagedSegmentError(
        segment.base_offset, f"{segment.file.path} cannot be read at offset {offset}: check the disk."
    )


def _find_in_checked(segment: LogSegment, checked: Checked, offset: int, wait: bool) -> BatchPlace | None:
    """Returns the batch if all batches that are read to find it were checked. Returns `_NOWHERE` if the segment does
    not have the batch, and None if some of these batches are unchecked."""
    if not (wait or segment.is_warm):
        raise ColdError
    try:
        end = checked.end_from(segment.start_for(offset))
        place = segment.find(offset) if wait else segment.find_warm(offset)
    except CorruptMessageError:
        return None
    if place is None:
        return _NOWHERE if end >= segment.size_bytes else None
    return place if place.position + place.size_bytes <= end else None


def _bound_position(log: PartitionLog, segment: LogSegment, bound: int, position: int, wait: bool) -> int:
    """Returns the position in a segment at which the batches below the offset `bound` end."""
    if segment is log.tail.segment and bound > log.tail.first_offset:
        return log.tail.position_of(bound)
    if segment.unchecked_bytes:
        index = log.segments.index(segment)
        if bound >= _end_of(log, index):
            return segment.size_bytes
        try:
            place = _find_checked(log, segment, bound, _end_of(log, index), wait)
        except DamagedRecordsError:
            # The region was checked: it ends before the damage, or begins after it.
            return segment.size_bytes
        return segment.size_bytes if place is None else max(place.position, position)
    found = segment.find(bound) if wait else segment.find_warm(bound)
    return segment.size_bytes if found is None else max(found.position, position)


def warm_up_for(log: PartitionLog, offset: int) -> WarmUp:
    """Returns work for another thread: it brings the data that is needed to find an offset into memory."""
    first = log.segment_index(offset)
    chosen = log.segments[first : first + _WARMED_SEGMENTS_MAX]
    return WarmUp(chosen, [_end_of(log, first + number) for number in range(len(chosen))], offset)


def lookup_by_time(log: PartitionLog) -> TimeLookup:
    """Returns an object that looks up offsets by timestamp, to be used in another thread (see `time_lookup`)."""
    return TimeLookup(log.segments, log.log_start_offset, log.files)
