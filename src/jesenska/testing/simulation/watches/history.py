"""Records the responses that the clients of a simulation get, and checks invariants that must be true under any fault:

acknowledged    every later reader finds an acknowledged record at its offset, also at the end
once            an idempotent producer's record is in the log once
in order        a reader gets increasing offsets; a producer's records in a partition keep their order
the same        readers that read the same offset get the same record
committed       a group's committed offset does not go back
one owner       in one generation of a group, a partition belongs to one member only
high watermark  the high watermark of a replica does not go back while the broker runs"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition


class RecordPlace(NamedTuple):
    partition: TopicPartition
    offset: int


class ViolationError(AssertionError):
    """The error that is raised if an invariant is violated. The message is one sentence."""


class History:
    """The responses that clients have got so far. Every method raises ViolationError if an invariant is violated."""

    def __init__(self) -> None:
        self.acknowledged: dict[RecordPlace, bytes] = {}
        self.read: dict[RecordPlace, bytes] = {}
        #: All records that any reader has read.
        self._seen: set[bytes] = set()
        #: Acknowledged records that no reader has read yet.
        self._unread: set[bytes] = set()
        #: For each record, the partition and offset at which it was first read or acknowledged.
        self._places: dict[bytes, RecordPlace] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._high_watermarks: dict[tuple[object, TopicPartition], int] = {}
        #: The number of times that the lone broker's machine has lost its power.
        self.power_losses = 0
        #: A function that is called with each acknowledged record.
        self.on_acknowledged: Callable[[TopicPartition, int], None] | None = None
        self._numbers: dict[tuple[TopicPartition, bytes], int] = {}

    def sent(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Records that a producer's record was acknowledged at this offset."""
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
        """Records that a reader got a record. The reader has already read everything below `expected`. If `of_group`,
        the reader is a group's member, and another member may have read the skipped records."""
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
        """Records that an offset commit got a response without an error."""
        before = self._committed.get((group, partition), -1)
        self._committed[group, partition] = max(before, offset)

    def found_committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Checks a committed offset that a member of the group has fetched; -1 means none."""
        before = self._committed.get((group, partition), -1)
        if offset < before:
            raise ViolationError(f"group {group} has committed offset {before} of {partition}, and is told {offset}")

    def start_of(self, group: str, partition: TopicPartition) -> int | None:
        """Returns the offset at which a member must start a partition. Returns None if this offset is not known, since
        a loss of power may have removed commits."""
        return None if self.power_losses else self._committed.get((group, partition), 0)

    def next_of_all(self, partition: TopicPartition, value: bytes) -> None:
        """Checks the next record that a reader of the whole partition got: the numbers of each producer's records must
        increase."""
        writer, _, number = value.rstrip(b".").rpartition(b"-")
        before = self._numbers.get((partition, writer), -1)
        if int(number) <= before:
            raise ViolationError(
                f"record {int(number)} of {writer.decode()} stands behind its record {before} in {partition}"
            )
        self._numbers[partition, writer] = int(number)

    @property
    def all_is_read(self) -> bool:
        """Returns True if every acknowledged record has been read."""
        return not self._unread

    def owns(self, group: str, generation: int, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Records that a member of a group was assigned these partitions in a generation."""
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise ViolationError(
                    f"{partition} belongs to {owner} and to {member} in generation {generation} of group {group}"
                )

    def high_watermark(self, incarnation: object, partition: TopicPartition, offset: int) -> None:
        """Checks the present high watermark of a partition on a broker."""
        before = self._high_watermarks.get((incarnation, partition), 0)
        if offset < before:
            raise ViolationError(f"the high watermark of {partition} goes back from {before} to {offset}")
        self._high_watermarks[incarnation, partition] = offset

    def power_was_lost(self) -> None:
        """Handles a loss of power of the lone broker's machine. The broker acknowledges commits, and returns records
        to readers, before they are synced. So records that were not acknowledged may be lost, and readers may have to
        start again at an earlier offset."""
        self.power_losses += 1
        self._committed.clear()
        self._owners.clear()
        self.read = {place: value for place, value in self.read.items() if place in self.acknowledged}
        self._places = {value: place for place, value in self.acknowledged.items()}
