"""Batches put together by hand, so that each field can be wrong; and random ones for property tests. Shares no code
with the tested modules."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import google_crc32c
from hypothesis import strategies as st

NOW_MS = 1_700_000_000_000


def varint(number: int) -> bytes:
    rest = (number << 1 if number >= 0 else (-number << 1) - 1) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded)


def raw_record(
    offset_delta: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    *,
    attributes: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    tail: bytes = b"",
    length_error: int = 0,
) -> bytes:
    body = bytes([attributes]) + varint(timestamp_delta) + varint(offset_delta)
    for field, length in ((key, key_length), (value, value_length)):
        true_length = -1 if field is None else len(field)
        body += varint(true_length if length is None else length) + (field or b"")
    body += varint(len(headers) if header_count is None else header_count)
    for name, data in headers:
        body += varint(len(name)) + name + varint(-1 if data is None else len(data)) + (data or b"")
    body += tail
    return varint(len(body) + length_error) + body


def raw_batch(
    body: bytes,
    count: int,
    *,
    base_offset: int = 0,
    batch_length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    covered = (
        pack(
            ">hiqqqhii",
            attributes,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        + body
    )
    checksum = int(google_crc32c.value(covered)) if crc is None else crc
    length = len(covered) + 9 if batch_length is None else batch_length
    return bytearray(pack(">qiibI", base_offset, length, leader_epoch, magic, checksum) + covered)


def with_right_crc(batch: bytes | bytearray) -> bytearray:
    """The same bytes with the right length and CRC, so that the checksum does not reveal a change."""
    mended = bytearray(batch)
    mended[8:12] = pack(">i", len(mended) - 12)
    mended[17:21] = pack(">I", google_crc32c.value(bytes(mended[21:])))
    return mended


fields = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), fields), max_size=3).map(tuple)
#: Records to write: timestamp in ms, key, value, headers.
inputs = st.lists(st.tuples(st.integers(-1, 1 << 50), fields, fields, headers), min_size=1, max_size=12)
