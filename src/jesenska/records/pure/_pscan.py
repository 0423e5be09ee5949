"""Going over the batches of a file, in Python: the twin of `_scan.pxi`. What decides whether a batch is whole is drawn
in header.py; who goes over files is the log room's recovery."""

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
    """Checks batches that follow one another, and gathers what a segment's indexes and the leader epochs want to know
    of them: an index entry for each batch that comes after more than `index_interval_bytes` since the last entry, an
    epoch where it is newer than all before."""

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
        #: Last offset of the last good batch.
        self.last_offset = base_offset - 1
        #: Largest timestamp, and the last offset of the batch that has it.
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        #: Largest timestamp of the batch at position 0.
        self.first_timestamp = NO_TIMESTAMP
        self.bytes_since_entry = 0

    def feed(self, buffer: Buffer, start: int, end: int, position: int) -> int:
        """Goes over the batches in buffer[start:end], of which the first stands at `position` in the file. Gives how
        many bytes of good batches there were: it stops at the first that is not whole there, that is damaged or does
        not follow, and when entries or epochs should be taken away first."""
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
        """The index entries since the last call: last offset and position of a batch, largest timestamp so far and its
        offset."""
        entries, self._entries = self._entries, []
        return entries

    def take_epochs(self) -> list[tuple[int, int]]:
        """The leader epochs since the last call, each with its first offset."""
        epochs, self._epochs = self._epochs, []
        return epochs


class ProducerScan:
    """Goes over the batches of a file and keeps where those stand that a producers' state must be told of: of each
    producer the newest `remembered`, the first of each transaction, markers, and what stood before a marker, since it
    is judged by that."""

    __slots__ = ("_kept", "_newest", "_open", "_remembered", "ended")

    def __init__(self, remembered: int) -> None:
        if not 0 < remembered <= _REMEMBERED_MAX:
            raise ValueError("so many batches are not remembered")
        self._remembered = remembered
        self._kept: list[int] = []
        #: Positions by producer, and the producers with an open transaction.
        self._newest: dict[int, list[int]] = {}
        self._open: set[int] = set()
        #: A batch from the end offset on was met.
        self.ended = False

    def feed(self, buffer: Buffer, start: int, end: int, position: int, end_offset: int) -> int:
        """Goes over the headers in buffer[start:end], of which the first stands at `position` in the file. Gives how
        far the next header is from `start` (which may be far beyond `end`) that is not whole there, has no sense or
        comes with the end offset; it stops as well when positions should be taken away first."""
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
        """The positions since the last call, ascending."""
        taken = self._kept
        for newest in self._newest.values():
            taken.extend(newest)
        self._kept = []
        self._newest.clear()
        self._open.clear()
        return sorted(taken)
