"""Compresses a batch again with another codec, for a topic's `compression.type`. Offsets, timestamps and all other
fields of the header are unchanged, except for the CRC."""

from __future__ import annotations

from jesenska.records.compression import decompress
from jesenska.records.encode import reseal_batch
from jesenska.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, Codec, read_header


def recompress(batch: Buffer, target: Codec, level: int | None, limit: int) -> tuple[bytearray, BatchHeader]:
    """Returns the batch with its records compressed by `target`, and its header. `level` is on that codec's own scale;
    None means its default. Raises InvalidRecordError if the records take more than `limit` bytes or cannot be read."""
    header = read_header(batch)
    made = bytearray(HEADER_SIZE)
    with memoryview(batch) as view:
        body = view[HEADER_SIZE : header.size_bytes]
        made += decompress(header.codec, body, limit) if header.is_compressed else body
        body.release()
    attributes = header.attributes & ~CODEC_MASK | target
    made = reseal_batch(
        made, header, attributes, header.record_count, header.base_timestamp, header.max_timestamp, level=level
    )
    return made, read_header(made)
