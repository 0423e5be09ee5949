"""Decides which batches of transactions a compaction keeps, batch by batch in the log's order. It does no input or
output.

    records of an aborted transaction    are removed, and never count as the newest of their keys
    records of a committed transaction   are treated like records outside of transactions
    an abort or commit marker            is kept if a batch of its transaction was found in this pass. Otherwise it is
                                         removed after `delete.retention.ms`: readers in the middle of the
                                         transaction must find it
    an aborted transaction's entry in    is removed with the last batch of the transaction
      the transaction index

The compacted part ends below the last stable offset. So each transaction in it has ended, though its marker may be
after that part."""

from __future__ import annotations

from collections.abc import Iterable

from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.records.header import BatchHeader


class CleanedTransactions:
    """The transactions that one pass over a log meets. `aborted` has the aborted transactions that may have records in
    the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: Aborted transactions that the pass has not reached yet, in descending order, so that the last element is the
        #: transaction that the pass reaches next.
        self._later = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        #: `_begun` has the aborted transactions that the pass has reached, by producer id. `_met` has the producers of
        #: which this pass has seen a batch of an aborted transaction.
        self._begun: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        #: Producers of which this pass has seen a batch of a transaction that was not aborted.
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns true for a data batch whose transaction was aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._begun:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, marker: ControlMarker | None) -> tuple[bool, AbortedTransaction | None]:
        """Handles a control batch and its marker. `marker` is None if compaction has removed the batch's record.
        Returns two values. The first is True if the batch may be removed. The second is the entry of its transaction
        that stays in the transaction index, or None if no entry stays."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if marker is None:
            return True, None
        if marker.type is ControlType.ABORT:
            transaction = self._begun.pop(producer_id, None)
            if producer_id in self._met:
                self._met.discard(producer_id)
                return False, transaction
            return True, None
        if marker.type is ControlType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        while self._later and self._later[-1].first_offset <= offset:
            transaction = self._later.pop()
            self._begun.setdefault(transaction.producer_id, transaction)
