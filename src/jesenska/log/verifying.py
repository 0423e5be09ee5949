"""Reads the segments of log directories completely and reports damage (`checked_batches.inspect`): wrong CRCs, and
offsets that do not follow one another. No file is locked or changed, so a broker may be using them.

Changes that a running broker makes do not count as damage:

    a file was removed or replaced                 deleted, compacted: it is left out
    a file is shorter than before                  truncated: it is read again
    the end of a partition's last segment          is being written; after a crash the next start cuts it off

A broker checks unsynced records when it starts, and other records when they are first read. This check is for records
that no client reads, for example the old segments of a follower before it becomes leader."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.log.segments.checked_batches import Checked, CheckedIndex, Damage, inspect
from jesenska.records.header import MAGIC_OFFSET, MAGIC_V2

_SEGMENT = re.compile(r"\d{20}\.log")
_INT64_MAX = 2**63 - 1
#: A function that is called with a file and a number of bytes before these bytes are read.
Reads = Callable[[Path, int], None]


class VerifiedSegment(NamedTuple):
    """The result of verifying one segment file."""

    topic: str
    partition: int
    path: Path
    size_bytes: int
    damaged: Sequence[Damage]
    #: True if the file has messages of a format before Kafka 0.11, which are not checked.
    is_old: bool = False


def verified(directory: Path, reads: Reads, *, ends_are_whole: bool) -> Iterator[VerifiedSegment]:
    """Yields each segment of a log directory with the result of its check. Raises OSError if a segment cannot be read.
    `ends_are_whole` is true if no broker is running on the directory, and the last shutdown was clean."""
    for place in sorted(directory.iterdir()):
        topic_partition = TopicPartition.of_directory(place.name)
        if topic_partition is None or not place.is_dir():
            continue
        try:
            paths = sorted(path for path in place.iterdir() if _SEGMENT.fullmatch(path.name))
        except FileNotFoundError:
            continue
        for path, following in pairwise([*paths, None]):
            assert path is not None
            bound = _INT64_MAX if following is None else int(following.stem)
            with suppress(FileNotFoundError):
                # The file is checked again if damage is found, since a running broker may just have changed it.
                for _ in range(2):
                    found = _look(path, bound, reads, is_last=following is None and not ends_are_whole)
                    if found is None or not found[1]:
                        break
                if found is not None:
                    yield VerifiedSegment(topic_partition.topic, topic_partition.partition, path, *found)


def _look(path: Path, bound: int, reads: Reads, *, is_last: bool) -> tuple[int, Sequence[Damage], bool] | None:
    """Returns the size of the file, its damage, and true if it has an old format. Returns None for a file that was
    changed during the check."""
    with path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        size_bytes = before.st_size
        if bound != _INT64_MAX and hasattr(os, "posix_fadvise"):
            # The page cache is dropped first, so that the content of the disk itself is read.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        segment = _Segment(path, file.fileno(), size_bytes, reads)
        first = segment.read_bytes(0, MAGIC_OFFSET + 1) if size_bytes > MAGIC_OFFSET else b""
        if first and first[MAGIC_OFFSET] < MAGIC_V2 and any(first):
            return size_bytes, (), True
        inspect(segment, bound, _indexed(path))
    after = path.stat()
    if (after.st_ino, after.st_dev) != (before.st_ino, before.st_dev):
        return None
    damaged = [item for item in segment.checked.damaged if not (is_last and item.end_position >= size_bytes)]
    return size_bytes, damaged, False


def _indexed(path: Path) -> list[int]:
    """Returns the positions of batches in the segment's offset index."""
    try:
        data = path.with_suffix(".index").read_bytes()
    except OSError:
        return []
    return sorted({position for _, position in iter_unpack(">ii", data[: len(data) // 8 * 8]) if position > 0})


class _Segment:
    """Gives `inspect` the attributes of a segment that it reads."""

    #: An index interval so large that no index entries are made.
    index_interval_bytes = _INT64_MAX
    offset_index: CheckedIndex

    def __init__(self, path: Path, descriptor: int, size_bytes: int, reads: Reads) -> None:
        self.base_offset = int(path.stem)
        self.checked = Checked(size_bytes)
        self._path = path
        self._descriptor = descriptor
        self._reads = reads

    def checked_from(self, offset: int) -> tuple[int, int]:
        return 0, offset - 1

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        self._reads(self._path, size_bytes)
        return os.pread(self._descriptor, size_bytes, position)
