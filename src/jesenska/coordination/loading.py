"""Selects the valid records from the batches of a partition of a coordinator's topic. This module does no input or
output.

  batch                       valid records
  ordinary                    all its records; if a key was written several times, only the newest record
  in a transaction            no records yet: the records (a group's offsets) wait for the end of the transaction
  marker "commit"             the waiting records of the producer, except keys that were written outside of the
                              transaction after the record
  marker "abort"              no records: the waiting records of the producer are dropped

Most keys are written again and again, so only the newest record of a key is returned. Records of a transaction that is
still open at the end are returned separately (`left_open`). They become valid when the transaction is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jesenska.coordination.shard import OfTransaction
from jesenska.records.decode import ControlType, control_marker
from jesenska.records.header import BatchHeader
from jesenska.records.record import Record

_Key = bytes | None


class Loading:
    """Selects the valid records of one partition of a coordinator's topic. `take` must be called with the batches in
    order; `settled` returns the records that have become valid."""

    def __init__(self) -> None:
        self._newest: dict[_Key, Record] = {}
        #: The records of open transactions, by producer id and key.
        self._open: dict[int, dict[_Key, Record]] = {}
        self._epochs: dict[int, int] = {}
        #: While a transaction is open: the offsets at which keys were written outside of transactions.
        self._committed_at: dict[_Key, int] = {}

    @property
    def open_transactions(self) -> int:
        return len(self._open)

    def take(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """Takes the next batch, with its decoded records. Raises InvalidRecordError for a control batch without a
        valid marker."""
        if header.is_control:
            for record in records:
                self._end(header.producer_id, control_marker(record).type)
        elif header.is_transactional:
            waiting = self._open.setdefault(header.producer_id, {})
            self._epochs[header.producer_id] = header.producer_epoch
            for record in records:
                waiting[record.key] = record
        else:
            for record in records:
                self._count(record)
                if self._open and record.value is not None:
                    self._committed_at[record.key] = record.offset

    def _end(self, producer_id: int, marker: ControlType) -> None:
        if marker is ControlType.UNKNOWN:
            return
        waiting = self._open.pop(producer_id, {})
        self._epochs.pop(producer_id, None)
        if marker is ControlType.COMMIT:
            for key, record in waiting.items():
                if record.offset > self._committed_at.get(key, -1):
                    self._count(record)
        if not self._open:
            self._committed_at.clear()

    def left_open(self) -> Iterator[tuple[Record, OfTransaction, bool]]:
        """Yields the records of open transactions, in the order in which they were written. The bool is True if the
        record becomes valid when its transaction is committed. The bool is False if the record's key was later written
        outside of the transaction."""
        found = [(record, producer_id) for producer_id, waiting in self._open.items() for record in waiting.values()]
        for record, producer_id in sorted(found, key=lambda item: item[0].offset):
            counts = record.offset > self._committed_at.get(record.key, -1)
            yield record, OfTransaction(producer_id, self._epochs[producer_id]), counts

    def _count(self, record: Record) -> None:
        # The record is removed and added again, so that the newest record is last: a group's record must be applied
        # before the later commits of the group.
        self._newest.pop(record.key, None)
        self._newest[record.key] = record

    def settled(self) -> list[Record]:
        """Returns the records that have become valid since the last call."""
        records = list(self._newest.values())
        self._newest.clear()
        return records
