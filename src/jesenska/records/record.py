"""A single record as a value, and its layout in a batch (format v2):

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

Varints are zigzag. Batches are encoded in encode.py and decoded in decode.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from jesenska.records.header import Buffer, TimestampType

#: Name and value of each record header. A name given as bytes is already UTF-8.
Headers: TypeAlias = Sequence[tuple[str | bytes, Buffer | None]]
#: A record to be written: timestamp in ms, key, value, headers.
RecordInput: TypeAlias = tuple[int, Buffer | None, Buffer | None, Headers]


class Record(NamedTuple):
    """A record that was read from a batch or a message set."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
