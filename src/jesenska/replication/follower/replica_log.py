"""Changes the log of a follower. It appends the leader's records and cuts records that the leader does not have. If
the leader has already deleted the next records, it restarts the log. `replication.follower.fetcher` decides the
changes; this module does input and output.

All changes are made in the order of the calls, after the changes that are queued in the log. So a broker that begins
to follow first waits for the queued changes of the log (`settle`). The position of the log is known only after these
changes.

  high watermark      the leader's high watermark, but at most this log's end. It never decreases
  log start offset    the leader's log start offset, but at most this log's high watermark
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

#: An offset after the end of every log: truncating a log to this offset removes no record.
_NOWHERE: Final = 2**63 - 1

#: A function that is called with the outcome: None for success, or the error.
Settled = Callable[[KafkaError | None], None]


def position_of(log: PartitionLog) -> Position:
    """Returns the position of a log that has no queued changes."""
    return Position(log.log_end_offset, log.log_start_offset, log.leader_epochs.latest_epoch)


def settle(log: PartitionLog, now_ms: int, settled: Settled) -> None:
    """Calls `settled` after queued appends and a running truncation have ended. Also removes leader epochs without any
    record from the log's list of epochs, because the leader compares logs by the epochs of their records."""
    log.truncate_to(_NOWHERE, now_ms, settled)


def receive(log: PartitionLog, received: Received, now_ms: int, settled: Settled) -> None:
    """Appends the leader's records, each batch unchanged after a check of its CRC. Then takes over the leader's high
    watermark and log start offset. `settled` may be called before this function returns. It gets CORRUPT_MESSAGE if a
    batch is damaged."""

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
    """Returns the bytes and headers of the complete batches: the last batch of a Fetch answer may be incomplete."""
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
    """Cuts the records that the leader does not have, as far as the diverging epoch in the leader's answer shows."""
    offset = cut_offset(log.leader_epochs, log.log_end_offset, diverging.epoch, diverging.end_offset)
    if offset < log.high_watermark:
        logger.warning(
            "the log of %s is cut to offset %d, below its high watermark %d: its leader was elected without being in "
            "sync",
            log.topic_partition,
            offset,
            log.high_watermark,
        )
    log.truncate_to(offset, now_ms, settled)


def go_on(log: PartitionLog, where: GoOn, now_ms: int, settled: Settled) -> None:
    """Cuts or restarts the log at an offset that the leader has."""
    if where.restarts:
        log.restart_at(where.offset, now_ms, settled)
    else:
        log.truncate_to(where.offset, now_ms, settled)
