"""A consumer of committed records, like Kafka's clients: it skips the aborted transactions that the answers to its
fetches name."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import aborted_transactions, read_log
from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlType, control_marker, decode_batch


def seen_by_consumer(records: bytes, aborted: Sequence[AbortedTransaction], from_offset: int) -> list[int]:
    """The offsets that a client of committed records returns by the rule of Kafka's clients: a producer's records are
    skipped from the first offset in the answer up to the producer's abort marker."""
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)
    passed_over: set[int] = set()
    shown: list[int] = []
    for position, header in iter_headers(records):
        while waiting and waiting[0].first_offset <= header.last_offset:
            passed_over.add(waiting.pop(0).producer_id)
        decoded = decode_batch(records, position)
        if header.is_control:
            if control_marker(decoded[0]).type is ControlType.ABORT:
                passed_over.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in passed_over):
            shown.extend(record.offset for record in decoded if record.offset >= from_offset)
    return shown


def consume(log: PartitionLog, from_offset: int, max_bytes: int) -> list[int]:
    """All offsets that a consumer of committed records gets."""
    offset = from_offset
    shown: list[int] = []
    while offset < log.last_stable_offset:
        result = read_log(log, offset, max_bytes, log.last_stable_offset)
        if result.region is None:
            # Compaction has left no batch after the offset.
            break
        aborted = aborted_transactions(log, offset, result)
        records = FileLayer().pread(result.region.file.fileno(), result.region.size_bytes, result.region.position)
        result.region.release()
        shown.extend(seen_by_consumer(records, aborted, offset))
        offset = [header for _, header in iter_headers(records)][-1].next_offset
    return shown
