"""Message sets as producers of before 0.11 sent them."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.records import codec as records_codec
from jesenska.records.compression import compress, with_old_lz4_checksum
from jesenska.records.header import Codec

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
#: Timestamp, key, value.
Row = tuple[int, bytes | None, bytes | None]


def message_set(rows: Sequence[Row], magic: int, codec: Codec = Codec.NONE, first_offset: int = 0) -> bytearray:
    """The rows in format v0 or v1; compressed they are one message."""
    inside = bytearray()
    for index, (timestamp, key, value) in enumerate(rows):
        records_codec.append_message(
            inside, index if codec and magic else first_offset + index, magic, 0, timestamp, key, value
        )
    if not codec:
        return inside
    packed = compress(codec, inside)
    whole = bytearray()
    sent = with_old_lz4_checksum(packed) if codec is Codec.LZ4 and not magic else packed
    records_codec.append_message(
        whole, first_offset + len(rows) - 1, magic, codec, max(row[0] for row in rows), None, sent
    )
    return whole
