"""Removes aborted records from a Fetch response, for a consumer with isolation.level=read_committed. The broker
returns all records up to the last stable offset, and a list of the aborted transactions in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jesenska.records.batch import iter_headers
from jesenska.records.header import BatchHeader
from jesenska.wire.messages.k01_fetch import FetchResponseAbortedTransaction


class CommittedBatches:
    """Finds the batches of aborted transactions, by the list of aborted transactions in a Fetch response."""

    def __init__(self, aborted: Iterable[FetchResponseAbortedTransaction]) -> None:
        self._aborted = sorted(((item.first_offset, item.producer_id) for item in aborted), reverse=True)
        self._open: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        """Returns false for a batch of an aborted transaction, otherwise true. It must be called with the batches in
        order."""
        while self._aborted and self._aborted[-1][0] <= header.last_offset:
            self._open.add(self._aborted.pop()[1])
        if header.producer_id not in self._open or not header.is_transactional:
            return True
        if header.is_control:
            # The marker ends this producer's transaction. Later batches of the producer belong to another transaction.
            self._open.discard(header.producer_id)
            return True
        return False


def without_aborted(data: memoryview, aborted: Sequence[FetchResponseAbortedTransaction]) -> memoryview:
    """Returns the batches in `data` without the batches of aborted transactions."""
    if not aborted:
        return data
    committed = CommittedBatches(aborted)
    kept = [
        data[position : position + header.size_bytes]
        for position, header in iter_headers(data)
        if committed.holds(header)
    ]
    return memoryview(b"".join(kept))
