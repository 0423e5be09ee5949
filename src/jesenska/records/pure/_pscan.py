"""Scans the batches of a segment file, in plain Python: the twin of the compiled `_scan.pxi`. Recovery of a log uses
these scans. The layout of a header is in header.py."""

from __future__ import annotations

from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)
from jesenska.records.pure._precords import crc32c

_RELATIVE_OFFSET_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_ENTRIES_MAX = 2048
_EPOCHS_MAX = 64
_REMEMBERED_MAX = 16
_PRODUCERS_MAX = 1024
_KEPT_MAX = 4096


class BatchScan:
    """Checks consecutive batches of a segment, and collects entries for the segment's indexes and for the leader
    epochs. There is an index entry for each batch that comes more than `index_interval_bytes` after the last entry.
    There is an entry for a leader epoch at the first batch with that epoch, if the epoch is newer than all epochs
    before it."""

    __slots__ = (
        "_base_offset",
        "_entries",
        "_epochs",
        "_interval",
        "_latest_epoch",
        "bytes_since_entry",
        "first_timestamp",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
    )

    def __init__(self, base_offset: int, index_interval_bytes: int, latest_epoch: int) -> None:
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._latest_epoch = latest_epoch
        self._entries: list[tuple[int, int, int, int]] = []
        self._epochs: list[tuple[int, int]] = []
        #: The last offset of the last good batch.
        self.last_offset = base_offset - 1
        #: The largest timestamp, and the last offset of the batch that has it.
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        #: The largest timestamp of the batch at position 0.
        self.first_timestamp = NO_TIMESTAMP
        self.bytes_since_entry = 0

    def feed(self, buffer: Buffer, start: int, end: int, position: int) -> int:
        """Checks the batches in buffer[start:end]; the first is at `position` in the file. Returns the number of bytes
        of good batches. It stops at the first batch that is incomplete, damaged or out of order. It also stops when
        `take_entries` or `take_epochs` must be called first."""
        if start < 0 or end > len(buffer):
            raise ValueError("the batches are not in the buffer")
        at = start
        while end - at >= HEADER_SIZE and len(self._entries) < _ENTRIES_MAX and len(self._epochs) < _EPOCHS_MAX:
            header = BatchHeader._make(HEADER.unpack_from(buffer, at))
            size = header.batch_length + LENGTH_OVERHEAD
            if header.magic != MAGIC_V2 or not HEADER_SIZE <= size <= end - at:
                break
            last_offset = header.last_offset
            if header.base_offset <= self.last_offset or header.last_offset_delta < 0 or last_offset > _INT64_MAX:
                break
            if (
                last_offset - self._base_offset > _RELATIVE_OFFSET_MAX
                or crc32c(buffer, at + ATTRIBUTES_OFFSET, at + size) != header.crc
            ):
                break
            self._note(position + at - start, size, header)
            at += size
        return at - start

    def _note(self, position: int, size: int, header: BatchHeader) -> None:
        last_offset = header.last_offset
        if header.partition_leader_epoch > self._latest_epoch:
            self._latest_epoch = header.partition_leader_epoch
            self._epochs.append((header.partition_leader_epoch, header.base_offset))
        timestamp = header.records_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if position == 0:
            self.first_timestamp = timestamp
        if self.bytes_since_entry > self._interval:
            self._entries.append((last_offset, position, self.max_timestamp, self.max_timestamp_offset))
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        self.last_offset = last_offset

    def take_entries(self) -> list[tuple[int, int, int, int]]:
        """Returns the index entries since the last call. Each has the last offset and position of a batch, the largest
        timestamp so far and the offset of that timestamp."""
        entries, self._entries = self._entries, []
        return entries

    def take_epochs(self) -> list[tuple[int, int]]:
        """Returns the leader epochs found since the last call, each with its first offset."""
        epochs, self._epochs = self._epochs, []
        return epochs


class ProducerScan:
    """Scans the batches of a file and collects the positions of those from which the state of producers can be
    rebuilt: the newest `remembered` batches of each producer, the first batch of each transaction, transaction
    markers, and the batches before a marker, against which the marker is checked."""

    __slots__ = ("_kept", "_newest", "_open", "_remembered", "ended")

    def __init__(self, remembered: int) -> None:
        if not 0 < remembered <= _REMEMBERED_MAX:
            raise ValueError("so many batches are not remembered")
        self._remembered = remembered
        self._kept: list[int] = []
        #: The positions of the newest batches by producer id, and the producers with an open transaction.
        self._newest: dict[int, list[int]] = {}
        self._open: set[int] = set()
        #: True if a batch at or after the end offset was reached.
        self.ended = False

    def feed(self, buffer: Buffer, start: int, end: int, position: int, end_offset: int) -> int:
        """Scans the batch headers in buffer[start:end]; the first is at `position` in the file. Returns the distance
        from `start` to the next header that was not scanned; it may be far beyond `end`. The scan stops at a header
        that is incomplete, is impossible or reaches `end_offset`, and when `take` must be called first."""
        if start < 0 or end > len(buffer):
            raise ValueError("the batches are not in the buffer")
        at = start
        while end - at >= HEADER_SIZE and len(self._kept) < _KEPT_MAX:
            header = BatchHeader._make(HEADER.unpack_from(buffer, at))
            size = header.batch_length + LENGTH_OVERHEAD
            if size < HEADER_SIZE:
                break
            if header.base_offset >= end_offset:
                self.ended = True
                break
            if header.producer_id >= 0:
                if header.producer_id not in self._newest and len(self._newest) == _PRODUCERS_MAX:
                    break
                self._note(position + at - start, header)
            at += size
        return at - start

    def _note(self, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id
        newest = self._newest.setdefault(producer_id, [])
        if header.is_control:
            self._kept.extend((*newest, position))
            newest.clear()
            self._open.discard(producer_id)
        elif header.is_transactional and producer_id not in self._open:
            self._kept.append(position)
            self._open.add(producer_id)
        else:
            newest.append(position)
            del newest[: -self._remembered]

    def take(self) -> list[int]:
        """Returns the positions of the batches collected since the last call, in ascending order."""
        taken = self._kept
        for newest in self._newest.values():
            taken.extend(newest)
        self._kept = []
        self._newest.clear()
        self._open.clear()
        return sorted(taken)
