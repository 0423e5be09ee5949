"""A single record as a value, and how it lies in a batch (format v2):

    length            varint    bytes of the record that follow
    attributes        1 byte    unused
    timestamp_delta   varlong   to the batch's base_timestamp
    offset_delta      varint    to the batch's base_offset
    key_length        varint    -1: null
    key
    value_length      varint    -1: null
    value
    header_count      varint
    header            times header_count:  name_length varint, name (UTF-8), value_length varint (-1: null), value

Varints are zigzag. Left out: how batches are made (builder.py) and taken apart (reader.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from jesenska.records.header import Buffer, TimestampType

#: Name and value of each header; a name of bytes is UTF-8 already.
Headers: TypeAlias = Sequence[tuple[str | bytes, Buffer | None]]
#: A record to write: timestamp in ms, key, value, headers.
RecordInput: TypeAlias = tuple[int, Buffer | None, Buffer | None, Headers]


class Record(NamedTuple):
    """One record as it was read."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
