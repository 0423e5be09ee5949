"""A batch under another codec: the same records, the same header but for codec, length and CRC."""

from __future__ import annotations

import pytest

from jesenska.base.errors import InvalidRecordError
from jesenska.records import codec as records_codec
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import ATTRIBUTES_OFFSET, CODEC_MASK, Codec
from jesenska.records.recompress import recompress

RECORDS = [(5, b"key", b"value" * 40, (("h", b"1"),)), (9, None, None, ())]


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
def test_records_and_header_stay(source: Codec, target: Codec) -> None:
    batch = encode_batch(
        RECORDS, source, producer_id=7, producer_epoch=2, base_sequence=11, leader_epoch=3, is_transactional=True
    )
    made, header = recompress(memoryview(batch), target, None, 10_000)
    assert header.codec is target
    assert header.size_bytes == len(made)
    assert header.crc == records_codec.crc32c(made, ATTRIBUTES_OFFSET, len(made))
    before = next(iter([recompress(batch, source, None, 10_000)[1]]))
    assert header._replace(batch_length=0, crc=0, attributes=0) == before._replace(batch_length=0, crc=0, attributes=0)
    assert header.attributes & ~CODEC_MASK == before.attributes & ~CODEC_MASK
    assert list(decode_batches(made)) == list(decode_batches(batch))


def test_what_follows_the_batch_is_left_out_and_a_limit_is_kept() -> None:
    batch = encode_batch(RECORDS, Codec.GZIP)
    assert recompress(bytes(batch) + b"more", Codec.NONE, None, 10_000)[0] == encode_batch(RECORDS)
    with pytest.raises(InvalidRecordError, match="more than 100 bytes"):
        recompress(batch, Codec.NONE, None, 100)
