"""Records the responses that the clients of transactions get in a simulation, and checks invariants that must be true
under any fault. A reader is a read_committed consumer.

decided first     a reader gets no record of a transaction whose commit was not requested
whole or not      a reader gets all acknowledged records of a transaction, or no record of it
committed         a reader gets all records of a transaction whose commit was acknowledged
aborted           a reader gets no record of a transaction whose abort was acknowledged, or whose commit was refused
one producer      no two programs get the same producer id and epoch
let in            if leaders add partitions to a producer's transaction, its writes are not refused as outside of a
                  transaction. Exceptions: the transaction may have timed out, or another program uses the
                  transactional id
fenced            a producer's request fails if the producer's successor was known when the request was sent
offsets           a group's offset in a transaction is not reported before the commit is requested; at the end the
                  group has the newest offset of a committed transaction
once              each input record has at most one result record, and it has a result record if the group's committed
                  offset is above the input record

A transaction may have been committed or aborted if its producer was killed or got no response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.simulation.watches.history import RecordPlace, ViolationError

NO_OFFSET = -1


class ProducerName(NamedTuple):
    """A producer as its transaction coordinator names it: its id and epoch."""

    producer_id: int
    epoch: int


class KnownTransaction:
    """A transaction, with all facts that its producer knows about it."""

    __slots__ = ("commits", "is_refused", "is_seen", "name", "offset", "outcome", "places", "skipped")

    def __init__(self, name: str) -> None:
        self.name = name
        #: The partitions and offsets of the transaction's acknowledged records.
        self.places: list[RecordPlace] = []
        #: True if the producer has requested the commit.
        self.commits = False
        #: The result in the coordinator's response: True for a commit, False for an abort. None if no response has
        #: arrived.
        self.outcome: bool | None = None
        #: True if no broker has accepted a commit of the transaction, and no broker can accept it any more.
        self.is_refused = False
        #: True if a read_committed consumer has got a record of the transaction.
        self.is_seen = False
        #: A record of the transaction that a read_committed consumer has skipped; None if no record was skipped.
        self.skipped: RecordPlace | None = None
        #: The offset that the transaction commits for a group.
        self.offset = NO_OFFSET

    def __str__(self) -> str:
        return f"the transaction {self.name}"

    @property
    def is_aborted(self) -> bool:
        return self.outcome is False or self.is_refused


class TransactionHistory:
    """The responses that clients of transactions have got so far. Every method raises ViolationError if an invariant
    is violated."""

    def __init__(self) -> None:
        self.transactions: list[KnownTransaction] = []
        #: The transaction of each record that was sent.
        self._of: dict[bytes, KnownTransaction] = {}
        self._at: dict[RecordPlace, KnownTransaction] = {}
        #: The newest known producer of each transactional id.
        self._newest: dict[str, ProducerName] = {}
        self._programs: dict[ProducerName, str] = {}
        #: The program that last requested to be the producer of each transactional id.
        self._askers: dict[str, str] = {}
        #: True if clocks were set, so that transactions may time out too early.
        self.clocks_were_set = False
        #: The records that read_committed consumers have got.
        self.committed: dict[RecordPlace, bytes] = {}
        #: For each group, the transactions that commit offsets of the group, in the order of the offsets.
        self._groups: dict[str, list[KnownTransaction]] = {}

    # --- producers ---------------------------------------------------------------------------------------------------

    def begins(self, transactional_id: str, program: str) -> None:
        """Records that a program requests to be the producer of a transactional id."""
        self._askers[transactional_id] = program

    def kept_out(self, transactional_id: str, program: str, what: str, seconds_left: float) -> None:
        """Checks a write that was refused because it is not part of a transaction. The program relies on leaders to
        add partitions to its transaction. The transaction cannot time out before `seconds_left` seconds have passed.
        Raises ViolationError if `seconds_left` is positive, clocks are right, and no other program uses the
        transactional id."""
        if self._askers[transactional_id] == program and seconds_left > 0 and not self.clocks_were_set:
            raise ViolationError(
                f"{what} of {program} is refused as part of no transaction, and nobody has ended that of "
                f"{transactional_id}"
            )

    def begun(self, transactional_id: str, program: str, producer: ProducerName) -> None:
        """Records the producer id and epoch that a program got."""
        other = self._programs.setdefault(producer, program)
        if other != program:
            raise ViolationError(
                f"{program} and {other} are both told that they are producer {producer.producer_id} in epoch "
                f"{producer.epoch}"
            )
        newest = self._newest.get(transactional_id)
        if newest is None or producer.producer_id != newest.producer_id or producer.epoch > newest.epoch:
            self._newest[transactional_id] = producer

    def successor_of(self, transactional_id: str, producer: ProducerName) -> ProducerName | None:
        """Returns the known successor of a producer, or None if it has no known successor. Call it when a request is
        sent, and pass the result to `accepted`."""
        newest = self._newest.get(transactional_id)
        if newest is None or (producer.producer_id == newest.producer_id and producer.epoch >= newest.epoch):
            return None
        return newest

    def accepted(self, producer: ProducerName, successor: ProducerName | None, what: str) -> None:
        """Checks that a producer's request, which was accepted, could be accepted. `successor` is the result of
        `successor_of` when the request was sent."""
        if successor is not None:
            raise ViolationError(
                f"{what} of producer {producer.producer_id} in epoch {producer.epoch} is accepted, and epoch "
                f"{successor.epoch} was told before"
            )

    def open(self, name: str) -> KnownTransaction:
        transaction = KnownTransaction(name)
        self.transactions.append(transaction)
        return transaction

    def sends(self, transaction: KnownTransaction, value: bytes) -> None:
        """Records that a record of the transaction is about to be sent."""
        self._of[value] = transaction

    def acknowledged(self, transaction: KnownTransaction, partition: TopicPartition, offset: int) -> None:
        place = RecordPlace(partition, offset)
        transaction.places.append(place)
        self._at[place] = transaction

    def ended(self, transaction: KnownTransaction, commits: bool) -> None:
        """Records the coordinator's response that the transaction was committed or aborted."""
        transaction.outcome = commits
        self._judge(transaction)

    def refused(self, transaction: KnownTransaction) -> None:
        """Records that the commit of a transaction was refused, and that no broker can accept it any more."""
        transaction.is_refused = True
        self._judge(transaction)

    def _judge(self, transaction: KnownTransaction) -> None:
        if transaction.is_seen and transaction.is_aborted:
            raise ViolationError(f"{transaction} is aborted, and a reader of committed records has had a record of it")
        if transaction.skipped is not None:
            place = transaction.skipped
            if transaction.outcome:
                raise ViolationError(
                    f"{transaction} is committed, and its record at offset {place.offset} of {place.partition} is "
                    f"not given to a reader"
                )
            if transaction.is_seen:
                raise ViolationError(
                    f"{transaction} is read, and its record at offset {place.offset} of {place.partition} is not "
                    f"given to a reader"
                )

    # --- readers -----------------------------------------------------------------------------------------------------

    def received(self, reader: str, partition: TopicPartition, expected: int, offset: int, value: bytes) -> None:
        """Records that a read_committed consumer got a record. The consumer has already got all records below
        `expected`."""
        if offset < expected:
            raise ViolationError(f"{reader} reads offset {offset} of {partition} after it has had all below {expected}")
        self.passed(partition, expected, offset)
        transaction = self._of.get(value)
        if transaction is None:
            raise ViolationError(
                f"{reader} reads {value[:40]!r} at offset {offset} of {partition}, which nobody has sent"
            )
        if not transaction.commits:
            raise ViolationError(
                f"{reader} reads offset {offset} of {partition}: {transaction} is not to be committed so far"
            )
        self.committed[RecordPlace(partition, offset)] = value
        transaction.is_seen = True
        self._judge(transaction)

    def passed(self, partition: TopicPartition, expected: int, offset: int) -> None:
        """Records that a read_committed consumer continued at `offset` after `expected`, without records between these
        offsets."""
        for at in range(expected, offset):
            place = RecordPlace(partition, at)
            transaction = self._at.get(place)
            if transaction is not None:
                transaction.skipped = place
                self._judge(transaction)

    # --- offsets of groups -------------------------------------------------------------------------------------------

    def sends_offset(self, group: str, transaction: KnownTransaction, offset: int) -> None:
        """Records that a producer is about to commit an offset of a group in a transaction. The offset must be larger
        than the group's earlier offsets. The producer must wait for the response to TxnOffsetCommit before it requests
        the commit of the transaction."""
        transaction.offset = offset
        self._groups.setdefault(group, []).append(transaction)

    def offset_answered(self, group: str, offset: int, *, is_stable: bool) -> None:
        """Checks a committed offset of a group that a client has fetched. `is_stable` is True if no transaction that
        is still open would change this offset."""
        for transaction in self._groups.get(group, ()):
            if transaction.offset == offset and (transaction.is_aborted or not transaction.commits):
                raise ViolationError(f"group {group} is told offset {offset}, and {transaction} is not committed")
            if is_stable and transaction.offset > offset and transaction.outcome:
                raise ViolationError(
                    f"group {group} is told offset {offset}, and {transaction} was committed with offset "
                    f"{transaction.offset}"
                )

    # --- the end -----------------------------------------------------------------------------------------------------

    def judge_all(self) -> None:
        """Checks all transactions at the end. Call this after a read_committed consumer has read every partition
        completely. Raises ViolationError if a committed transaction is missing, or if only a part of a transaction was
        read."""
        for transaction in self.transactions:
            there = [place for place in transaction.places if place in self.committed]
            if there and len(there) < len(transaction.places):
                lost = next(place for place in transaction.places if place not in self.committed)
                raise ViolationError(
                    f"{transaction} is read, and not its record at offset {lost.offset} of {lost.partition}"
                )
            if transaction.outcome and transaction.places and not there:
                place = transaction.places[0]
                raise ViolationError(
                    f"{transaction} is committed, and its record at offset {place.offset} of {place.partition} is lost"
                )

    def judge_offset(self, group: str, offset: int) -> None:
        """Checks at the end that the group has the newest offset of a committed transaction. Call it after
        `judge_all`."""
        self.offset_answered(group, offset, is_stable=True)
        for transaction in self._groups.get(group, ()):
            if not transaction.places:
                continue
            if transaction.offset > offset and transaction.is_seen:
                raise ViolationError(
                    f"{transaction} is committed, and group {group} has offset {offset} and not {transaction.offset} "
                    f"of it"
                )
            if transaction.offset == offset and not transaction.is_seen:
                raise ViolationError(
                    f"group {group} has offset {offset} of {transaction}, whose records are not committed"
                )

    @property
    def groups(self) -> Iterable[str]:
        return tuple(self._groups)


def judge_results(
    inputs: Iterable[RecordPlace], results: Iterable[RecordPlace], offsets: Mapping[TopicPartition, int]
) -> None:
    """Checks that each committed input record below the group's committed offset has one result, and that there are no
    other results. `inputs` are the committed input records. `results` contains, for each record in the topic of
    results, its input record. `offsets` are the group's committed offsets."""
    made: set[RecordPlace] = set()
    known = set(inputs)
    for place in results:
        if place in made:
            raise ViolationError(f"offset {place.offset} of {place.partition} is worked on twice")
        if place not in known:
            raise ViolationError(f"offset {place.offset} of {place.partition} is worked on, and is no committed record")
        if place.offset >= offsets.get(place.partition, 0):
            raise ViolationError(
                f"offset {place.offset} of {place.partition} is worked on, and the group has offset "
                f"{offsets.get(place.partition, 0)}"
            )
        made.add(place)
    for place in sorted(known - made):
        if place.offset < offsets.get(place.partition, 0):
            raise ViolationError(
                f"offset {place.offset} of {place.partition} is not worked on, and the group has offset "
                f"{offsets[place.partition]}"
            )
