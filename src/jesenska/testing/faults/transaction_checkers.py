"""Checkers of transactions in a history. Each checker is a pure function that returns findings. The kinds of findings:

    aborted record read  a record was read whose transaction was aborted, or whose commit was never requested
    torn transaction     only a part of the records of a committed transaction could be read
    lost transaction     a commit was acknowledged, and no record of the transaction is in the last full reads

The assumptions of the module `checkers` apply. In addition, all consumers must use read_committed, and each record of
a transaction must have its own value. The last full read of a partition must begin when no transaction is open any
more.

A last stable offset is the first offset of an open transaction, or the log's end. So it is never the offset of a
transaction's second or later record in the partition. It may be between two records of a committed transaction, if
another transaction began between them and is still open: Kafka then shows only the first part. The records of a
transaction become visible in one partition after the other, as its markers are written. So only the last full reads
tell if a transaction is complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jesenska.testing.faults.findings import Finding, Key, first_of, more_of, place_of
from jesenska.testing.faults.full_reads import last_full_reads
from jesenska.testing.faults.history import (
    EndAcknowledged,
    EndBegan,
    FullReadEnded,
    Operation,
    Polled,
    SendBegan,
    StableEnd,
    TransactionalBegan,
)

ABORTED = "aborted record read"
TORN = "torn transaction"
LOST_TRANSACTION = "lost transaction"

#: A topic and a record's value.
_Value = tuple[str, str]


class _Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Transaction:
    """A transaction whose commit or abort was requested. `acknowledged_ns` is 0 if there was no response."""

    client: str
    number: int
    records: tuple[tuple[str, int, str | None], ...]
    outcome: _Outcome
    acknowledged_ns: int = 0

    @property
    def name(self) -> str:
        return f"transaction {self.number} of {self.client}"

    def by_partition(self) -> dict[Key, list[str]]:
        found: dict[Key, list[str]] = defaultdict(list)
        for topic, partition, value in self.records:
            if value is not None:
                found[topic, partition].append(value)
        return found


def _transactions(history: Iterable[Operation]) -> list[_Transaction]:
    """Returns each transaction for which a commit or an abort was requested. If first a commit and then an abort was
    requested, the transaction counts as aborted when the abort has been acknowledged."""
    found: list[_Transaction] = []
    asked: dict[tuple[str, int], _Transaction] = {}
    by_records: dict[tuple[str, tuple[tuple[str, int, str | None], ...]], _Transaction] = {}
    for operation in history:
        if isinstance(operation, EndBegan):
            who = operation.client, operation.records
            known = by_records.get(who)
            if known is None:
                outcome = _Outcome.UNKNOWN if operation.commits else _Outcome.ABORTED
                known = by_records[who] = _Transaction(operation.client, operation.number, operation.records, outcome)
                found.append(known)
            elif operation.commits:
                known.outcome = _Outcome.UNKNOWN
            asked[operation.client, operation.number] = known
        elif isinstance(operation, EndAcknowledged):
            ended = asked.get((operation.client, operation.number))
            if ended is not None:
                ended.outcome = _Outcome.COMMITTED if operation.commits else _Outcome.ABORTED
                ended.acknowledged_ns = operation.time_ns
    return found


def aborted_reads(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each value that was read although its transaction was aborted, or although its commit was
    never requested."""
    clients = {operation.client for operation in history if isinstance(operation, TransactionalBegan)}
    #: The values that must not be read, each with the reason.
    refused: dict[_Value, str] = {}
    for operation in history:
        if isinstance(operation, SendBegan) and operation.client in clients and operation.value is not None:
            refused[operation.topic, operation.value] = "whose transaction was never asked to be committed"
    for transaction in _transactions(history):
        for topic, _, value in transaction.records:
            if value is None:
                continue
            if transaction.outcome is _Outcome.ABORTED:
                refused[topic, value] = f"of {transaction.name}, which was aborted"
            else:
                refused.pop((topic, value), None)
    found = []
    for poll in history:
        if not isinstance(poll, Polled):
            continue
        for offset, value in poll.records:
            why = refused.pop((poll.topic, value), None) if value is not None else None
            if why is not None:
                sentence = (
                    f"{poll.client} was given {value!r} at offset {offset} of {poll.topic}-{poll.partition}, {why}."
                )
                found.append(Finding(ABORTED, poll.topic, poll.partition, (offset,), (value,), sentence))
    return found


def torn_transactions(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each transaction and partition of which only a part of the records could be read. There
    are two cases. A last stable offset is the offset of the transaction's second or a later record in the partition.
    Or the last full reads contain some records of the transaction and not all of them."""
    ends: dict[Key, set[int]] = defaultdict(set)
    places: dict[tuple[Key, str], int] = {}
    for operation in history:
        if isinstance(operation, Polled):
            for offset, value in operation.records:
                if value is not None:
                    places.setdefault(((operation.topic, operation.partition), value), offset)
        elif isinstance(operation, StableEnd):
            for topic, partition, offset in operation.ends:
                ends[topic, partition].add(offset)
        elif isinstance(operation, FullReadEnded):
            for topic, partition, _, offset in operation.ranges:
                ends[topic, partition].add(offset)
    reads = last_full_reads(history)
    last = {key: set(read.values.values()) for key, read in reads.items()}
    found = []
    for transaction in _transactions(history):
        if transaction.outcome is _Outcome.ABORTED:
            continue
        parts = transaction.by_partition()
        for key, values in parts.items():
            shown = sorted(places[key, value] for value in values if (key, value) in places)
            stable = next((offset for offset in shown[1:] if offset in ends[key]), None)
            if stable is not None:
                where = f"which has records from {shown[0]} to {shown[-1]}"
                sentence = (
                    f"The last stable offset {stable} of {place_of(key)} lies within {transaction.name}, {where}."
                )
                found.append(Finding(TORN, *key, (shown[0], stable, shown[-1]), (), sentence))
        read = [(key, value) for key, values in parts.items() for value in values if value in last.get(key, ())]
        missing = [
            (key, value) for key, values in parts.items() if key in last for value in values if value not in last[key]
        ]
        if read and missing:
            key, value = missing[0]
            sentence = (
                f"Of {transaction.name} the last full reads have {read[0][1]!r} of {place_of(read[0][0])}, "
                f"and not {value!r} of {place_of(key)}{more_of(len(missing))}."
            )
            found.append(Finding(TORN, *key, (), first_of([value for _, value in missing]), sentence))
    return found


def lost_transactions(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each transaction without any record in the last full reads, although its commit was
    acknowledged before the full reads of all its partitions began."""
    reads = last_full_reads(history)
    values = {key: set(read.values.values()) for key, read in reads.items()}
    found = []
    for transaction in _transactions(history):
        parts = transaction.by_partition()
        if transaction.outcome is not _Outcome.COMMITTED or not parts or not parts.keys() <= reads.keys():
            continue
        if any(transaction.acknowledged_ns > reads[key].began_ns for key in parts):
            continue
        if not any(value in values[key] for key, sent in parts.items() for value in sent):
            key, sent = next(iter(parts.items()))
            sentence = (
                f"The commit of {transaction.name} was acknowledged, and no record of it is in the last full reads, "
                f"not even {sent[0]!r} of {place_of(key)}."
            )
            found.append(Finding(LOST_TRANSACTION, *key, (), first_of(sent), sentence))
    return found
