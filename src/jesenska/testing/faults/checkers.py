"""Checkers of a history of clients' operations. Each checker is a pure function that returns findings: violations of
Kafka's guarantees. If a history contains no violation, the checkers return no findings. The kinds of findings:

    lost                 a record was acknowledged with acks=all, and is not in its partition's last full read
    not read             records of a partition were acknowledged, and the history has no full read of the partition
    duplicated           a record that an idempotent producer sent once was read at two offsets
    reordered            of two acknowledged records of one producer, the record that was sent later has a lower offset
    inconsistent offset  consumers got different records at one offset, or not the record that was acknowledged there
    non-monotonic        a consumer got an offset although it had read that offset or a later one
    poll skip            a consumer skipped an offset at which there is a record
    commit went back     a group's committed offset is lower than an offset that was acknowledged, or fetched, before
    unexpected           a record was read that no producer sent, or that was certainly not written
    aborted, torn and lost transactions    see `transaction_checkers`

All checkers assume that the history is sorted by time, as `read_history` returns it, and that each send has its own
value. Topics must keep their records (cleanup.policy=delete, no retention, no deleted records), and must not be
created twice. With transactions, consumers of one history must all read with the same isolation level.

A send that was neither acknowledged nor certainly failed is unknown: its record may be in the log once, or not at all.
A record whose send certainly failed, or whose transaction was aborted, must not be read. The result of an offset
commit without a response is also unknown: the commit may take effect at any time.

The time of each checker is proportional to the length of the history (times a logarithm if offsets are sorted)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jesenska.testing.faults.findings import NAMED_MAX, Finding, Key, T, first_of, more_of, place_of
from jesenska.testing.faults.full_reads import last_full_reads
from jesenska.testing.faults.history import (
    Assigned,
    CommitAcknowledged,
    CommitBegan,
    CommittedFound,
    FullReadBegan,
    Operation,
    Polled,
    ProducerBegan,
    SendAcknowledged,
    SendBegan,
    SendFailed,
    Sought,
)
from jesenska.testing.faults.transaction_checkers import (
    ABORTED,
    LOST_TRANSACTION,
    TORN,
    aborted_reads,
    lost_transactions,
    torn_transactions,
)

__all__ = ["CHECKERS", "Finding", "check"]

LOST = "lost"
NOT_READ = "not read"
DUPLICATED = "duplicated"
REORDERED = "reordered"
INCONSISTENT = "inconsistent offset"
NON_MONOTONIC = "non-monotonic"
SKIPPED = "poll skip"
WENT_BACK = "commit went back"
UNEXPECTED = "unexpected"


_ACKS_ALL = -1
#: The largest number of requests in flight for which an idempotent producer preserves the order of records.
_IN_FLIGHT_IN_ORDER_MAX = 5


# --- results of sends ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sent:
    """One send of a record. `offset` is None if the record was not acknowledged, and -1 if the acknowledgement
    contains no offset."""

    client: str
    key: Key
    value: str | None
    settings: ProducerBegan | None
    offset: int | None = None
    acknowledged_ns: int = 0
    certainly_failed: bool = False

    @property
    def is_idempotent(self) -> bool:
        return self.settings is None or self.settings.idempotent

    @property
    def is_of_all(self) -> bool:
        return self.settings is None or self.settings.acks == _ACKS_ALL

    @property
    def is_ordered(self) -> bool:
        if self.settings is None:
            return True
        return self.settings.max_in_flight <= (_IN_FLIGHT_IN_ORDER_MAX if self.settings.idempotent else 1)


def _sends(history: Iterable[Operation]) -> list[_Sent]:
    """Returns every send with its result, in the order of sending. If an acknowledged send has no `send` line in the
    history, the time of its acknowledgement is used as the time of sending."""
    found: list[_Sent] = []
    settings: dict[str, ProducerBegan] = {}
    waiting: dict[tuple[str, int], _Sent] = {}
    for operation in history:
        if isinstance(operation, SendBegan):
            sent = _Sent(
                operation.client,
                (operation.topic, operation.partition),
                operation.value,
                settings.get(operation.client),
            )
            waiting[operation.client, operation.number] = sent
            found.append(sent)
        elif isinstance(operation, SendAcknowledged):
            acknowledged = waiting.pop((operation.client, operation.number), None)
            if acknowledged is None:
                acknowledged = _Sent(
                    operation.client,
                    (operation.topic, operation.partition),
                    operation.value,
                    settings.get(operation.client),
                )
                found.append(acknowledged)
            acknowledged.key = operation.topic, operation.partition
            acknowledged.offset = operation.offset
            acknowledged.acknowledged_ns = operation.time_ns
        elif isinstance(operation, SendFailed):
            failed = waiting.pop((operation.client, operation.number), None)
            if failed is not None:
                failed.certainly_failed = operation.certain
        elif isinstance(operation, ProducerBegan):
            settings[operation.client] = operation
    return found


def _polls(history: Iterable[Operation]) -> Iterator[Polled]:
    return (operation for operation in history if isinstance(operation, Polled))


def _runs(found: dict[int, T]) -> Iterator[list[tuple[int, T]]]:
    """Yields runs of consecutive offsets. A run is a list of offsets, each with its entry in `found`."""
    run: list[tuple[int, T]] = []
    for offset in sorted(found):
        if run and offset != run[-1][0] + 1:
            yield run
            run = []
        run.append((offset, found[offset]))
    if run:
        yield run


# --- producers -------------------------------------------------------------------------------------------------------


def lost(history: Sequence[Operation], *, trimmed: bool = False) -> list[Finding]:
    """Returns a finding for records that were acknowledged with acks=all, but are missing in the last full read of
    their partition. Records at consecutive offsets are one finding. Returns a finding NOT_READ for a partition with
    acknowledged records and no full read.

    Only the last completed full read of a partition is used. Records that were acknowledged after its start are not
    checked. If clients run on several machines, end the load before the full read. `trimmed` says that the topics have
    a retention, or that records were deleted: then acknowledged records below the first existing offset are not lost.
    The record of a send with an unknown result cannot be lost. Records without a value are compared by offset."""
    reads = last_full_reads(history)
    missing: dict[Key, dict[int, _Sent]] = defaultdict(dict)
    elsewhere: dict[Key, list[_Sent]] = defaultdict(list)
    unread: dict[Key, int] = defaultdict(int)
    values = {key: set(read.values.values()) for key, read in reads.items()}
    for sent in _sends(history):
        if sent.offset is None or not sent.is_of_all:
            continue
        read = reads.get(sent.key)
        if read is None:
            unread[sent.key] += 1
            continue
        if sent.acknowledged_ns > read.began_ns or (trimmed and 0 <= sent.offset < read.start):
            continue
        if sent.offset in read.values if sent.value is None else sent.value in values[sent.key]:
            continue
        if sent.value is None and sent.offset < 0:
            continue  # the record is not known
        if sent.offset < 0:
            elsewhere[sent.key].append(sent)
        else:
            missing[sent.key][sent.offset] = sent
    found = []
    for key, sends in missing.items():
        found += [_lost(key, [sent for _, sent in run], f"at offset {run[0][0]}") for run in _runs(sends)]
    found += [_lost(key, items, "at an unknown offset") for key, items in elsewhere.items()]
    for key, count in unread.items():
        sentence = (
            f"{place_of(key)} has {count} acknowledged records, and no client has read it from its beginning to "
            f"its end: add a full read to the history."
        )
        found.append(Finding(NOT_READ, *key, (), (), sentence))
    return found


def _lost(key: Key, sends: list[_Sent], where: str) -> Finding:
    first = sends[0]
    more = f", and {len(sends) - 1} later records are" if len(sends) > 1 else ", is"
    sentence = (
        f"{first.value!r}, acknowledged to {first.client} {where} of {place_of(key)}{more} not in the last full read."
    )
    offsets = [sent.offset for sent in sends if sent.offset is not None and sent.offset >= 0]
    return Finding(LOST, *key, first_of(offsets), first_of([sent.value for sent in sends]), sentence)


def duplicated(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each value that was read at more offsets than it was sent. Offsets in all partitions of
    its topic are counted.

    Only values that idempotent producers have sent are checked. Each send that did not certainly fail allows one
    offset, even if its result is unknown. Records without a value are left out."""
    allowed: dict[tuple[str, str], int] = defaultdict(int)
    others: set[tuple[str, str]] = set()
    for sent in _sends(history):
        if sent.value is None or sent.certainly_failed:
            continue
        allowed[sent.key[0], sent.value] += 1
        if not sent.is_idempotent:
            others.add((sent.key[0], sent.value))
    first: dict[tuple[str, str], tuple[int, int]] = {}
    several: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for poll in _polls(history):
        topic, partition = poll.topic, poll.partition
        for offset, value in poll.records:
            if value is None:
                continue
            place = (partition, offset)
            before = first.setdefault((topic, value), place)
            if before != place:
                several.setdefault((topic, value), {before}).add(place)
    found = []
    for (topic, value), places in several.items():
        sends = allowed.get((topic, value), 0)
        if (topic, value) in others or not 0 < sends < len(places):
            continue
        ordered = sorted(places)
        named = ", ".join(f"offset {offset} of {topic}-{partition}" for partition, offset in ordered[:NAMED_MAX])
        times = "once" if sends == 1 else f"{sends} times"
        sentence = (
            f"{value!r} was sent {times} by an idempotent producer and was read at {len(ordered)} places: {named}."
        )
        found.append(
            Finding(DUPLICATED, topic, ordered[0][0], first_of([offset for _, offset in ordered]), (value,), sentence)
        )
    return found


def reordered(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for acknowledged records of one producer and partition whose offsets are not in the order of
    sending. Each finding names a record and the acknowledged record that was sent just before it.

    Only producers with acks=all are checked: idempotent producers with up to five requests in flight, and other
    producers with one request in flight. The offset of a record is taken from its acknowledgement. If that offset is
    -1, the offset at which the value was read is used, if there is only one. Failed sends and sends with an unknown
    result are left out."""
    #: For each value, the offset at which it was read; None if it was read at several offsets.
    seen: dict[tuple[Key, str], int | None] = {}
    sends = [sent for sent in _sends(history) if sent.offset is not None and sent.is_of_all and sent.is_ordered]
    if any(sent.offset == -1 for sent in sends):
        for poll in _polls(history):
            for at, value in poll.records:
                if value is not None and seen.setdefault(((poll.topic, poll.partition), value), at) != at:
                    seen[(poll.topic, poll.partition), value] = None
    before: dict[tuple[str, Key], tuple[int, _Sent]] = {}
    found = []
    for sent in sends:
        assert sent.offset is not None
        offset: int | None = sent.offset
        if sent.offset < 0:
            offset = seen.get((sent.key, sent.value)) if sent.value is not None else None
        if offset is None:
            continue
        previous = before.get((sent.client, sent.key))
        if previous is not None and offset < previous[0]:
            sentence = (
                f"{sent.client} sent {previous[1].value!r} before {sent.value!r}, and in {place_of(sent.key)} "
                f"they have the offsets {previous[0]} and {offset}."
            )
            found.append(
                Finding(REORDERED, *sent.key, (previous[0], offset), (previous[1].value, sent.value), sentence)
            )
        before[sent.client, sent.key] = (offset, sent)
    return found


def inconsistent_offsets(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for offsets at which clients saw different records: consumers read different records, or the
    record that was acknowledged there is not the record that was read or acknowledged earlier. Consecutive offsets are
    one finding.

    A record that was read, or acknowledged with acks=all, must stay at its offset permanently. Records that were
    acknowledged with other acks are not checked, since a new leader may not have them."""
    shown: dict[Key, dict[int, tuple[str | None, Operation]]] = defaultdict(dict)
    conflicts: dict[Key, dict[int, tuple[tuple[str | None, Operation], tuple[str | None, Operation]]]] = defaultdict(
        dict
    )

    def look(key: Key, records: Iterable[tuple[int, str | None]], operation: Operation) -> None:
        known = shown[key]
        for offset, value in records:
            before = known.setdefault(offset, (value, operation))
            if before[0] != value:
                conflicts[key].setdefault(offset, (before, (value, operation)))

    of_all: dict[str, bool] = {}
    for operation in history:
        if isinstance(operation, Polled):
            look((operation.topic, operation.partition), operation.records, operation)
        elif isinstance(operation, ProducerBegan):
            of_all[operation.client] = operation.acks == _ACKS_ALL
        elif isinstance(operation, SendAcknowledged) and operation.offset >= 0 and of_all.get(operation.client, True):
            look((operation.topic, operation.partition), ((operation.offset, operation.value),), operation)
    found = []
    for key, offsets in conflicts.items():
        for run in _runs(offsets):
            offset, (one, other) = run[0]
            more = f", as {len(run) - 1} later offsets differ" if len(run) > 1 else ""
            sentence = f"Offset {offset} of {place_of(key)} was {_shown(*one)}, and {_shown(*other)}{more}."
            found.append(Finding(INCONSISTENT, *key, first_of([at for at, _ in run]), (one[0], other[0]), sentence))
    return found


def _shown(value: str | None, operation: Operation) -> str:
    how = "acknowledged to" if isinstance(operation, SendAcknowledged) else "shown to"
    return f"{how} {operation.client} as {value!r}"


def unexpected(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each value that was read although it was never sent, or although all sends of it certainly
    failed.

    The history must contain all producers of a topic, from the topic's creation. Topics without sends and records
    without a value are left out."""
    written: dict[tuple[str, str], bool] = {}
    topics = set()
    for sent in _sends(history):
        topics.add(sent.key[0])
        if sent.value is not None:
            place = sent.key[0], sent.value
            written[place] = written.get(place, False) or not sent.certainly_failed
    reported: set[tuple[str, str]] = set()
    found = []
    for poll in _polls(history):
        if poll.topic not in topics:
            continue
        for offset, value in poll.records:
            if value is None or written.get((poll.topic, value)) or (poll.topic, value) in reported:
                continue
            reported.add((poll.topic, value))
            why = "was certainly not written" if (poll.topic, value) in written else "no client has sent"
            sentence = (
                f"{poll.client} was given {value!r} at offset {offset} of {poll.topic}-{poll.partition}, which {why}."
            )
            found.append(Finding(UNEXPECTED, poll.topic, poll.partition, (offset,), (value,), sentence))
    return found


# --- consumers -------------------------------------------------------------------------------------------------------


def _steps(history: Iterable[Operation]) -> Iterator[tuple[Polled, int, str | None, int | None, int | None]]:
    """Yields each record that a consumer got: the poll, the offset, the value, the expected offset and the previous
    offset. The expected offset is the next offset after the highest offset that was read since the consumer last set
    its position in the partition. It is None if it is not known. The previous offset is None for the first record
    after a new position."""
    following: dict[tuple[str, Key], int] = {}
    before: dict[tuple[str, Key], int] = {}
    for operation in history:
        if isinstance(operation, Polled):
            who = operation.client, (operation.topic, operation.partition)
            expected, last = following.get(who), before.get(who)
            for offset, value in operation.records:
                yield operation, offset, value, expected, last
                last = offset
                expected = offset + 1 if expected is None or offset >= expected else expected
            if expected is not None and last is not None:
                following[who], before[who] = expected, last
        elif isinstance(operation, Assigned | FullReadBegan | Sought):
            for topic, partition, position in _resets(operation):
                who = operation.client, (topic, partition)
                before.pop(who, None)
                following.pop(who, None)
                if position is not None:
                    following[who] = position


def _resets(operation: Assigned | FullReadBegan | Sought) -> Iterable[tuple[str, int, int | None]]:
    """Returns the partitions in which the operation sets the consumer's position, each with the new offset (None: not
    known)."""
    if isinstance(operation, Assigned):
        return operation.reset
    if isinstance(operation, Sought):
        return ((operation.topic, operation.partition, operation.offset),)
    return [(topic, partition, None) for topic, partition in operation.partitions]


def non_monotonic(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each offset that a consumer got although it is below the next expected offset. The
    expected offset is the one after the highest offset that was read since the consumer last set its position in the
    partition, or the position itself. Consecutive repeated offsets are one finding.

    The operations `assigned` (with a reset), `sought` and `full read` set a consumer's position. A reset by
    auto.offset.reset is not in the history, so offsets that are repeated because of such a reset are reported."""
    found = []
    for poll, offset, value, expected, last in _steps(history):
        if expected is None or offset >= expected or (last is not None and offset == last + 1 and last + 1 < expected):
            continue
        sentence = (
            f"{poll.client} was given offset {offset} of {poll.topic}-{poll.partition} where {expected} or a later "
            f"one comes next."
        )
        found.append(Finding(NON_MONOTONIC, poll.topic, poll.partition, (offset,), (value,), sentence))
    return found


def poll_skips(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for offsets that a consumer skipped although this or another consumer got records there.

    Offsets that no consumer ever got may be skipped: transaction markers, aborted records, and gaps after failed
    writes. If the start offset of a consumer is not known, its first record is accepted."""
    seen: dict[Key, dict[int, str | None]] = defaultdict(dict)
    for poll in _polls(history):
        seen[poll.topic, poll.partition].update(poll.records)
    order = {key: sorted(values) for key, values in seen.items()}
    found = []
    for poll, offset, _, expected, _ in _steps(history):
        if expected is None or offset <= expected:
            continue
        key = poll.topic, poll.partition
        offsets = order[key]
        first, end = bisect_left(offsets, expected), bisect_left(offsets, offset)
        if first == end:
            continue
        named = offsets[first : min(end, first + NAMED_MAX)]
        sentence = (
            f"{poll.client} was given offset {offset} of {place_of(key)} where {expected} comes next, "
            f"without {seen[key][named[0]]!r} at offset {named[0]}{more_of(end - first)}."
        )
        found.append(Finding(SKIPPED, *key, tuple(named), tuple(seen[key][at] for at in named), sentence))
    return found


@dataclass(slots=True)
class _Register:
    """The committed offset of a group in one partition, over time. `times_ns` contains the times at which an offset
    was acknowledged or fetched. For each time, `floors` contains the lowest offset that may be fetched after it."""

    times_ns: list[int] = field(default_factory=list)
    floors: list[int] = field(default_factory=list)
    #: The offsets of commits without a response, by the client and the number of the commit.
    unanswered: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, time_ns: int, offset: int, back: bool) -> None:
        self.floors.append(offset if back or not self.floors else max(offset, self.floors[-1]))
        self.times_ns.append(time_ns)


def commits_that_went_back(history: Sequence[Operation]) -> list[Finding]:
    """Returns a finding for each fetched committed offset that is lower than an offset that was acknowledged, or
    fetched, before the request.

    A commit that goes back intentionally is marked with `back`. A commit without a response may take effect at any
    time, even after later commits, so its offset is accepted. Times of several clients are compared, so run the
    members of a group and the clients that fetch its offsets on one machine. Expired or deleted offsets of a group are
    also reported."""
    registers: dict[tuple[str, Key], _Register] = defaultdict(_Register)
    back: set[tuple[str, int]] = set()
    found = []
    for operation in history:
        if isinstance(operation, CommitBegan):
            registers[operation.group, (operation.topic, operation.partition)].unanswered[
                operation.client, operation.number
            ] = operation.offset
            if operation.back:
                back.add((operation.client, operation.number))
            else:
                back.discard((operation.client, operation.number))
        elif isinstance(operation, CommitAcknowledged):
            number = operation.client, operation.number
            register = registers[operation.group, (operation.topic, operation.partition)]
            register.unanswered.pop(number, None)
            register.add(operation.time_ns, operation.offset, number in back)
        elif isinstance(operation, CommittedFound):
            key = operation.topic, operation.partition
            register = registers[operation.group, key]
            at = bisect_right(register.times_ns, operation.began_ns) - 1
            floor = register.floors[at] if at >= 0 else -1
            # During the fetch request, a commit that goes back intentionally may have been acknowledged.
            allowed = min(register.floors[at:]) if at >= 0 else -1
            if operation.offset < allowed and operation.offset not in register.unanswered.values():
                sentence = (
                    f"Group {operation.group} had committed offset {floor} of {place_of(key)}, "
                    f"and {operation.client} found {operation.offset if operation.offset >= 0 else 'nothing'} there."
                )
                found.append(Finding(WENT_BACK, *key, (floor, operation.offset), (), sentence))
            elif floor == allowed <= operation.offset:
                register.add(operation.time_ns, operation.offset, back=False)
    return found


# --- all of them -----------------------------------------------------------------------------------------------------

#: The checkers, each under the kind of its findings.
CHECKERS: dict[str, Callable[[Sequence[Operation]], list[Finding]]] = {
    LOST: lost,
    DUPLICATED: duplicated,
    REORDERED: reordered,
    INCONSISTENT: inconsistent_offsets,
    NON_MONOTONIC: non_monotonic,
    SKIPPED: poll_skips,
    WENT_BACK: commits_that_went_back,
    UNEXPECTED: unexpected,
    ABORTED: aborted_reads,
    TORN: torn_transactions,
    LOST_TRANSACTION: lost_transactions,
}


def check(history: Sequence[Operation], *, trimmed: bool = False, kinds: Iterable[str] = CHECKERS) -> list[Finding]:
    """Returns the findings of all checkers, or of the checkers whose kinds are in `kinds`. `trimmed` is passed to the
    checker `lost`."""
    found: list[Finding] = []
    for kind in kinds:
        found += lost(history, trimmed=trimmed) if kind == LOST else CHECKERS[kind](history)
    return found
