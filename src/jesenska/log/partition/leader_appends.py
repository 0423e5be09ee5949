"""Appends of a leader: offsets, leader epoch and, on topics with log append time, timestamps are written into the
batches of producers, in the caller's buffer. Sizes are checked first, then the producers' sequence numbers. A refused
append leaves the log unchanged.

    a batch that was appended before    the result has the offsets of the first append; if that append still waits
                                        to be written, both callers get their results together
    flush.messages is reached           the result waits until the records are synced, also for a batch that
                                        repeats an unsynced batch

The caller checks the content of a batch (records/check). `PartitionLog.write` describes how a write reaches the file,
and the effects of a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, final

from jesenska.base.errors import KafkaError, MessageTooLargeError, RecordListTooLargeError
from jesenska.log.log_config import UNLIMITED
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.producer_state import AbortedTransaction, RememberedBatch, Undo
from jesenska.log.segments.tail import PublishedBatch
from jesenska.records.batch import stamp_offsets
from jesenska.records.codec import set_max_timestamp
from jesenska.records.decode import read_marker
from jesenska.records.header import CONTROL_BIT, LENGTH_OVERHEAD, BatchHeader


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    #: The log append time; -1 if the topic has create time. If the batch was appended before, this is the largest
    #: timestamp that the producer gave to its records, as in Kafka.
    log_append_time_ms: int
    log_start_offset: int
    #: True if the batch was appended before. The offsets are then the offsets of the first append.
    duplicate: bool


#: A function that is called with the result of a queued append.
Appended = Callable[[AppendResult | KafkaError], None]


def append_at_once(
    log: PartitionLog, buffer: memoryview, headers: Sequence[BatchHeader], leader_epoch: int, now_ms: int
) -> AppendResult:
    """Appends checked batches as leader. `buffer` is writable and holds exactly the batches of `headers`. Offsets,
    leader epoch and, on topics with log append time, timestamps are written into it. Errors of the sequence check,
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE and KAFKA_STORAGE_ERROR leave the log unchanged."""
    assert not log.queue.waiting, "appends are queued: use append_or_queue"
    result = append_or_queue(log, buffer, headers, leader_epoch, now_ms, None)
    assert result is not None
    if log.flushes.unflushed_records >= log.config.flush_messages:
        log.flush()
    return result


def append_or_queue(
    log: PartitionLog,
    buffer: memoryview,
    headers: Sequence[BatchHeader],
    leader_epoch: int,
    now_ms: int,
    done: Appended | None,
    of_client: bool = True,
) -> AppendResult | None:
    """Appends like `append_at_once`, but may queue the write. If a flush of the directory is in progress, it copies
    the bytes and returns None. It calls `done` on the owner's thread when the batches are written, or the write has
    failed.

    If `flush.messages` is reached, `done` is called after the sync. If a batch repeats an earlier batch whose write or
    sync still waits, the callers of both batches get their results together. Without `done` nothing is queued or
    synced. Without `of_client` only the producer's epoch is checked, not the sequence numbers: the batches come from a
    coordinator, which ensures their order."""
    queues = done is not None and bool(log.queue.waiting or log.writer.flushes_in_flight)
    if log.is_closed or log.is_hindered or log.flushes.failure is not None:
        log.check_writable()
    append_time_ms = now_ms if log.config.log_append_time else -1
    first_offset = log.next_offset
    end_offset, max_timestamp = _check_sizes(log, len(buffer), headers, append_time_ms)
    if log.active_segment.should_roll(
        log.write_position, len(buffer), max_timestamp, end_offset - 1, now_ms, log.config
    ):
        queues = _roll(log, now_ms, done is not None)
    prepared = _Prepared()
    earlier = _prepare(log, buffer, headers, leader_epoch, now_ms, append_time_ms, of_client, prepared)
    if earlier is not None:
        return _duplicate(log, earlier, done)
    if leader_epoch > log.leader_epochs.latest_epoch:
        log.assign_leader_epoch(leader_epoch, first_offset)
    result = AppendResult(first_offset, end_offset - 1, append_time_ms, log.log_start_offset, False)
    batches, changes, aborted = prepared.batches, prepared.changes, prepared.aborted
    if queues and done is not None:
        log.write(buffer, batches, changes, end_offset, partial(finish, log, result, done), (), aborted)
        return None
    log.write(buffer, batches, changes, end_offset, None, (), aborted)
    if done is not None and log.config.flush_messages < UNLIMITED and waits_for_sync(log, result):
        finish(log, result, done, None)
        return None
    return result


def _check_sizes(
    log: PartitionLog, size_bytes: int, headers: Sequence[BatchHeader], append_time_ms: int
) -> tuple[int, int]:
    """Returns the offset after the batches and their largest timestamp. Raises RECORD_LIST_TOO_LARGE or
    MESSAGE_TOO_LARGE if they are too large for the topic."""
    config = log.config
    if size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{size_bytes} bytes in one request for {log.topic_partition} do not fit a segment of "
            f"{config.segment_bytes} bytes."
        )
    offset = log.next_offset
    position = 0
    max_timestamp = append_time_ms
    for header in headers:
        batch_bytes = LENGTH_OVERHEAD + header.batch_length
        if batch_bytes > config.max_message_bytes:
            raise MessageTooLargeError(
                f"A batch of {batch_bytes} bytes for {log.topic_partition} is larger than "
                f"max.message.bytes={config.max_message_bytes}."
            )
        if header.max_timestamp > max_timestamp and append_time_ms < 0:
            max_timestamp = header.max_timestamp
        position += batch_bytes
        offset += header.last_offset_delta + 1
    assert position == size_bytes, "the headers do not cover the buffer"
    return offset, max_timestamp


@final
class _Prepared:
    """The batches of an append with their offsets, and the changes of the producers' states, which are already
    applied. Aborted transactions are not in the transaction index yet."""

    __slots__ = ("aborted", "batches", "changes")

    def __init__(self) -> None:
        self.batches: list[PublishedBatch] = []
        self.changes: list[Undo] = []
        self.aborted: list[AbortedTransaction] = []


def _prepare(
    log: PartitionLog,
    buffer: memoryview,
    headers: Sequence[BatchHeader],
    leader_epoch: int,
    now_ms: int,
    append_time_ms: int,
    of_client: bool,
    prepared: _Prepared,
) -> RememberedBatch | None:
    """Writes offsets, leader epoch and append time into the buffer and updates the producers' states. Returns the
    earlier batch if one of the batches repeats it, otherwise None. If an earlier batch is returned, or a KafkaError is
    raised, the producers' states are unchanged."""
    producers = log.producers
    batches, changes = prepared.batches, prepared.changes
    offset, position = log.next_offset, 0
    try:
        for header in headers:
            stamp_offsets(buffer, position, offset, leader_epoch)
            if append_time_ms >= 0:
                header = set_max_timestamp(buffer, position, header, append_time_ms, True)
            timestamp = header.max_timestamp
            batch_bytes = LENGTH_OVERHEAD + header.batch_length
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    marker = read_marker(buffer[position : position + batch_bytes])
                    if marker is not None:
                        change, transaction = producers.apply_marker(header, offset, marker, now_ms)
                        changes.append(change)
                        if transaction is not None:
                            prepared.aborted.append(transaction)
                else:
                    earlier = None
                    if of_client:
                        earlier = producers.check(header)
                    else:
                        producers.check_epoch(header.producer_id, header.producer_epoch)
                    if earlier is not None:
                        producers.undo(changes)
                        return earlier
                    changes.append(producers.apply(header, offset, timestamp, now_ms))
            last_offset = offset + header.last_offset_delta
            batches.append(PublishedBatch(position, batch_bytes, offset, last_offset, timestamp))
            position += batch_bytes
            offset = last_offset + 1
    except KafkaError:
        producers.undo(changes)
        raise
    return None


def _roll(log: PartitionLog, now_ms: int, queues: bool) -> bool:
    """Rolls the active segment before an append. Returns true if the roll was queued, because making the files may
    wait for the disk. Then this append and all later appends wait for the roll."""
    if queues:
        log.queue_roll(now_ms)
        return True
    try:
        log.roll(now_ms)
    except OSError as error:
        raise log.storage_error(error) from error
    return False


def _duplicate(log: PartitionLog, earlier: RememberedBatch, done: Appended | None) -> AppendResult | None:
    """Returns the result for a batch that was appended before; None if the first append still waits to be written, or
    synced. Then `done` is called together with the callback of the first append."""
    result = AppendResult(earlier.first_offset, earlier.last_offset, earlier.timestamp, log.log_start_offset, True)
    if done is None:
        return result
    if earlier.last_offset >= log.log_end_offset:
        waiting = log.queue.holding(earlier.last_offset)
        assert waiting is not None, "an offset at or beyond the log end belongs to a queued append"
        waiting.finish.append(partial(finish, log, result, done))
        return None
    if waits_for_sync(log, result):
        finish(log, result, done, None)
        return None
    return result


def waits_for_sync(log: PartitionLog, result: AppendResult) -> bool:
    """Returns true if the topic's `flush.messages` is reached, or if the batch repeats an earlier batch that may not
    be synced yet."""
    flushes, limit = log.flushes, log.config.flush_messages
    repeats = result.duplicate and limit < UNLIMITED and flushes.runs and result.last_offset >= flushes.recovery_point
    return flushes.unflushed_records >= limit or repeats


def finish(log: PartitionLog, result: AppendResult, done: Appended, failure: KafkaError | None) -> None:
    """Calls `done` with the result of an append, or with the error if the append failed. If the topic requires a sync,
    `done` is called after the sync."""
    if failure is not None:
        done(failure)
    elif waits_for_sync(log, result):
        log.flush(lambda failure: done(result if failure is None else failure))
    else:
        done(result)
