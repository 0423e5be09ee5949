"""Histories that tests make, by hand or correct ones by chance, and faults to plant in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults.checkers import (
    DUPLICATED,
    INCONSISTENT,
    LOST,
    NON_MONOTONIC,
    REORDERED,
    SKIPPED,
    UNEXPECTED,
    WENT_BACK,
)
from jesenska.testing.faults.history import (
    ClientHistory,
    CommittedFound,
    FullReadEnded,
    Operation,
    Polled,
    SendAcknowledged,
    SendBegan,
    SendFailed,
)
from jesenska.testing.faults.transaction_checkers import ABORTED, LOST_TRANSACTION, TORN

TOPIC, GROUP, LEDGER = "t", "g", "ledger"
LAST_READER = "last-reader"


class MadeHistory:
    """Operations in memory, each a nanosecond after the previous one."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += 1
        return self._now_ns

    def write(self, operation: Operation) -> None:
        self.operations.append(operation)

    def client(self, name: str) -> ClientHistory:
        return ClientHistory(self, name)


class _Consumer:
    def __init__(self, history: ClientHistory) -> None:
        self.history = history
        self.positions: dict[TopicPartition, int] = {}


class CorrectHistory:
    """A possible history of the clients of a cluster that keeps its promises. Three producers: one of them has acks=1
    and no idempotence, and may lose or duplicate records. Three consumers that get partitions, seek, and commit. A
    reader of everything at the end. Answers may be late or missing, and offsets have gaps."""

    def __init__(self, chance: Random) -> None:
        self.made = MadeHistory()
        self._chance = chance
        self._keys = [TopicPartition(TOPIC, number) for number in range(chance.randint(1, 3))]
        self._log: dict[TopicPartition, list[tuple[int, bytes | None]]] = {key: [] for key in self._keys}
        self._ends = dict.fromkeys(self._keys, 0)
        self._owed: list[Callable[[], None]] = []
        self._counts: dict[str, int] = {}
        self._committed: dict[TopicPartition, int] = dict.fromkeys(self._keys, -1)
        self._highest: dict[TopicPartition, int] = dict.fromkeys(self._keys, -1)
        self._late: list[tuple[TopicPartition, int]] = []
        self._producers = [self.made.client(name) for name in ("p0", "p1", "weak")]
        self._consumers = [_Consumer(self.made.client(name)) for name in ("c0", "c1", "c2")]
        for producer in self._producers[:2]:
            producer.producer(acks=-1, idempotent=True, max_in_flight=chance.randint(1, 5))
        self._producers[2].producer(acks=1, idempotent=False, max_in_flight=5)
        actions = (
            [self._send] * 8
            + [self._answer] * 5
            + [self._poll] * 8
            + [self._assign, self._seek, self._find, self._apply_late]
            + [self._commit] * 3
        )
        for _ in range(chance.randint(30, 150)):
            chance.choice(actions)()
        while self._owed:
            self._answer()
        for key in self._keys:
            self._find(key)
        self._read_all()

    @property
    def operations(self) -> list[Operation]:
        return self.made.operations

    # --- producers ---------------------------------------------------------------------------------------------------

    def _append(self, key: TopicPartition, value: bytes | None) -> int:
        if self._chance.random() < 0.1:
            self._ends[key] += 1  # a marker of a transaction
        offset = self._ends[key]
        self._log[key].append((offset, value))
        self._ends[key] += 1
        return offset

    def _send(self) -> None:
        chance = self._chance
        producer, key = chance.choice(self._producers), chance.choice(self._keys)
        count = self._counts[producer.name] = self._counts.get(producer.name, -1) + 1
        value = f"{producer.name}-{count}".encode() if chance.random() < 0.97 else None
        number = producer.sending(key.topic, chance.choice((key.partition, -1)), value)
        fate = chance.random()
        if fate < 0.07:
            self._owed.append(lambda: producer.failed(number, certain=True))
        elif fate < 0.2:
            if fate < 0.13:
                self._append(key, value)
            if chance.random() < 0.5:
                self._owed.append(lambda: producer.failed(number, certain=False))
        else:
            offset = self._ends[key] if producer.name == "weak" and fate < 0.3 else self._append(key, value)
            if producer.name == "weak" and fate > 0.9:
                offset = self._append(key, value)
            told = -1 if chance.random() < 0.05 else offset
            self._owed.append(lambda: producer.acknowledged(number, key.topic, key.partition, told, value))

    def _answer(self) -> None:
        if self._owed:
            self._owed.pop(self._chance.randrange(len(self._owed)))()

    # --- consumers ---------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        chance, consumer = self._chance, self._chance.choice(self._consumers)
        keys = chance.sample(self._keys, chance.randint(0, len(self._keys)))
        told: dict[TopicPartition, int | None] = {}
        kept = consumer.positions if chance.random() < 0.5 else {}
        positions = {}
        for key in keys:
            if key in kept:
                positions[key] = kept[key]
            else:
                positions[key] = chance.choice((0, max(0, self._committed[key]), chance.randint(0, self._ends[key])))
                told[key] = positions[key] if chance.random() < 0.7 else None
        consumer.positions = positions
        consumer.history.assigned(keys, told)

    def _one(self) -> tuple[_Consumer, TopicPartition] | None:
        consumer = self._chance.choice(self._consumers)
        return (consumer, self._chance.choice(list(consumer.positions))) if consumer.positions else None

    def _seek(self) -> None:
        if (one := self._one()) is not None:
            consumer, key = one
            consumer.positions[key] = self._chance.randint(0, self._ends[key])
            consumer.history.sought(key, consumer.positions[key])

    def _poll(self) -> None:
        if (one := self._one()) is not None:
            consumer, key = one
            records = [record for record in self._log[key] if record[0] >= consumer.positions[key]][
                : self._chance.randint(1, 6)
            ]
            if records:
                consumer.history.polled(key, records)
                consumer.positions[key] = records[-1][0] + 1

    def _commit(self) -> None:
        if (one := self._one()) is not None:
            consumer, key = one
            offset, history = consumer.positions[key], consumer.history
            back = offset < self._highest[key]
            number = history.committing(GROUP, key, offset, back=back)
            if self._chance.random() < 0.8:
                self._committed[key] = offset
                self._highest[key] = offset if back else max(offset, self._highest[key])
                history.committed(number, GROUP, key, offset)
            else:
                self._late.append((key, offset))

    def _apply_late(self) -> None:
        if self._late:
            key, offset = self._chance.choice(self._late)
            self._committed[key] = offset

    def _find(self, key: TopicPartition | None = None) -> None:
        key = key or self._chance.choice(self._keys)
        began_ns = self.made.now_ns()
        self._chance.choice(self._consumers).history.found(began_ns, GROUP, key, self._committed[key])
        self._highest[key] = max(self._highest[key], self._committed[key])

    def _read_all(self) -> None:
        reader = self.made.client(LAST_READER)
        reader.full_read(self._keys)
        for key in self._keys:
            records, at = self._log[key], 0
            while at < len(records):
                size = self._chance.randint(1, 20)
                reader.polled(key, records[at : at + size])
                at += size
        reader.full_read_ended({key: (0, self._ends[key]) for key in self._keys})


# --- faults ----------------------------------------------------------------------------------------------------------


def _of_all(operations: list[Operation]) -> list[SendAcknowledged]:
    """Acknowledgements with acks=all, of records that have a value and a place."""
    found = [item for item in operations if isinstance(item, SendAcknowledged)]
    return [item for item in found if item.client != "weak" and item.value is not None and item.offset >= 0]


def _with_records(
    operations: list[Operation], change: Callable[[Polled], list[tuple[int, str | None]]]
) -> list[Operation]:
    """Every poll with other records. A poll without records is removed."""
    found: list[Operation] = []
    for operation in operations:
        if not isinstance(operation, Polled):
            found.append(operation)
        elif records := change(operation):
            found.append(replace(operation, records=tuple(records)))
    return found


def _at_the_end(operations: list[Operation], partition: int, value: str) -> list[Operation]:
    """Adds a record at the end of a partition, which only the last reader sees."""
    (ended,) = [item for item in operations if isinstance(item, FullReadEnded)]
    end = next(end for _, number, _, end in ended.ranges if number == partition)
    ranges = tuple((topic, number, start, last + (number == partition)) for topic, number, start, last in ended.ranges)
    more = Polled(ended.time_ns, LAST_READER, TOPIC, partition, ((end, value),))
    return [*operations[:-1], more, replace(ended, ranges=ranges)]


def _lose(operations: list[Operation], chance: Random) -> list[Operation] | None:
    sends = _of_all(operations)
    if not sends:
        return None
    gone = chance.choice(sends)
    place = gone.topic, gone.partition, gone.offset
    return _with_records(
        operations, lambda poll: [record for record in poll.records if (poll.topic, poll.partition, record[0]) != place]
    )


def _double(operations: list[Operation], chance: Random) -> list[Operation] | None:
    sends = _of_all(operations)
    if not sends:
        return None
    sent = chance.choice(sends)
    return _at_the_end(operations, sent.partition, str(sent.value))


def _reorder(operations: list[Operation], chance: Random) -> list[Operation] | None:
    sends = _of_all(operations)
    pairs = [
        (one, other)
        for one in sends
        for other in sends
        if (one.client, one.partition) == (other.client, other.partition) and one.number < other.number
    ]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    values = {one.offset: other.value, other.offset: one.value}
    changed = _with_records(
        operations,
        lambda poll: [
            (offset, values.get(offset, value) if poll.partition == one.partition else value)
            for offset, value in poll.records
        ],
    )
    moved = {one: replace(one, offset=other.offset), other: replace(other, offset=one.offset)}
    return [moved.get(item, item) if isinstance(item, SendAcknowledged) else item for item in changed]


def _show_another(operations: list[Operation], chance: Random) -> list[Operation] | None:
    answered = {(item.client, item.number) for item in operations if isinstance(item, SendAcknowledged | SendFailed)}
    read = {value for item in operations if isinstance(item, Polled) for _, value in item.records}
    unknown = [
        item for item in operations if isinstance(item, SendBegan) and (item.client, item.number) not in answered
    ]
    spare = [item.value for item in unknown if item.value is not None and item.value not in read]
    polls = [item for item in operations if isinstance(item, Polled) and item.client != LAST_READER]
    if not spare or not polls:
        return None
    poll, value = chance.choice(polls), chance.choice(spare)
    at = chance.randrange(len(poll.records))
    return _with_records(
        operations,
        lambda item: [
            (offset, value if item is poll and index == at else shown)
            for index, (offset, shown) in enumerate(item.records)
        ],
    )


def _go_back(operations: list[Operation], chance: Random) -> list[Operation] | None:
    polls = [item for item in operations if isinstance(item, Polled)]
    if not polls:
        return None
    poll = chance.choice(polls)
    again = replace(poll, records=(chance.choice(poll.records),))
    at = next(index for index, item in enumerate(operations) if item is poll) + 1
    return [*operations[:at], again, *operations[at:]]


def _skip(operations: list[Operation], chance: Random) -> list[Operation] | None:
    polls = [
        item for item in operations if isinstance(item, Polled) and item.client != LAST_READER and len(item.records) > 2
    ]
    if not polls:
        return None
    poll = chance.choice(polls)
    at = chance.randrange(1, len(poll.records) - 1)
    return _with_records(
        operations,
        lambda item: [record for index, record in enumerate(item.records) if item is not poll or index != at],
    )


def _forget_a_commit(operations: list[Operation], chance: Random) -> list[Operation] | None:
    found = [item for item in operations if isinstance(item, CommittedFound) and item.offset >= 0]
    if not found:
        return None
    seen = chance.choice(found)
    later = operations[-1].time_ns + 1
    return [*operations, CommittedFound(later + 1, "late", later, seen.group, seen.topic, seen.partition, -1)]


def _show_what_nobody_sent(operations: list[Operation], chance: Random) -> list[Operation] | None:
    if not any(isinstance(item, SendBegan) for item in operations):
        return None
    certain = {(item.client, item.number) for item in operations if isinstance(item, SendFailed) and item.certain}
    refused = [
        item.value
        for item in operations
        if isinstance(item, SendBegan) and (item.client, item.number) in certain and item.value is not None
    ]
    return _at_the_end(operations, 0, chance.choice([*refused, "from nowhere"]))


def _with_transaction(
    operations: list[Operation], shown: list[tuple[int, int, bytes]], *, commits: bool = True
) -> list[Operation]:
    """Adds a transaction of one record in each of two partitions of another topic, and a full read of these that
    returns `shown`: (partition, offset, value)."""
    made = MadeHistory()
    made.now_ns = itertools.count(operations[-1].time_ns + 1).__next__  # type: ignore[method-assign]
    writer, reader = made.client("w"), made.client("reader-of-transactions")
    writer.transactional()
    records = [(LEDGER, 0, b"from"), (LEDGER, 1, b"to")]
    for record in records:
        writer.sending(*record)
    writer.ended(writer.ending(records, commits=commits), commits=commits)
    keys = [TopicPartition(LEDGER, number) for number in range(2)]
    reader.full_read(keys)
    for partition, offset, value in shown:
        reader.polled(keys[partition], [(offset, value)])
    reader.full_read_ended(dict.fromkeys(keys, (0, 2)))
    return [*operations, *made.operations]


def _show_what_was_aborted(operations: list[Operation], chance: Random) -> list[Operation] | None:
    return _with_transaction(operations, [(0, 0, b"from"), (1, 0, b"to")][: chance.randint(1, 2)], commits=False)


def _tear(operations: list[Operation], chance: Random) -> list[Operation] | None:
    return _with_transaction(operations, [chance.choice([(0, 0, b"from"), (1, 0, b"to")])])


def _lose_a_transaction(operations: list[Operation], chance: Random) -> list[Operation] | None:
    return _with_transaction(operations, [])


#: Each fault by the kind that the check must report. The function returns None where the history has no place for it.
PLANTS: dict[str, Callable[[list[Operation], Random], list[Operation] | None]] = {
    LOST: _lose,
    DUPLICATED: _double,
    REORDERED: _reorder,
    INCONSISTENT: _show_another,
    NON_MONOTONIC: _go_back,
    SKIPPED: _skip,
    WENT_BACK: _forget_a_commit,
    UNEXPECTED: _show_what_nobody_sent,
    ABORTED: _show_what_was_aborted,
    TORN: _tear,
    LOST_TRANSACTION: _lose_a_transaction,
}
