"""Checks segment files that were written before the broker's start, when their records are first read. After a clean
shutdown no file is read completely at the start. So bytes that a disk has lost or changed are found by this check, and
are not sent to a client.

    Checked          the parts of the file that were checked, and the damaged parts
    check            checks the batches around an offset: their CRCs, and that their offsets follow one another
    inspect          the same for the whole file, after a fault was found: the damaged parts, the good batches
                     after them, and the index entries of the good batches

Reads at offsets of damaged batches are refused (CORRUPT_MESSAGE); the offsets before and after them can be read.
Batches that this process has written, or checked at its start, are not checked again.

A batch's base offset is not covered by its CRC. So the offsets of neighbouring batches are compared: a batch's base
offset must be above the last offset of the batch before it. If two neighbours contradict this rule, the batch whose
base offset does not directly follow the batch before is taken as damaged. If neither follows directly, both are taken
as damaged.

The functions run in any thread. They read a copy of a segment (`LogSegment.copy`), and the owner of the segment stores
the result in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from jesenska.base.errors import CorruptMessageError, UnsupportedForMessageFormatError
from jesenska.log.segments.index_file import CorruptIndexError
from jesenska.records.codec import BatchScan, crc32c
from jesenska.records.header import ATTRIBUTES_OFFSET, HEADER_SIZE, MAGIC_OFFSET, MAGIC_V2, BatchHeader, read_header

#: Bytes that are checked at once. The number is limited so that a check is short.
CHECK_BYTES = 4 * 1024 * 1024
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
#: Bytes after the start of damage in which a good batch is searched at every position.
_SEARCH_BYTES = 1024 * 1024
_MAGIC = bytes([MAGIC_V2])
#: The errors of bytes that are not a batch. A magic of 0 or 1 in a log of batches also counts as damage.
_NO_BATCH = (CorruptMessageError, UnsupportedForMessageFormatError)


class Damage(NamedTuple):
    """A damaged part of a segment file: it has no good batch."""

    position: int
    end_position: int
    #: The first offset that may be in the damaged part, and the first offset after it.
    offset: int
    next_offset: int
    reason: str

    def described(self, path: Path) -> str:
        """Returns a message about the damage for an operator."""
        what = f"{path} is damaged from position {self.position} to {self.end_position} ({self.reason})"
        if self.offset >= self.next_offset:
            return f"{what}: no record is lost by that"
        return (
            f"{what}: offsets {self.offset} to {self.next_offset - 1} are refused, the others are served. Restore "
            f"the file from a copy, or have clients "
            f"go on at offset {self.next_offset}"
        )


class Entry(NamedTuple):
    """The index entry for a good batch: its last offset, its position, the largest timestamp so far, and the offset of
    that timestamp."""

    last_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class CheckedIndex(Protocol):
    """The interface of a segment's offset index that a check uses (offset_index)."""

    def entries(self) -> list[tuple[int, int]]: ...

    def between(self, start: int, end: int) -> list[tuple[int, int]]: ...


class CheckedSegment(Protocol):
    """The interface of a segment that a check uses (segment.LogSegment)."""

    @property
    def base_offset(self) -> int: ...

    @property
    def index_interval_bytes(self) -> int: ...

    @property
    def offset_index(self) -> CheckedIndex: ...

    @property
    def checked(self) -> Checked | None: ...

    def checked_from(self, offset: int) -> tuple[int, int]: ...

    def read_bytes(self, position: int, size_bytes: int) -> bytes: ...


class DamagedRecordsError(CorruptMessageError):
    """Raised if the records at an offset are damaged. A reader can continue at `next_offset`."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class Checked:
    """The results of the checks of one segment. They cover the first `size_bytes` bytes of the segment's file, which
    were in the file at the broker's start."""

    __slots__ = ("_ends", "_starts", "damaged", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        #: The damaged parts in order of position. If there is any damage, the list is complete.
        self.damaged: list[Damage] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def copy(self) -> Checked:
        made = Checked(self.size_bytes)
        made.damaged, made._starts, made._ends = self.damaged[:], self._starts[:], self._ends[:]
        return made

    def add(self, start: int, end: int) -> None:
        """Records that the batches from position `start` to position `end` are good."""
        starts, ends = self._starts, self._ends
        first = bisect_right(ends, start - 1)
        last = bisect_right(starts, end)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last], ends[first:last] = [start], [end]

    def take(self, other: Checked) -> None:
        """Adds the results of another check of the same file."""
        for start, end in zip(other._starts, other._ends, strict=True):
            self.add(start, end)
        if other.damaged and not self.damaged:
            self.damaged = other.damaged

    def end_from(self, position: int) -> int:
        """Returns the position up to which the batches from `position` on are known to be good; `position` itself if
        nothing is known. Bytes written after the broker's start count as good."""
        if position >= self.size_bytes:
            return _INT32_MAX
        index = bisect_right(self._starts, position) - 1
        if index < 0 or self._ends[index] <= position:
            return position
        end = self._ends[index]
        return _INT32_MAX if end >= self.size_bytes else end

    def damage_at(self, offset: int) -> Damage | None:
        """Returns the damage that contains an offset; None if the offset is not damaged."""
        for damage in self.damaged:
            if damage.offset <= offset < damage.next_offset:
                return damage
        return None

    def floor(self, offset: int) -> int:
        """Returns the end position of the last damage before an offset. The search for a batch begins there or
        later."""
        return max((damage.end_position for damage in self.damaged if damage.next_offset <= offset), default=0)

    def after_damage(self, position: int) -> int:
        """Returns `position`, or the end of the damage that contains it."""
        return next(
            (damage.end_position for damage in self.damaged if damage.position <= position < damage.end_position),
            position,
        )

    def next_damage(self, position: int) -> int:
        """Returns the start of the first damage after a position. Returns a very large number if there is none."""
        return next((damage.position for damage in self.damaged if damage.position > position), _INT64_MAX)

    def forget_from(self, position: int) -> None:
        """Removes the results about everything from `position` on, because the file now ends there."""
        self.size_bytes = min(self.size_bytes, position)
        self.damaged = [damage for damage in self.damaged if damage.position < position]

    @property
    def is_whole(self) -> bool:
        """True if all bytes from the broker's start were checked and are good."""
        return not self.damaged and self.end_from(0) >= self.size_bytes


def check(segment: CheckedSegment, offset: int, bound: int) -> list[Entry] | None:
    """Checks some megabytes of batches around an offset, and records the result in `segment.checked`. The segment ends
    before the offset `bound`. If a fault is found, the whole segment is inspected, and the new entries of its indexes
    are returned, since the indexes may be wrong. Otherwise None is returned."""
    checked = segment.checked
    assert checked is not None
    if checked.damaged:
        return None  # the damage is already known
    try:
        start, floor = segment.checked_from(offset)
    except _NO_BATCH:
        return inspect(segment, bound, indexed_positions(segment))
    if start >= checked.size_bytes:
        return None
    run = _GoodRun(segment, start, checked.size_bytes, floor, index_interval_bytes=0)
    run.go(CHECK_BYTES)
    while run.has_moved and run.last_offset < offset and run.has_more:
        run.go(run.position - start + CHECK_BYTES)
    if not run.has_moved or not _is_followed(segment, run, checked.size_bytes, bound) or not _is_indexed(segment, run):
        return inspect(segment, bound, indexed_positions(segment))
    checked.add(start, run.position)
    return None


def _is_followed(segment: CheckedSegment, run: _GoodRun, end: int, bound: int) -> bool:
    """Returns true if a run of good batches reaches the end of the file and ends before `bound`, or if a batch with
    higher offsets follows the run."""
    if run.position >= end:
        return run.last_offset < bound
    following = _header_in(segment.read_bytes(run.position, HEADER_SIZE))
    return (
        following is not None and following.base_offset > run.last_offset and following.size_bytes <= end - run.position
    )


def _is_indexed(segment: CheckedSegment, run: _GoodRun) -> bool:
    """Returns true if the offset index agrees with the batches of a run. The offset of an index entry must be at least
    the last offset of the batch at its position."""
    found = {entry.position: entry.last_offset for entry in run.entries}
    if run.start not in found:
        found[run.start] = read_header(segment.read_bytes(run.start, HEADER_SIZE)).last_offset
    entries = segment.offset_index.between(run.start, run.position)
    return all(offset >= found.get(position, _INT64_MAX) for offset, position in entries)


class _GoodRun:
    """A run: consecutive good batches of a segment, from a position on."""

    def __init__(self, segment: CheckedSegment, position: int, end: int, floor: int, index_interval_bytes: int) -> None:
        """`floor` is the last offset before the run of good batches."""
        self._segment = segment
        self._end = end
        self.start = self.position = position
        self.entries: list[Entry] = []
        self._scan = BatchScan(max(floor + 1, segment.base_offset), index_interval_bytes, _INT32_MAX)
        #: The last offset of the run after its last batch was removed from it; None if that did not happen.
        self._dropped_to: int | None = None
        self._has_stopped = False
        #: The start of the piece that was read last, and the last offset before that piece.
        self._piece = position, floor

    @property
    def has_moved(self) -> bool:
        return self.position > self.start

    @property
    def has_more(self) -> bool:
        """True if the run may continue: neither the end of the file nor a bad batch was reached."""
        return self.position < self._end and not self._has_stopped

    @property
    def last_offset(self) -> int:
        return self._scan.last_offset if self._dropped_to is None else self._dropped_to

    def go(self, at_least: int) -> None:
        """Reads further batches until the run has `at_least` bytes, or a bad batch is found."""
        wanted = CHECK_BYTES
        while self.position < self._end and self.position - self.start < at_least:
            data = memoryview(self._segment.read_bytes(self.position, min(wanted, self._end - self.position)))
            piece, good = (self.position, self.last_offset), 0
            while good < len(data) and (more := self._scan.feed(data, good, len(data), self.position + good)):
                self.entries += map(Entry._make, self._scan.take_entries())
                self._scan.take_epochs()
                good += more
            if good:
                self._piece, self.position, wanted = piece, self.position + good, CHECK_BYTES
                continue
            header = _header_in(data)
            if header is None or not wanted < header.size_bytes <= self._end - self.position:
                self._has_stopped = True
                return
            wanted = header.size_bytes

    def last_batch(self) -> tuple[int, BatchHeader, int]:
        """Returns the position and header of the run's last batch, and the last offset before that batch."""
        position, floor = self._piece
        while True:
            header = read_header(self._segment.read_bytes(position, HEADER_SIZE))
            if position + header.size_bytes >= self.position:
                return position, header, floor
            position, floor = position + header.size_bytes, header.last_offset

    def drop_last(self) -> Damage:
        """Removes the last batch from the run and returns it as damage."""
        position, header, self._dropped_to = self.last_batch()
        dropped = Damage(
            position, self.position, 0, 0, f"its base offset {header.base_offset} does not fit between its neighbours"
        )
        self.position = position
        self.entries = [entry for entry in self.entries if entry.position < position]
        return dropped


def inspect(segment: CheckedSegment, bound: int, positions: Sequence[int]) -> list[Entry]:
    """Checks a whole segment, records the result in `segment.checked`, and returns the index entries of its good
    batches. `positions` are possible starts of batches. They are tried to find the next good batch far after a damaged
    batch."""
    checked = segment.checked
    assert checked is not None
    end, last_offset, position = checked.size_bytes, segment.base_offset - 1, 0
    runs: list[_GoodRun] = []
    damaged: list[Damage] = []
    while position < end:
        run = _GoodRun(segment, position, end, last_offset, segment.index_interval_bytes)
        run.go(end)
        runs.append(run)
        last_offset, position = run.last_offset, run.position
        if position < end:
            found = _fault_at(segment, position, end)
            if isinstance(found, BatchHeader):
                # The batch itself is good, but its offset contradicts the batch before it.
                if run.has_moved and _is_first_wrong(run, found):
                    damaged.append(run.drop_last())
                    last_offset = run.last_offset
                    continue
                reason, following = (
                    f"base offset {found.base_offset} does not follow {last_offset}",
                    position + found.size_bytes,
                )
            else:
                reason, following = found, _resumed(segment, position, end, last_offset, bound, positions)
            damaged.append(Damage(position, following, 0, 0, reason))
            position = following
    if runs and last_offset >= bound and runs[-1].position == end:
        damaged.append(runs[-1].drop_last())
    runs = [run for run in runs if run.has_moved]
    checked.damaged = list(_with_offsets(segment, runs, _joined(damaged), bound))
    for run in runs:
        checked.add(run.start, run.position)
    return _entries(segment, runs, bool(checked.damaged))


def _is_first_wrong(run: _GoodRun, following: BatchHeader) -> bool:
    """Returns true if, of two neighbouring batches with contradicting offsets, the first batch has the wrong base
    offset. A batch that directly follows the offset before it is taken as correct."""
    _, header, floor = run.last_batch()
    return following.base_offset > floor and header.base_offset != floor + 1


def _fault_at(segment: CheckedSegment, position: int, end: int) -> BatchHeader | str:
    """Returns the header of the good batch at a position, or the reason why there is no good batch."""
    try:
        header = read_header(segment.read_bytes(position, min(HEADER_SIZE, end - position)))
    except _NO_BATCH as error:
        return error.message
    if header.size_bytes < HEADER_SIZE or header.last_offset_delta < 0:
        return "there is no batch"
    if header.size_bytes > end - position:
        return f"the batch takes {header.size_bytes} bytes, {end - position} are left"
    data = segment.read_bytes(position, header.size_bytes)
    if len(data) < header.size_bytes or crc32c(memoryview(data), ATTRIBUTES_OFFSET, header.size_bytes) != header.crc:
        return "the CRC does not fit"
    return header


def _header_in(data: bytes | memoryview) -> BatchHeader | None:
    """Returns the batch header at the start of the data; None if there is no valid header."""
    try:
        header = read_header(data)
    except _NO_BATCH:
        return None
    return header if header.size_bytes >= HEADER_SIZE and header.last_offset_delta >= 0 else None


def _resumed(
    segment: CheckedSegment, position: int, end: int, last_offset: int, bound: int, positions: Sequence[int]
) -> int:
    """Returns the position of the next good batch after a bad batch. It tries the end of the bad batch by its length,
    every byte nearby, and `positions`. Returns the end of the segment if no good batch follows."""
    header = _header_in(segment.read_bytes(position, HEADER_SIZE))
    following = end if header is None else position + header.size_bytes
    near = segment.read_bytes(position, min(_SEARCH_BYTES, end - position))
    for candidate in chain(
        (following,), _looks_like_batches(near, position), positions[bisect_right(positions, position + len(near)) :]
    ):
        if position < candidate < end:
            found = _fault_at(segment, candidate, end)
            if not isinstance(found, BatchHeader) or not last_offset < found.base_offset <= found.last_offset < bound:
                continue
            # Records may contain bytes that look like a batch. So the batch that follows the candidate is also
            # checked.
            next_position = candidate + found.size_bytes
            if (
                next_position == end
                or candidate == following
                or isinstance(_fault_at(segment, next_position, end), BatchHeader)
            ):
                return candidate
        elif candidate == end and header is not None and header.base_offset > last_offset:
            return end
    return end


def _looks_like_batches(data: bytes, position: int) -> Iterator[int]:
    """Yields the positions in `data` at which a batch header may begin, except its first byte. `position` is the
    position of `data` in the file."""
    at = data.find(_MAGIC, MAGIC_OFFSET + 1)
    while at >= 0:
        start = at - MAGIC_OFFSET
        if len(data) - start < HEADER_SIZE or _header_in(data[start : start + HEADER_SIZE]) is not None:
            yield position + start
        at = data.find(_MAGIC, at + 1)


def indexed_positions(segment: CheckedSegment) -> list[int]:
    """Returns the positions of batches in the offset index; an empty list if the index is damaged."""
    try:
        return [position for _, position in segment.offset_index.entries()]
    except CorruptIndexError:
        return []


def _joined(damaged: list[Damage]) -> Iterator[Damage]:
    """Yields the damaged parts in order of position. Adjacent parts are joined."""
    before: Damage | None = None
    for item in sorted(damaged):
        if before is not None and item.position <= before.end_position:
            before = before._replace(end_position=max(before.end_position, item.end_position))
            continue
        if before is not None:
            yield before
        before = item
    if before is not None:
        yield before


def _with_offsets(
    segment: CheckedSegment, runs: list[_GoodRun], damaged: Iterator[Damage], bound: int
) -> Iterator[Damage]:
    """Yields the damaged parts with their offsets, which are the offsets between the good batches on both sides of the
    part."""
    ends = {run.position: run.last_offset for run in runs}
    starts = {run.start for run in runs}
    for item in damaged:
        following = bound
        if item.end_position in starts:
            following = read_header(segment.read_bytes(item.end_position, HEADER_SIZE)).base_offset
        yield item._replace(offset=ends.get(item.position, segment.base_offset - 1) + 1, next_offset=following)


def _entries(segment: CheckedSegment, runs: list[_GoodRun], has_damage: bool) -> list[Entry]:
    """Returns the index entries of all runs. The first batch of each run after damage always gets an entry, so that a
    look-up of a later offset never begins before the damage."""
    entries: list[Entry] = []
    newest, newest_offset = -1, segment.base_offset
    for run in runs:
        found = run.entries
        if has_damage and run.start > 0:
            header = read_header(segment.read_bytes(run.start, HEADER_SIZE))
            found = [
                Entry(header.last_offset, run.start, header.records_timestamp, header.last_offset),
                *(item for item in found if item.position > run.start),
            ]
        for entry in found:
            if entry.max_timestamp > newest:
                newest, newest_offset = entry.max_timestamp, entry.max_timestamp_offset
            entries.append(entry._replace(max_timestamp=newest, max_timestamp_offset=newest_offset))
    return entries
