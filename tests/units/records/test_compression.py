"""Codecs: compressed data has the form of Kafka's clients, decompression is bounded, malformed data is refused."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidRecordError
from jesenska.base.limits import DECOMPRESSION_PIECE_BYTES
from jesenska.records.batch import Codec
from jesenska.records.compression import compress, decompress, decompress_pieces, with_true_lz4_checksum

COMPRESSED = list(Codec)[1:]
#: Compresses neither to nothing nor not at all; several pieces, several blocks.
TEXT = b"".join(b"line %d of a text that repeats itself, and does not\n" % (index * 7919) for index in range(6000))


@given(st.binary(max_size=5000), st.integers(1, 60), st.sampled_from(Codec))
def test_what_goes_in_comes_out(data: bytes, times: int, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


@pytest.mark.parametrize("codec", Codec)
def test_output_comes_in_pieces_of_limited_size(codec: Codec) -> None:
    for data in (TEXT, bytes(5_000_000)):
        sizes = [len(piece) for piece in decompress_pieces(codec, compress(codec, data))]
        assert sum(sizes) == len(data)
        assert max(sizes) <= DECOMPRESSION_PIECE_BYTES


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"x", TEXT[:100], TEXT])
def test_a_stream_cut_anywhere_is_refused(codec: Codec, data: bytes) -> None:
    whole = compress(codec, data)
    cuts = (
        set(range(min(len(whole), 30)))
        | {len(whole) - rest for rest in range(1, min(len(whole), 30))}
        | {len(whole) // 2}
    )
    if codec == Codec.ZSTD:
        cuts.remove(0)  # no frame at all is no bytes, and the walker misses its records then
    for cut in cuts:
        if codec == Codec.SNAPPY and cut == 16:
            assert decompress(codec, whole[:cut]) == b""  # a xerial stream without blocks
            continue
        with pytest.raises(InvalidRecordError):
            decompress(codec, whole[:cut])


@pytest.mark.parametrize("codec", COMPRESSED)
@given(st.binary(min_size=1, max_size=200))
def test_nonsense_is_refused_or_read_and_never_crashes(codec: Codec, data: bytes) -> None:
    for stream in (data, compress(codec, b"beginning")[:12] + data):
        try:
            assert sum(map(len, decompress_pieces(codec, stream, 100_000))) <= 100_000
        except InvalidRecordError as error:
            assert error.message


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_limit_is_exact(codec: Codec) -> None:
    stream = compress(codec, TEXT)
    assert len(decompress(codec, stream, len(TEXT))) == len(TEXT)
    with pytest.raises(InvalidRecordError, match="once decompressed"):
        decompress(codec, stream, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    stream = compress(codec, bytes(50_000_000))
    produced = 0
    with pytest.raises(InvalidRecordError):
        for piece in decompress_pieces(codec, stream, 300_000):
            produced += len(piece)
    assert produced <= 300_000


@pytest.mark.parametrize("level", [None, 1, 9])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_levels_are_taken(codec: Codec, level: int | None) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT
    assert compress(codec, TEXT, 9) != compress(codec, TEXT, 1)


def test_snappy_is_written_in_xerial_blocks_of_32_kb() -> None:
    stream = compress(Codec.SNAPPY, TEXT)
    assert stream[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    length = int.from_bytes(stream[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(stream[20 : 20 + length])) == TEXT[:32768]


def test_raw_snappy_and_xerial_streams_in_a_row_are_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b""))) == b""
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, TEXT) + compress(Codec.SNAPPY, b"more")) == TEXT + b"more"


def test_a_snappy_block_is_not_believed_beyond_what_its_bytes_can_hold() -> None:
    claim = b"\xff\xff\xff\x3f"  # 134,217,727
    with pytest.raises(InvalidRecordError, match="more than it can hold"):
        decompress(Codec.SNAPPY, claim + b"\x00" * 100)
    with pytest.raises(InvalidRecordError, match="once decompressed"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 100)


def test_lz4_is_written_as_one_frame_of_independent_64_kb_blocks() -> None:
    stream = compress(Codec.LZ4, TEXT)
    facts = lz4.frame.get_frame_info(stream)
    assert (facts["block_linked"], facts["block_size_id"]) == (False, lz4.frame.BLOCKSIZE_MAX64KB)
    assert (facts["content_checksum"], facts["block_checksum"], facts["content_size"]) == (False, False, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"content_checksum": True},
        {"block_checksum": True},
        {"store_size": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
)
def test_other_lz4_frames_of_independent_blocks_are_read(options: dict[str, bool]) -> None:
    assert decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=False, **options)) == TEXT


def test_a_small_lz4_frame_that_says_it_is_a_petabyte_takes_no_memory() -> None:
    frame = bytearray(lz4.frame.compress(b"some bytes" * 10, block_linked=False, store_size=True))
    frame[6:14] = (1 << 50).to_bytes(8, "little")
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError):
            decompress(Codec.LZ4, with_true_lz4_checksum(frame))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 4, 20])
def test_a_small_lz4_frame_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"some bytes" * 10)[:-cut])


def test_lz4_frames_of_linked_blocks_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="linked"):
        decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB))


def test_lz4_checksums_are_verified() -> None:
    for options in ({"content_checksum": True}, {"block_checksum": True}):
        stream = bytearray(lz4.frame.compress(b"some bytes", block_linked=False, store_size=False, **options))
        stream[-5 if "block_checksum" in options else -1] ^= 1
        with pytest.raises(InvalidRecordError):
            decompress(Codec.LZ4, stream)


def test_gzip_members_in_a_row_are_read_and_what_follows_is_passed_over() -> None:
    two = gzip.compress(TEXT) + gzip.compress(b"more")
    assert decompress(Codec.GZIP, two) == TEXT + b"more"
    assert decompress(Codec.GZIP, two + b"zzzz") == TEXT + b"more"


def test_gzip_checksum_is_verified() -> None:
    stream = bytearray(gzip.compress(TEXT))
    stream[-6] ^= 1
    with pytest.raises(InvalidRecordError):
        decompress(Codec.GZIP, stream)


def test_zstd_frames_in_a_row_and_with_checksums_are_read() -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    stream = packer.compress(TEXT) + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + packer.compress(b"more")
    assert decompress(Codec.ZSTD, stream) == TEXT + b"more"
    with pytest.raises(InvalidRecordError):
        decompress(Codec.ZSTD, stream + b"zzzz")


def test_zstd_streams_without_content_size_and_with_kafkas_largest_window_are_read() -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(22, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    assert decompress(Codec.ZSTD, packer.compress(TEXT) + packer.flush()) == TEXT


def test_a_zstd_window_beyond_kafkas_largest_is_refused() -> None:
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([(28 - 10) << 3]) + b"\x09\x00\x00x"
    with pytest.raises(InvalidRecordError):
        decompress(Codec.ZSTD, frame)
    assert decompress(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00" + bytes([(27 - 10) << 3]) + b"\x09\x00\x00x") == b"x"
