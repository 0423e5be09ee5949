"""What a start found in a segment's file, checked before it is served. Nobody reads a file from end to end after an
orderly stop, so a disk that has lost or changed bytes is noticed when they are first read, and not by a client.

    Checked          which bytes of the file were checked, and which of them are damaged
    check            checks the batches about an offset: their CRCs, and that their offsets follow one another
    inspect          the same for the whole file, where something is wrong: what is damaged, where the good batches
                     go on, and the index entries of those

Offsets of damaged batches are refused (CORRUPT_MESSAGE), those before and behind them are served. What this process
has written, or checked at its start, is not looked at again.

A batch's base offset is not under its CRC. It is judged by its neighbours: it must be above the last offset before
it, and the next must be above its own; of two that contradict each other the one that does not follow at once on what
is before them is damaged, or both.

Any thread: a copy of a segment (`LogSegment.copy`) is read, and its owner learns what was found.
"""

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

#: Checked at a time: some milliseconds of work.
CHECK_BYTES = 4 * 1024 * 1024
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
#: So far behind a damaged batch good ones are looked for at every byte.
_SEARCH_BYTES = 1024 * 1024
_MAGIC = bytes([MAGIC_V2])
#: What the bytes of no batch are taken for. A magic of 0 or 1 in a log of batches is damage, too.
_NO_BATCH = (CorruptMessageError, UnsupportedForMessageFormatError)


class Damage(NamedTuple):
    """A stretch of a file that holds no good batch."""

    position: int
    end_position: int
    #: The first offset that may be in it, and the first behind it.
    offset: int
    next_offset: int
    reason: str

    def described(self, path: Path) -> str:
        """What an operator should know."""
        what = f"{path} is damaged from position {self.position} to {self.end_position} ({self.reason})"
        if self.offset >= self.next_offset:
            return f"{what}: no record is lost by that"
        return (
            f"{what}: offsets {self.offset} to {self.next_offset - 1} are refused, the others are served. Restore "
            f"the file from a copy, or have clients "
            f"go on at offset {self.next_offset}"
        )


class Entry(NamedTuple):
    """An index entry of a good batch: its last offset, its position, and the largest timestamp so far with its
    offset."""

    last_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class CheckedIndex(Protocol):
    """A segment's offset index (offset_index)."""

    def entries(self) -> list[tuple[int, int]]: ...

    def between(self, start: int, end: int) -> list[tuple[int, int]]: ...


class CheckedSegment(Protocol):
    """What is asked of a segment (segment.LogSegment)."""

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
    """The records at an offset are damaged; reading can go on at `next_offset`."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class Checked:
    """Of one segment: what was found in the first `size_bytes` of its file, those that were there at the start."""

    __slots__ = ("_ends", "_starts", "damaged", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        #: In order of their positions; all of the segment's, once there is one.
        self.damaged: list[Damage] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def copy(self) -> Checked:
        made = Checked(self.size_bytes)
        made.damaged, made._starts, made._ends = self.damaged[:], self._starts[:], self._ends[:]
        return made

    def add(self, start: int, end: int) -> None:
        """The batches from one position to another are good."""
        starts, ends = self._starts, self._ends
        first = bisect_right(ends, start - 1)
        last = bisect_right(starts, end)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last], ends[first:last] = [start], [end]

    def take(self, other: Checked) -> None:
        """Takes over what another has found in the same file."""
        for start, end in zip(other._starts, other._ends, strict=True):
            self.add(start, end)
        if other.damaged and not self.damaged:
            self.damaged = other.damaged

    def end_from(self, position: int) -> int:
        """Up to where the batches from `position` on are good: `position` itself if they are not known to be. What
        lies behind what was there at the start is good."""
        if position >= self.size_bytes:
            return _INT32_MAX
        index = bisect_right(self._starts, position) - 1
        if index < 0 or self._ends[index] <= position:
            return position
        end = self._ends[index]
        return _INT32_MAX if end >= self.size_bytes else end

    def damage_at(self, offset: int) -> Damage | None:
        """The damage that an offset lies in."""
        for damage in self.damaged:
            if damage.offset <= offset < damage.next_offset:
                return damage
        return None

    def floor(self, offset: int) -> int:
        """The position behind all damage before an offset: no batch is looked for across it."""
        return max((damage.end_position for damage in self.damaged if damage.next_offset <= offset), default=0)

    def behind_damage(self, position: int) -> int:
        """The position itself, or the one behind the damage that it is in."""
        return next(
            (damage.end_position for damage in self.damaged if damage.position <= position < damage.end_position),
            position,
        )

    def next_damage(self, position: int) -> int:
        """Where the next damage behind a position begins."""
        return next((damage.position for damage in self.damaged if damage.position > position), _INT64_MAX)

    def forget_from(self, position: int) -> None:
        """The file ends there now."""
        self.size_bytes = min(self.size_bytes, position)
        self.damaged = [damage for damage in self.damaged if damage.position < position]

    @property
    def is_whole(self) -> bool:
        """True if everything was checked, and is good."""
        return not self.damaged and self.end_from(0) >= self.size_bytes


def check(segment: CheckedSegment, offset: int, bound: int) -> list[Entry] | None:
    """Checks the batches about an offset of a segment that ends before offset `bound`, some megabytes of them, into
    `segment.checked`. Where something is wrong the whole segment is inspected; the entries of its indexes, which may
    be what is wrong, are given then."""
    checked = segment.checked
    assert checked is not None
    if checked.damaged:
        return None  # all is known
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
    """Whether what stands behind a run of good batches goes on where its offsets end."""
    if run.position >= end:
        return run.last_offset < bound
    following = _header_in(segment.read_bytes(run.position, HEADER_SIZE))
    return (
        following is not None and following.base_offset > run.last_offset and following.size_bytes <= end - run.position
    )


def _is_indexed(segment: CheckedSegment, run: _GoodRun) -> bool:
    """Whether the entries of the offset index are of batches of a run, of which every batch has an entry. An entry
    says that no earlier batch has its offset or a later one."""
    found = {entry.position: entry.last_offset for entry in run.entries}
    if run.start not in found:
        found[run.start] = read_header(segment.read_bytes(run.start, HEADER_SIZE)).last_offset
    entries = segment.offset_index.between(run.start, run.position)
    return all(offset >= found.get(position, _INT64_MAX) for offset, position in entries)


class _GoodRun:
    """Batches that are good one after the other, from a position on."""

    def __init__(self, segment: CheckedSegment, position: int, end: int, floor: int, index_interval_bytes: int) -> None:
        """`floor`: the last offset before it."""
        self._segment = segment
        self._end = end
        self.start = self.position = position
        self.entries: list[Entry] = []
        self._scan = BatchScan(max(floor + 1, segment.base_offset), index_interval_bytes, _INT32_MAX)
        #: The last offset since the last batch was taken out.
        self._dropped_to: int | None = None
        self._has_stopped = False
        #: Where the piece that was read last begins, and the last offset before it.
        self._piece = position, floor

    @property
    def has_moved(self) -> bool:
        return self.position > self.start

    @property
    def has_more(self) -> bool:
        """It has not met its end, nor a batch that is not good."""
        return self.position < self._end and not self._has_stopped

    @property
    def last_offset(self) -> int:
        return self._scan.last_offset if self._dropped_to is None else self._dropped_to

    def go(self, at_least: int) -> None:
        """Goes on until so many bytes are good, or to the first batch that is not."""
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
        """Position and header of the last batch, and the last offset before it."""
        position, floor = self._piece
        while True:
            header = read_header(self._segment.read_bytes(position, HEADER_SIZE))
            if position + header.size_bytes >= self.position:
                return position, header, floor
            position, floor = position + header.size_bytes, header.last_offset

    def drop_last(self) -> Damage:
        """Takes the last batch out: it is what does not fit."""
        position, header, self._dropped_to = self.last_batch()
        dropped = Damage(
            position, self.position, 0, 0, f"its base offset {header.base_offset} does not fit between its neighbours"
        )
        self.position = position
        self.entries = [entry for entry in self.entries if entry.position < position]
        return dropped


def inspect(segment: CheckedSegment, bound: int, positions: Sequence[int]) -> list[Entry]:
    """Checks a whole segment, into `segment.checked`; the index entries of its good batches. Batches may begin at
    `positions`: good ones far behind a damaged one are looked for there."""
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
                # It is whole, and contradicts the one before it.
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
    """Of two good batches that contradict each other: whether it is the first whose base offset is wrong. One that
    follows at once on what is before is right."""
    _, header, floor = run.last_batch()
    return following.base_offset > floor and header.base_offset != floor + 1


def _fault_at(segment: CheckedSegment, position: int, end: int) -> BatchHeader | str:
    """The header of the good batch at a position, or why there is none."""
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
    """The header that data begin with; None if that is none of a batch."""
    try:
        header = read_header(data)
    except _NO_BATCH:
        return None
    return header if header.size_bytes >= HEADER_SIZE and header.last_offset_delta >= 0 else None


def _resumed(
    segment: CheckedSegment, position: int, end: int, last_offset: int, bound: int, positions: Sequence[int]
) -> int:
    """Where good batches go on behind a bad one: where its length says, at any byte that is near, or at one of the
    positions; the end if nowhere."""
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
            # Records may hold what looks like a batch; what follows such a one does not.
            behind = candidate + found.size_bytes
            if behind == end or candidate == following or isinstance(_fault_at(segment, behind, end), BatchHeader):
                return candidate
        elif candidate == end and header is not None and header.base_offset > last_offset:
            return end
    return end


def _looks_like_batches(data: bytes, position: int) -> Iterator[int]:
    """Positions of what may be headers in some bytes of a file, but for the first."""
    at = data.find(_MAGIC, MAGIC_OFFSET + 1)
    while at >= 0:
        start = at - MAGIC_OFFSET
        if len(data) - start < HEADER_SIZE or _header_in(data[start : start + HEADER_SIZE]) is not None:
            yield position + start
        at = data.find(_MAGIC, at + 1)


def indexed_positions(segment: CheckedSegment) -> list[int]:
    """Where the offset index says that batches begin; nowhere if it makes no sense."""
    try:
        return [position for _, position in segment.offset_index.entries()]
    except CorruptIndexError:
        return []


def _joined(damaged: list[Damage]) -> Iterator[Damage]:
    """Stretches in order, those that touch as one."""
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
    """With the offsets that are between the good batches on either side."""
    ends = {run.position: run.last_offset for run in runs}
    starts = {run.start for run in runs}
    for item in damaged:
        following = bound
        if item.end_position in starts:
            following = read_header(segment.read_bytes(item.end_position, HEADER_SIZE)).base_offset
        yield item._replace(offset=ends.get(item.position, segment.base_offset - 1) + 1, next_offset=following)


def _entries(segment: CheckedSegment, runs: list[_GoodRun], has_damage: bool) -> list[Entry]:
    """Those of all runs, with one for the first batch of each run behind damage, so that none is looked for across
    it."""
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
