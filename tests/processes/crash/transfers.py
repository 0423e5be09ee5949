"""A bank: transfers between accounts, the entries that are made of them, and the checks of these.

A transfer is a record of the topic `transfers`, and becomes two records of the topic `entries` in one transaction: a
debit and a credit, each in the partition of its account. Half of the transfers stay within one partition: the sum of
their entries is zero there in every snapshot, up to a last stable offset, except where another transaction began
between the two entries and cuts one off. The others go from one partition to another."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from jesenska.testing.faults.history import FullReadBegan, FullReadEnded, Operation, Polled, StableEnd

TRANSFERS, ENTRIES, GROUP = "transfers", "entries", "bank"
PARTITIONS, ACCOUNTS = 3, 12


def partition_of(account: int) -> int:
    return account % PARTITIONS


@dataclass(frozen=True, slots=True)
class Transfer:
    number: int
    debtor: int
    creditor: int
    amount: int

    @classmethod
    def draw(cls, number: int, chance: Random) -> Transfer:
        debtor = chance.randrange(ACCOUNTS)
        is_within = chance.random() < 0.5
        others = [
            account
            for account in range(ACCOUNTS)
            if account != debtor and (partition_of(account) == partition_of(debtor)) == is_within
        ]
        return cls(number, debtor, chance.choice(others), chance.randint(1, 100))

    @classmethod
    def decode(cls, value: bytes) -> Transfer:
        return cls(*map(int, value.split(b":")))

    def encode(self) -> bytes:
        return b"%d:%d:%d:%d" % (self.number, self.debtor, self.creditor, self.amount)


def entries_of(transfer: Transfer, transaction: str) -> list[tuple[int, bytes]]:
    """The partition and the value of the debit and of the credit."""
    sides = ((transfer.debtor, -transfer.amount), (transfer.creditor, transfer.amount))
    return [
        (partition_of(account), f"{transaction}:{transfer.number}:{account}:{amount}".encode())
        for account, amount in sides
    ]


def wrong(history: Sequence[Operation], transfers: int) -> list[str]:
    """The mistakes in the balances, as sentences. The number of written `transfers` is given. They are numbered from
    0."""
    entries: dict[int, dict[int, str]] = defaultdict(dict)
    for operation in history:
        if isinstance(operation, Polled) and operation.topic == ENTRIES:
            entries[operation.partition].update((offset, str(value)) for offset, value in operation.records)
    return [*_wrong_sums(history, entries), *_wrong_counts(history, transfers)]


def _wrong_sums(history: Iterable[Operation], entries: dict[int, dict[int, str]]) -> list[str]:
    """Checks that the transfers that stay in a partition have a sum of zero in each of its snapshots. A snapshot that
    ends at the first record of a transaction, or at a record that is not shown, is not checked, since a transfer may
    be cut off there."""
    sums: dict[int, tuple[list[int], list[int]]] = {}
    #: Records of each partition that are not the first of their transaction.
    later: dict[int, set[int]] = {}
    for partition, values in entries.items():
        amounts: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        begun: set[str] = set()
        later[partition] = set()
        for offset, value in sorted(values.items()):
            transaction, number, _, amount = value.split(":")
            if transaction in begun:
                later[partition].add(offset)
            begun.add(transaction)
            amounts[transaction, number].append((offset, int(amount)))
        within = sorted(item for pair in amounts.values() if len(pair) > 1 for item in pair)
        sums[partition] = [offset for offset, _ in within], [0, *accumulate(amount for _, amount in within)]
    found = []
    for operation in history:
        if not isinstance(operation, StableEnd):
            continue
        for topic, partition, end in operation.ends:
            offsets, total = sums.get(partition, ([], [0]))
            if topic == ENTRIES and end in later.get(partition, ()) and (left := total[bisect_left(offsets, end)]):
                found.append(f"{operation.client} saw {left} too much in partition {partition} up to offset {end}")
    return found


def _wrong_counts(history: Iterable[Operation], transfers: int) -> list[str]:
    """Checks that each full read has each transfer's debit and credit once."""
    reading: dict[str, list[str]] = {}
    found, full_reads = [], 0
    for operation in history:
        if isinstance(operation, FullReadBegan):
            reading[operation.client] = []
        elif isinstance(operation, Polled) and operation.client in reading:
            reading[operation.client] += [str(value) for _, value in operation.records]
        elif isinstance(operation, FullReadEnded):
            full_reads += 1
            values = [value.split(":") for value in reading.pop(operation.client)]
            counts = Counter((int(number), int(amount) > 0) for _, number, _, amount in values)
            wanted = Counter((number, is_credit) for number in range(transfers) for is_credit in (False, True))
            if counts != wanted:
                more, less = counts - wanted, wanted - counts
                counted = (
                    f"{sum(more.values())} too many, like {list(more)[:5]}, and lacks {sum(less.values())}, like "
                    f"{list(less)[:5]}"
                )
                found.append(f"{operation.client} has {counted}")
            if total := sum(int(amount) for *_, amount in values):
                found.append(f"{operation.client} finds a sum of {total} over all accounts")
    return found if full_reads else [*found, "nobody has read everything"]
