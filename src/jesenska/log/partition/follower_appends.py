"""Appends of a follower replica: batches as their leader wrote them, with the leader's offsets and leader epochs.
Offsets increase, and have gaps where the leader was compacted.

    the first batch begins at the log's end or later    it is appended; if the segment must be rolled, the new one
                                                        begins with it
    it begins before the end of an empty log and        the log is restarted at the batch, since the leader's log
    contains that end                                   start offset may be within a batch
    it begins before the log's end, otherwise           OFFSET_OUT_OF_RANGE

The leader has checked the sequence numbers, so they are not checked here. The properties on which the log itself
depends (increasing offsets, complete batches) are checked again (follower_batches)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from jesenska.base.errors import KafkaError, KafkaStorageError, OffsetOutOfRangeError
from jesenska.log.partition.follower_batches import look_at
from jesenska.log.partition.leader_appends import Appended, AppendResult, finish, waits_for_sync
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.producer_state import AbortedTransaction, Undo
from jesenska.records.decode import ControlMarker
from jesenska.records.header import BatchHeader


def append_as_follower(
    log: PartitionLog, buffer: memoryview, headers: Sequence[BatchHeader], now_ms: int, done: Appended
) -> AppendResult | None:
    """Appends checked batches as the leader wrote them. Returns the result. If the write must be queued, the bytes are
    copied, None is returned, and `done` is called later, as by `append_or_queue`.

    Raises OFFSET_OUT_OF_RANGE if the first batch begins before the log end offset. There is one exception: the log is
    empty and its end offset is within the batch. Raises CORRUPT_MESSAGE if offsets do not increase."""
    log.check_writable()
    first_offset, end_offset = headers[0].base_offset, log.next_offset
    if first_offset < end_offset:
        if not log.log_start_offset == log.log_end_offset == end_offset or headers[0].last_offset < end_offset:
            raise OffsetOutOfRangeError(
                f"{log.topic_partition} ends at {end_offset}; the leader's batch at {first_offset} does not follow "
                f"that."
            )
        # The recovery point and the log start offset on the disk may be as high as the old end. That is harmless: the
        # first batch contains that offset, so recovery checks everything from that batch on.
        log.restart_at(
            first_offset, now_ms, partial(_append_to_restarted, log, bytearray(buffer), headers, now_ms, done)
        )
        return None
    result = _append(log, buffer, headers, now_ms, done)
    if result is not None and waits_for_sync(log, result):
        finish(log, result, done, None)
        return None
    return result


def _append_to_restarted(
    log: PartitionLog,
    data: bytearray,
    headers: Sequence[BatchHeader],
    now_ms: int,
    done: Appended,
    failure: KafkaError | None,
) -> None:
    if failure is not None:
        done(failure)
        return
    try:
        result = append_as_follower(log, memoryview(data), headers, now_ms, done)
    except KafkaError as error:
        done(error)
        return
    if result is not None:
        done(result)


def _append(
    log: PartitionLog, buffer: memoryview, headers: Sequence[BatchHeader], now_ms: int, done: Appended
) -> AppendResult | None:
    """Appends batches that begin at the log end offset or later."""
    found = look_at(log.topic_partition, buffer, headers)
    first_offset, end_offset = found.first_offset, found.last_offset + 1
    queues = bool(log.queue.waiting or log.writer.flushes_in_flight)
    if log.active_segment.should_roll(
        log.write_position, len(buffer), found.max_timestamp, found.last_offset, now_ms, log.config
    ):
        log.queue_roll(now_ms, first_offset)
        if log.queue.waiting:
            queues = True
        elif log.active_segment.base_offset != first_offset:
            raise KafkaStorageError(
                f"No new segment of {log.topic_partition} can be made in {log.directory.parent}; make room or mend "
                f"the disk."
            )
    changes, aborted = _note_producers(log, headers, found.markers, now_ms)
    result = AppendResult(first_offset, found.last_offset, -1, log.log_start_offset, False)
    if queues:
        log.write(buffer, found.batches, changes, end_offset, partial(finish, log, result, done), found.epochs, aborted)
        return None
    log.write(buffer, found.batches, changes, end_offset, None, found.epochs, aborted)
    return result


def _note_producers(
    log: PartitionLog, headers: Sequence[BatchHeader], found: Sequence[ControlMarker | None], now_ms: int
) -> tuple[list[Undo], list[AbortedTransaction]]:
    """Stores the last batches and the transaction markers of the producers. Returns the changes, so that they can be
    undone, and the aborted transactions."""
    changes: list[Undo] = []
    aborted: list[AbortedTransaction] = []
    markers = iter(found)
    for header in headers:
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = next(markers)
            if marker is None:
                continue
            with suppress(KafkaError):
                change, transaction = log.producers.apply_marker(header, header.base_offset, marker, now_ms)
                changes.append(change)
                if transaction is not None:
                    aborted.append(transaction)
        else:
            changes.append(log.producers.apply(header, header.base_offset, header.max_timestamp, now_ms))
    return changes, aborted
