"""Rewrites segments that have formats from before Kafka 0.11 (message sets, v0 and v1) as batches, because a log of
jesenska stores only batches. (`records.message_set` shows the layout of a message.)

    every message keeps its offset, time, key and value; messages that were compressed together become one batch with
    the same codec, and uncompressed messages are combined into batches of up to 16 KB

Apache Kafka from 0.11 on can read the rewritten segment, so the directory is usable at any moment:

    00000000000000000000.log.cleaned    the new segment while it is written; the next start of a broker removes it
    .index and .timeindex               removed before the next step
    00000000000000000000.log            replaced by renaming; a broker that starts rebuilds the indexes

To find partitions with old segments, only two parts of each segment are checked: its beginning, and its end from the
last entry of the offset index on. A check of every batch would read all data. So a partition is not found if old
formats are only in the middle of segments. If one segment of a partition has an old format, every batch of the
partition is checked.

The file keeps its time of modification, which retention uses for records without timestamps. A damaged segment is
refused: Kafka repairs it at its next start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.interchange.mapped_file import content_of
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.recovery import CLEANED_SUFFIX
from jesenska.log.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from jesenska.records.encode import reencode_batch
from jesenska.records.header import (
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_OFFSET,
    MAGIC_V2,
    read_batch_length,
    read_header,
)
from jesenska.records.message_set import decode_message_set, whole_messages
from jesenska.records.record import Record

#: The size in bytes up to which uncompressed messages are combined into one batch. It is the producers' default for
#: batch.size.
_BATCH_BYTES = 16 * 1024
_INDEX_ENTRY = Struct(">ii")
_INT32_MAX = 2**31 - 1
_ATTRIBUTES_AT = 17
_CODEC_MASK, _APPEND_TIME_BIT = 7, 8

#: A function that is called with the number of bytes checked since its last call.
Progress = Callable[[int], None]


def convert_partition(directory: Path, files: FileLayer, progress: Progress) -> int:
    """Rewrites the segments of this partition that have old formats, and returns the number of rewritten segments.
    Raises JesenskaError if a segment cannot be read."""
    converted = 0
    for path in sorted(directory.glob("*" + LOG_SUFFIX)):
        size = path.stat().st_size
        if size and _has_old_format(path):
            _convert(path, files)
            converted += 1
        progress(size)
    return converted


def has_old_formats(directory: Path, progress: Callable[[], None] = lambda: None) -> bool:
    """Returns true if a segment of this partition is found to have messages of an old format. `progress` is called
    before each segment."""
    for path in directory.glob("*" + LOG_SUFFIX):
        progress()
        if path.stat().st_size and _shows_old_format(path):
            return True
    return False


def _shows_old_format(path: Path) -> bool:
    """Returns True if the segment begins with a message of an old format, or contains such a message after the last
    entry of its offset index. If the index does not match the segment, the whole segment is checked."""
    with path.open("rb") as file:
        if (first := _frame(file, 0)) is None or first[0] <= 0:
            return False
        if first[1] < MAGIC_V2:
            return True
        position = _last_indexed(path.with_suffix(INDEX_SUFFIX))
        while (found := _frame(file, position)) is not None:
            size, magic = found
            if size <= 0:
                break
            if magic < MAGIC_V2:
                return True
            if magic > MAGIC_V2:
                return _has_old_format(path)
            position += LENGTH_OVERHEAD + size
    return False


def _frame(file: BinaryIO, position: int) -> tuple[int, int] | None:
    """Returns the size field and the magic of the batch or message at a position. Returns None at the end of the
    file."""
    file.seek(position)
    head = file.read(MAGIC_OFFSET + 1)
    return (read_batch_length(head), head[MAGIC_OFFSET]) if len(head) > MAGIC_OFFSET else None


def _last_indexed(index: Path) -> int:
    """Returns the file position in the last entry of an offset index. Returns 0 if there is no valid entry, so that
    the whole segment is checked."""
    try:
        entries = index.read_bytes()
    except OSError:
        return 0
    last = 0
    for _, position in _INDEX_ENTRY.iter_unpack(entries[: len(entries) // _INDEX_ENTRY.size * _INDEX_ENTRY.size]):
        if position <= last:
            break
        last = position
    return last


def _has_old_format(path: Path) -> bool:
    data = content_of(path)
    position = 0
    while position + MAGIC_OFFSET < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if size <= 0:
            return False  # zeros at the end, or unreadable bytes: recovery decides about them
        if data[position + MAGIC_OFFSET] < MAGIC_V2 and position + LENGTH_OVERHEAD + size <= len(data):
            return True
        position += LENGTH_OVERHEAD + size
    return False


def _convert(path: Path, files: FileLayer) -> None:
    new = path.with_name(path.name + CLEANED_SUFFIX)
    modified_ms = files.modified_ms(path)
    files.unlink(new)
    descriptor = files.open(new, os.O_RDWR | os.O_CREAT)
    try:
        position = 0
        try:
            for piece in new_batches(content_of(path)):
                with memoryview(piece) as content:
                    files.write_all(descriptor, content, position)
                position += len(piece)
        except KafkaError as error:
            raise JesenskaError(
                f"The segment {path} cannot be read ({error.message.rstrip('.')}): start Kafka with it once more and "
                "shut Kafka down cleanly, then import."
            ) from error
        files.fsync(descriptor)
    except BaseException:
        files.unlink(new)
        raise
    finally:
        files.close(descriptor)
    files.set_modified_ms(new, modified_ms)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        files.unlink(path.with_suffix(suffix))
    files.rename(new, path)
    files.fsync_directory(path.parent)


def new_batches(data: memoryview) -> Iterator[memoryview | bytearray]:
    """Yields a segment's content as batches. Existing batches are unchanged; messages of old formats become new
    batches. Raises KafkaError for content that cannot be read."""
    position = 0
    while position < len(data):
        if not _begins_message(data, position):
            begin, position = position, _end_of_batches(data, position)
            yield data[begin:position]
            continue
        begin = position
        run: list[Record] = []
        run_bytes = run_attributes = 0
        # Messages are taken one by one, because zeros after the last message are not a message.
        while _begins_message(data, position) and (message := next(whole_messages(data, position), None)) is not None:
            at, end, _ = message
            attributes = (
                data[at + _ATTRIBUTES_AT] if data[at + MAGIC_OFFSET] else data[at + _ATTRIBUTES_AT] & _CODEC_MASK
            )
            records = decode_message_set(data[at:end])
            is_compressed = attributes & _CODEC_MASK
            if run and (is_compressed or run_bytes + end - at > _BATCH_BYTES or not _fits(run[0], records[0])):
                yield _batch(run, run_attributes)
                run, run_bytes = [], 0
            if not is_compressed:
                run += records
                run_bytes += end - at
                run_attributes = attributes
            elif records:
                yield _batch(records, attributes)
            position = end
        if run:
            yield _batch(run, run_attributes)
        if position == begin:
            # An incomplete message at the end is left unchanged; the broker's recovery removes it.
            yield data[position:]
            return


def _begins_message(data: memoryview, position: int) -> bool:
    """Returns True if a message of an old format begins at `position`. Zero bytes do not count as a message."""
    return (
        position + MAGIC_OFFSET < len(data)
        and data[position + MAGIC_OFFSET] < MAGIC_V2
        and any(data[position : position + MAGIC_OFFSET])
    )


def _end_of_batches(data: memoryview, position: int) -> int:
    """Returns the position after the batches that begin at `position`. Returns the end of the file if neither a
    message nor a complete batch follows there (for example zeros, or a part of a batch)."""
    while position + MAGIC_OFFSET < len(data) and data[position + MAGIC_OFFSET] >= MAGIC_V2:
        try:
            size = read_header(data, position).size_bytes
        except KafkaError:
            return len(data)
        if size <= LENGTH_OVERHEAD or position + size > len(data):
            return len(data)
        position += size
    return position if _begins_message(data, position) else len(data)


def _fits(first: Record, record: Record) -> bool:
    """Returns True if `record` may be in the same batch as `first`, the batch's first record. The difference of their
    offsets must fit into 31 bits. Both must have the same kind of timestamp; with log append time, both must have the
    same timestamp."""
    return (
        record.offset - first.offset < _INT32_MAX
        and record.timestamp_type == first.timestamp_type
        and (not record.timestamp_type or record.timestamp_ms == first.timestamp_ms)
        and (record.timestamp_ms < 0) == (first.timestamp_ms < 0)
    )


def _batch(records: list[Record], attributes: int) -> bytearray:
    kept = attributes & _CODEC_MASK
    append_time = None
    if attributes & _APPEND_TIME_BIT:
        kept |= LOG_APPEND_TIME_BIT
        append_time = records[0].timestamp_ms
    first, last = records[0].offset, records[-1].offset
    return reencode_batch(records, first, last - first, kept, append_time)
