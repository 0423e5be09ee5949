"""The state of the producers that write to a partition. It recognises a batch that was sent twice, a gap in the
sequence numbers, a producer that was replaced (its epoch increased), and open transactions. The functions do no input
or output and read no clock.

Each snapshot is a file, `<offset, 20 digits>.snapshot`: the state after every batch below that offset.

    offset  bytes  field
         0      2  version = 1
         2      4  CRC32C of everything that follows
         6      4  number of entries
        10     46  per producer:
                     8  producer_id
                     2  producer_epoch
                     4  last_sequence          -1 for a producer that only wrote a transaction marker
                     8  last_offset
                     4  offset_delta           last offset less first offset of the last batch
                     8  timestamp              largest of the last batch
                     4  coordinator_epoch      of the last transaction marker; -1 if none
                     8  current_txn_first_offset   -1 if none is open

Snapshots are taken when a segment is rolled and at a clean shutdown. After a crash the state is the newest readable
snapshot that is not above the log's end, updated with the headers of all batches after it. A damaged or incomplete
snapshot is ignored; an older snapshot and more batches are then read.

A snapshot has only the last batch of each producer; the state in memory has the last five. So after a snapshot was
loaded, a repeat of an older batch counts as out of order and not as a duplicate, as in Kafka.

The rules for a batch from a client, in this order:

    its sequence range is one of the last five    duplicate: the result has the earlier offsets
      batches of the same epoch
    its epoch is older than the known epoch       INVALID_PRODUCER_EPOCH
    its epoch is newer                            sequence must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
    the producer is not known (expired, or its    any sequence is accepted
      records deleted)
    same epoch                                    sequence follows the last, else OUT_OF_ORDER_SEQUENCE_NUMBER
    it is in no transaction, but the producer     INVALID_TXN_STATE
      has an open transaction

Kafka expires a producer by its records' timestamps. Here the time of the append counts if it is later. So a producer
that writes records with old timestamps is still protected against duplicates. The file format is the same.

Aborted transactions are also kept in the log's transaction index (transaction_index).

Verification (KIP-890): before the first batch of a transaction the leader asks the coordinator if the partition is in
the transaction. If a transaction marker arrives meanwhile, the coordinator's response is not used
(`begin_verification`, `is_verified`). A verification lasts until a batch of a transaction is written, even if the
coordinator refuses: the refused batch is sent again, and a batch that was sent after it must not be written before it.
As in Kafka, three more rules apply until then:

    before the coordinator is asked: its epoch    INVALID_PRODUCER_EPOCH
      is older than the known epoch
    its sequence is above the lowest sequence     OUT_OF_ORDER_SEQUENCE_NUMBER
      that has arrived since, in the newest epoch
    no batch of the producer is known, and its    sequence must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
      first request since leaves it to the leader
      to add the partition"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from jesenska.base.limits import PRODUCERS_PER_PARTITION_MAX
from jesenska.records.codec import crc32c
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader

BATCHES_REMEMBERED = 5
_SEQUENCES = 1 << 31
_HEADER = Struct(">hII")
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1
_CRC_END = 6
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """The state of one producer. The value is immutable, so that the earlier value can be restored after a failed
    append."""

    producer_id: int
    producer_epoch: int
    #: The last batches of the producer, at most five, the newest last.
    batches: tuple[RememberedBatch, ...]
    coordinator_epoch: int
    #: The largest timestamp of the last batch, as in the snapshot.
    last_timestamp: int
    #: The first offset of the open transaction; -1 if no transaction is open.
    current_txn_first_offset: int
    #: The time at which this broker last received a batch of the producer. The producer expires
    #: `producer.id.expiration.ms` after this time.
    last_seen_ms: int

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    #: The offset of the transaction marker.
    last_offset: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, as an entry of the transaction index."""

    producer_id: int
    first_offset: int
    #: The offset of the transaction marker.
    last_offset: int
    #: The last stable offset after the marker is committed: the first offset of the oldest transaction that is still
    #: open then. If no transaction is open, the offset after the marker.
    last_stable_offset: int


class Verification:
    """The verification of a producer's transaction whose first batch is not written yet."""

    __slots__ = ("begun_ms", "is_for_new_clients", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, sequence: int, begun_ms: int, is_for_new_clients: bool) -> None:
        #: The newest producer epoch that has arrived, and the lowest sequence number that has arrived with it.
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms
        #: True if the request that began the verification expects the leader to add the partition to the transaction.
        self.is_for_new_clients = is_for_new_clients


#: A change of the state that can be undone: the producer id, and the producer's entry before the change (None if there
#: was no entry).
Undo = tuple[int, ProducerEntry | None]


class ProducerState:
    """The state of all producers of one partition."""

    __slots__ = ("_completed", "_ongoing", "_producers", "_verifications", "expiration_ms", "max_producers")

    def __init__(self, expiration_ms: int = 86_400_000, max_producers: int = PRODUCERS_PER_PARTITION_MAX) -> None:
        #: The value of `producer.id.expiration.ms`.
        self.expiration_ms = expiration_ms
        self.max_producers = max_producers
        #: The producers in the order of their last batches, so that the first producer is the next to be removed.
        self._producers: dict[int, ProducerEntry] = {}
        #: The producer id of each open transaction, by first offset. Offsets only increase, so the first key is the
        #: smallest.
        self._ongoing: dict[int, int] = {}
        #: Transactions that have ended, but whose marker is not below the high watermark yet.
        self._completed: list[CompletedTransaction] = []
        #: The verifications by producer id, the oldest first.
        self._verifications: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        return list(self._producers.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """An upper bound of the last stable offset: the first offset of the oldest transaction that is open, or whose
        marker is not below the high watermark. None if there is no such transaction."""
        if not self._completed and not self._ongoing:
            return None
        candidates = [transaction.first_offset for transaction in self._completed]
        candidates.extend(next(iter(self._ongoing.items()), ())[:1])
        return min(candidates, default=None)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Records the new high watermark. Transactions with a marker below it no longer limit the last stable
        offset."""
        if self._completed:
            self._completed = [
                transaction for transaction in self._completed if transaction.last_offset >= high_watermark
            ]

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Checks a batch from a client before it is appended. Returns the earlier batch if the batch repeats it, or
        None if the batch may be appended. Otherwise raises one of the errors in the table at the top of this file. A
        follower does not check: it appends everything that the leader has appended."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            if self._verifications:
                self._check_verification(header, has_batches=False)
            return None
        epoch = header.producer_epoch
        if epoch == entry.producer_epoch:
            first = header.base_sequence
            batches = entry.batches
            if batches:
                last = batches[-1].last_sequence
                if first != last + 1 and not (first == 0 and last == _SEQUENCES - 1):
                    wanted_last = header.last_sequence
                    for batch in batches:
                        if batch.first_sequence == first and batch.last_sequence == wanted_last:
                            return batch
                    raise OutOfOrderSequenceNumberError(
                        f"Producer {header.producer_id} sent sequence {first} after {last} (epoch {epoch}): batches "
                        f"were lost or reordered."
                    )
            elif first != 0:
                raise OutOfOrderSequenceNumberError(
                    f"Producer {header.producer_id} begins epoch {epoch} with sequence {first} and not with 0."
                )
        elif epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"Producer {header.producer_id} has epoch {epoch}, but {entry.producer_epoch} was seen: a newer "
                f"instance replaced it."
            )
        elif header.base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceNumberError(
                f"Producer {header.producer_id} begins epoch {epoch} with sequence {header.base_sequence} and not "
                f"with 0."
            )
        if entry.current_txn_first_offset != NO_OFFSET and not header.is_transactional:
            raise InvalidTxnStateError(
                f"Producer {header.producer_id} has an open transaction and wrote outside of it."
            )
        if self._verifications:
            self._check_verification(header, has_batches=bool(entry.batches))
        return None

    def _check_verification(self, header: BatchHeader, *, has_batches: bool) -> None:
        """Raises OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch of the producer, which must be written before this
        batch, was refused."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return
        sequence = header.base_sequence
        if sequence != 0 and verification.is_for_new_clients and not has_batches:
            raise OutOfOrderSequenceNumberError(
                f"Producer {header.producer_id} begins with sequence {sequence} and not with 0, but no earlier "
                "batch of this producer is known."
            )
        if sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceNumberError(
                f"Producer {header.producer_id} sent sequence {sequence}, but {verification.lowest_sequence} came "
                f"before it and is not written."
            )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH if the epoch is older than the known epoch of the producer. It is the only
        check of a batch that a coordinator writes in a producer's transaction, because such a batch has no sequence
        numbers."""
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"Producer {producer_id} has epoch {producer_epoch}, but {entry.producer_epoch} was seen: a newer "
                f"instance replaced it."
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns true if the producer has an open transaction with this epoch in the partition."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset != NO_OFFSET and entry.producer_epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, is_for_new_clients: bool
    ) -> Verification:
        """Begins the verification of a transaction's first batch, before the leader asks the coordinator if the
        partition is in the transaction. The caller passes the returned object to `is_verified` after the coordinator's
        response. `sequence` is the sequence number of the batch, -1 if a coordinator writes the batch. With
        `is_for_new_clients` the coordinator is asked to add the partition."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            if len(self._verifications) >= self.max_producers:
                del self._verifications[next(iter(self._verifications))]
            verification = self._verifications[producer_id] = Verification(
                producer_epoch, sequence, now_ms, is_for_new_clients
            )
        elif producer_epoch > verification.producer_epoch:
            verification.producer_epoch, verification.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == verification.producer_epoch and sequence < verification.lowest_sequence:
            verification.lowest_sequence = sequence
        return verification

    def is_verified(self, producer_id: int, producer_epoch: int, verification: Verification | None) -> bool:
        """Returns true if a batch of the producer's transaction may be written: the transaction is open here, or no
        transaction of the producer has ended here since `verification` began."""
        if verification is not None and self._verifications.get(producer_id) is verification:
            return True
        return self.has_open_transaction(producer_id, producer_epoch)

    def apply(self, header: BatchHeader, base_offset: int, max_timestamp: int, now_ms: int) -> Undo:
        """Records a batch that is about to be appended, or is read from the log at a start, with its base offset.
        Returns the value with which `undo` undoes the change."""
        producer_id = header.producer_id
        previous = self._producers.pop(producer_id, None)
        delta = header.last_offset_delta
        batch = RememberedBatch(header.base_sequence, header.last_sequence, base_offset + delta, delta, max_timestamp)
        seen_ms = max_timestamp if max_timestamp > now_ms else now_ms
        transactional = header.attributes & TRANSACTIONAL_BIT
        if previous is None:
            txn_first, coordinator_epoch = NO_OFFSET, -1
            batches: tuple[RememberedBatch, ...] = (batch,)
            if len(self._producers) >= self.max_producers:
                self._forget_oldest()
        else:
            txn_first, coordinator_epoch = previous.current_txn_first_offset, previous.coordinator_epoch
            batches = (
                (*previous.batches[1 - BATCHES_REMEMBERED :], batch)
                if previous.producer_epoch == header.producer_epoch
                else (batch,)
            )
        if transactional and self._verifications:
            self._verifications.pop(producer_id, None)
        if transactional and txn_first == NO_OFFSET:
            txn_first = base_offset
            self._ongoing[base_offset] = producer_id
        self._producers[producer_id] = ProducerEntry(
            producer_id, header.producer_epoch, batches, coordinator_epoch, max_timestamp, txn_first, seen_ms
        )
        return producer_id, previous

    def apply_marker(
        self, header: BatchHeader, base_offset: int, marker: ControlMarker, now_ms: int
    ) -> tuple[Undo, AbortedTransaction | None]:
        """Ends the producer's transaction. `header` is the header of the control batch, `base_offset` the batch's
        offset, `marker` its content. Returns the value with which `undo` undoes the change, and the aborted
        transaction, or None if the marker commits. Raises TRANSACTION_COORDINATOR_FENCED for a marker of an older
        coordinator epoch, INVALID_PRODUCER_EPOCH for a marker of an older producer epoch."""
        producer_id, coordinator_epoch = header.producer_id, marker.coordinator_epoch
        aborted: AbortedTransaction | None = None
        previous = self._producers.get(producer_id)
        if coordinator_epoch < NO_COORDINATOR_EPOCH:
            raise TransactionCoordinatorFencedError(
                f"A transaction marker of producer {producer_id} names coordinator epoch {coordinator_epoch}."
            )
        if previous is not None:
            if header.producer_epoch < previous.producer_epoch:
                raise InvalidProducerEpochError(
                    f"A transaction marker of producer {producer_id} has epoch {header.producer_epoch}, but "
                    f"{previous.producer_epoch} was seen."
                )
            if coordinator_epoch < previous.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"A transaction marker of producer {producer_id} comes from coordinator epoch {coordinator_epoch}, "
                    f"but {previous.coordinator_epoch} was seen."
                )
            del self._producers[producer_id]
        self._verifications.pop(producer_id, None)
        if previous is not None and previous.current_txn_first_offset != NO_OFFSET:
            self._ongoing.pop(previous.current_txn_first_offset, None)
            self._completed.append(CompletedTransaction(producer_id, previous.current_txn_first_offset, base_offset))
            if marker.type is ControlType.ABORT:
                stable = next(iter(self._ongoing), base_offset + 1)
                aborted = AbortedTransaction(producer_id, previous.current_txn_first_offset, base_offset, stable)
        same_epoch = previous is not None and previous.producer_epoch == header.producer_epoch
        self._producers[producer_id] = ProducerEntry(
            producer_id,
            header.producer_epoch,
            previous.batches if previous is not None and same_epoch else (),
            coordinator_epoch,
            header.max_timestamp,
            NO_OFFSET,
            max(header.max_timestamp, now_ms),
        )
        return (producer_id, previous), aborted

    def undo(self, changes: list[Undo]) -> None:
        """Undoes changes of `apply` and `apply_marker`. They are given in the order in which they were made."""
        for producer_id, previous in reversed(changes):
            current = self._producers.pop(producer_id, None)
            if current is not None and current.current_txn_first_offset != NO_OFFSET:
                self._ongoing.pop(current.current_txn_first_offset, None)
            if previous is not None:
                self._producers[producer_id] = previous
                first_offset = previous.current_txn_first_offset
                if first_offset != NO_OFFSET:
                    self._completed = [done for done in self._completed if done.first_offset != first_offset]
                    self._ongoing[first_offset] = producer_id
                    self._ongoing = dict(sorted(self._ongoing.items()))

    def expire(self, now_ms: int) -> int:
        """Removes the producers that have written nothing for `expiration_ms` and have no open transaction, and
        returns their number. Verifications older than `expiration_ms` are also removed."""
        gone = [
            entry.producer_id
            for entry in self._producers.values()
            if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_seen_ms >= self.expiration_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        for producer_id in [
            number
            for number, verification in self._verifications.items()
            if now_ms - verification.begun_ms >= self.expiration_ms
        ]:
            del self._verifications[producer_id]
        return len(gone)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._verifications.clear()

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Replaces the state of all producers by the entries of a snapshot."""
        self.clear()
        for entry in entries:
            self._producers[entry.producer_id] = entry
        opened = [(entry.current_txn_first_offset, entry.producer_id) for entry in self._producers.values()]
        self._ongoing = {first: producer_id for first, producer_id in sorted(opened) if first != NO_OFFSET}

    def _forget_oldest(self) -> None:
        """Removes the oldest producers to make room for new ones. A hundredth of all producers is removed at once: the
        search for the oldest producer is slow, because it passes the empty slots of producers that were removed
        earlier."""
        wanted = max(1, self.max_producers // 100)
        oldest: list[int] = []
        for producer_id, entry in self._producers.items():
            if entry.current_txn_first_offset == NO_OFFSET:
                oldest.append(producer_id)
                if len(oldest) == wanted:
                    break
        for producer_id in oldest:
            del self._producers[producer_id]


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the content of a .snapshot file with these entries."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                NO_SEQUENCE if last is None else last.last_sequence,
                NO_OFFSET if last is None else last.last_offset,
                0 if last is None else last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    body = len(rows).to_bytes(4, "big") + b"".join(rows)
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes, now_ms: int) -> list[ProducerEntry]:
    """Returns the entries of a .snapshot file. Raises CorruptMessageError if the file is incomplete, has another
    version, or its CRC is wrong. The time at which a producer was last seen is `now_ms`, or the timestamp of its last
    batch if that is later."""
    try:
        version, crc, count = _HEADER.unpack_from(data)
    except StructError as error:
        raise CorruptMessageError("the snapshot is shorter than its header") from error
    if version != _VERSION:
        raise CorruptMessageError(f"the snapshot has version {version}, only 1 is known")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptMessageError("the snapshot's CRC does not fit its bytes")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptMessageError(f"the snapshot announces {count} producers and has {len(data)} bytes")
    entries = []
    for (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp,
        coordinator_epoch,
        txn_first,
    ) in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        batches: tuple[RememberedBatch, ...] = ()
        if last_offset >= 0:
            first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) % _SEQUENCES
            batches = (RememberedBatch(first_sequence, last_sequence, last_offset, delta, timestamp),)
        entries.append(
            ProducerEntry(producer_id, epoch, batches, coordinator_epoch, timestamp, txn_first, max(timestamp, now_ms))
        )
    return entries
