"""The answers to the clients of a simulation, and invariants of them under any fault.

acknowledged    an acknowledged record is at that offset, for every reader from then on, and at the end
once            an idempotent producer's record is in the log once
in order        a reader gets offsets that go up; a producer's records of a partition keep their order
the same        two readers that get an offset get the same record
committed       a group's committed offset does not go back
one owner       in one generation of a group a partition belongs to one member
high watermark  it does not go back while the broker runs"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition


class RecordPlace(NamedTuple):
    partition: TopicPartition
    offset: int


class ViolationError(AssertionError):
    """An invariant is violated; one sentence."""


class History:
    """The answers so far. Every method raises ViolationError."""

    def __init__(self) -> None:
        self.acknowledged: dict[RecordPlace, bytes] = {}
        self.read: dict[RecordPlace, bytes] = {}
        #: Every record that a reader has had at any time.
        self._seen: set[bytes] = set()
        #: Acknowledged records that no reader has had.
        self._unread: set[bytes] = set()
        #: The place at which a record was read or acknowledged first.
        self._places: dict[bytes, RecordPlace] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._high_watermarks: dict[tuple[object, TopicPartition], int] = {}
        #: The number of times that the broker's machine went down.
        self.power_losses = 0
        #: Called with each record that is acknowledged.
        self.on_acknowledged: Callable[[TopicPartition, int], None] | None = None
        self._numbers: dict[tuple[TopicPartition, bytes], int] = {}

    def sent(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A producer's record was acknowledged at that place."""
        place = RecordPlace(partition, offset)
        self._stands(place, value, "is acknowledged")
        self.acknowledged[place] = value
        if self.on_acknowledged is not None:
            self.on_acknowledged(partition, offset)
        if value not in self._seen:
            self._unread.add(value)

    def received(
        self,
        reader: str,
        partition: TopicPartition,
        offset: int,
        value: bytes,
        expected: int,
        *,
        of_group: bool = False,
    ) -> None:
        """A reader that has had everything below `expected` got a record; `of_group`: it, or another member of its
        group, which may have reported the records itself."""
        if offset < expected:
            raise ViolationError(f"{reader} reads offset {offset} of {partition} after it has had all below {expected}")
        skipped = [RecordPlace(partition, at) for at in range(expected, offset)] if expected < offset else ()
        missing = [
            place.offset for place in skipped if place in self.acknowledged and not (of_group and place in self.read)
        ]
        if missing:
            raise ViolationError(
                f"{reader} is not given the offsets {missing[:5]} of {partition}, which are acknowledged: it goes "
                f"from {expected} to {offset}"
            )
        place = RecordPlace(partition, offset)
        self._stands(place, value, "is read by ", reader)
        self.read[place] = value
        self._seen.add(value)
        self._unread.discard(value)

    def _stands(self, place: RecordPlace, value: bytes, how: str, who: str = "") -> None:
        for known, before in ((self.acknowledged, "acknowledged"), (self.read, "read")):
            other = known.get(place, value)
            if other != value:
                raise ViolationError(
                    f"offset {place.offset} of {place.partition} {how}{who} as {value!r}, and was {before} as {other!r}"
                )
        first = self._places.setdefault(value, place)
        if first != place:
            raise ViolationError(
                f"the record {value!r} {how}{who} at offset {place.offset} of {place.partition}, and stands at "
                f"offset {first.offset}, too"
            )

    def committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """A commit was answered without an error."""
        before = self._committed.get((group, partition), -1)
        self._committed[group, partition] = max(before, offset)

    def found_committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """A member got its group's committed offset; -1 for nothing."""
        before = self._committed.get((group, partition), -1)
        if offset < before:
            raise ViolationError(f"group {group} has committed offset {before} of {partition}, and is told {offset}")

    def start_of(self, group: str, partition: TopicPartition) -> int | None:
        """Returns the offset at which a member must begin a partition; None if commits were lost, so that it is not
        known."""
        return None if self.power_losses else self._committed.get((group, partition), 0)

    def next_of_all(self, partition: TopicPartition, value: bytes) -> None:
        """A reader of everything got that record next: a producer's records of a partition are numbered upwards."""
        writer, _, number = value.rstrip(b".").rpartition(b"-")
        before = self._numbers.get((partition, writer), -1)
        if int(number) <= before:
            raise ViolationError(
                f"record {int(number)} of {writer.decode()} stands behind its record {before} in {partition}"
            )
        self._numbers[partition, writer] = int(number)

    @property
    def all_is_read(self) -> bool:
        """True if every acknowledged record has been read."""
        return not self._unread

    def owns(self, group: str, generation: int, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member got partitions."""
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise ViolationError(
                    f"{partition} belongs to {owner} and to {member} in generation {generation} of group {group}"
                )

    def high_watermark(self, incarnation: object, partition: TopicPartition, offset: int) -> None:
        """A broker has this high watermark now."""
        before = self._high_watermarks.get((incarnation, partition), 0)
        if offset < before:
            raise ViolationError(f"the high watermark of {partition} goes back from {before} to {offset}")
        self._high_watermarks[incarnation, partition] = offset

    def power_was_lost(self) -> None:
        """The broker's machine went down. Commits are answered before they are synced, and records are read before:
        records that were not acknowledged may be gone, and a reader that was ahead begins again."""
        self.power_losses += 1
        self._committed.clear()
        self._owners.clear()
        self.read = {place: value for place, value in self.read.items() if place in self.acknowledged}
        self._places = {value: place for place, value in self.acknowledged.items()}
