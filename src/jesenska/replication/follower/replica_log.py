"""What a follower does with its log: takes what the leader sends, cuts what the leader does not have, begins anew
where the leader has nothing of what comes next. A mover: `replication.follower.fetcher` says what is to be done.

Everything is done in the order in which it is asked for, behind what is queued in the log already. So a log that was
led, or is still being cut, when this broker begins to follow settles first: where it stands is known when that is
done, and not before (`settle`).

    high watermark      the leader's, as far as this log goes; it never goes back
    log start offset    the leader's, as far as records are committed here
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from jesenska.base.errors import CorruptMessageError, KafkaError
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers, verify_crc
from jesenska.records.header import BatchHeader
from jesenska.replication.follower.fetcher import Cut, GoOn, Position, Received, cut_offset

logger = logging.getLogger(__name__)

#: Beyond the end of every log.
_NOWHERE: Final = 2**63 - 1

#: What became of it: None if it is done.
Settled = Callable[[KafkaError | None], None]


def position_of(log: PartitionLog) -> Position:
    """Where a log stands in which nothing is under way."""
    return Position(log.log_end_offset, log.log_start_offset, log.leader_epochs.latest_epoch)


def settle(log: PartitionLog, now_ms: int, settled: Settled) -> None:
    """Waits for what is queued, and for a cut that is under way. Epochs of leaders that have written nothing are
    forgotten: the leader is to say where the logs part by what is in this one."""
    log.truncate_to(_NOWHERE, now_ms, settled)


def receive(log: PartitionLog, received: Received, now_ms: int, settled: Settled) -> None:
    """Appends what the leader has sent, each batch as it is, once its CRC is right, and takes over its offsets.
    `settled` may be called before this returns, and is called with CORRUPT_MESSAGE if a batch is not what the leader
    had."""

    def appended(outcome: AppendResult | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            settled(outcome)
            return
        _take_over(log, received)
        settled(None)

    try:
        view, headers = _whole_batches(received)
        result = append_as_follower(log, view, headers, now_ms, appended) if headers else _NOTHING
    except KafkaError as error:
        settled(error)
        return
    if result is not None:
        appended(result)


_NOTHING: Final = AppendResult(-1, -1, -1, -1, False)


def _whole_batches(received: Received) -> tuple[memoryview, list[BatchHeader]]:
    """What was sent up to the last whole batch: a leader may cut the last one."""
    records = received.records
    assert records is None or isinstance(records, memoryview | bytes | bytearray), "an answer holds bytes"
    view, end, headers = memoryview(records or b""), 0, []
    for position, header in iter_headers(view):
        verify_crc(view, position, header)
        if header.partition_leader_epoch > received.leader_epoch:
            epochs = f"{header.partition_leader_epoch}, newer than its leader's, {received.leader_epoch}"
            raise CorruptMessageError(f"A batch of {received.topic_partition} is of epoch {epochs}.")
        headers.append(header)
        end = position + header.size_bytes
    return view[:end], headers


def _take_over(log: PartitionLog, received: Received) -> None:
    committed = min(received.high_watermark, log.log_end_offset)
    if committed > log.high_watermark:
        log.move_high_watermark(committed)
    log.move_log_start(min(received.log_start_offset, log.high_watermark))


def cut(log: PartitionLog, diverging: Cut, now_ms: int, settled: Settled) -> None:
    """Forgets what the leader does not have, as far as its answer says."""
    offset = cut_offset(log.leader_epochs, log.log_end_offset, diverging.epoch, diverging.end_offset)
    if offset < log.high_watermark:
        logger.warning(
            "%s is cut to offset %d, below %d, up to where it was committed: its leader was elected without being in "
            "sync",
            log.topic_partition,
            offset,
            log.high_watermark,
        )
    log.truncate_to(offset, now_ms, settled)


def go_on(log: PartitionLog, where: GoOn, now_ms: int, settled: Settled) -> None:
    """Goes on where the leader has something."""
    if where.restarts:
        log.restart_at(where.offset, now_ms, settled)
    else:
        log.truncate_to(where.offset, now_ms, settled)
