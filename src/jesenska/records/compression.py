"""The four compression codecs of a batch. Data is written as Kafka's Java client writes it, and decompressed in pieces
of limited size.

    gzip    written as one member; several members in a row can be read, and bytes after the last member are ignored
    snappy  written in xerial's framing; read with this framing or as a raw block:
                82 53 4e 41 50 50 59 00 | version int32 = 1 | compatible int32 = 1 | { length int32 | raw snappy block
                }*
    lz4     one frame: blocks of 64 KB, independent, no content checksum, no content size. A frame of linked blocks is
            refused, because Kafka's own clients cannot read it. Bytes after the frame are ignored
    zstd    one or more frames

A stream may come from any client, so a size claimed in a stream never causes an allocation. Output is returned in
pieces of DECOMPRESSION_PIECE_BYTES and is not stored. The exception is a raw snappy block, which can only be
decompressed as a whole. Its claimed length is accepted only up to the largest output that its bytes can have (snappy's
densest element makes 64 bytes of 3). zstd's window is limited to 128 MiB, the largest window that Kafka's own clients
write. The library uses that memory only as far as there is output. Every lz4 block is at most 4 MiB by format.

A stream that is incomplete or malformed raises InvalidRecordError. Apache Kafka 4.3.1 returns UNKNOWN_SERVER_ERROR
there. Neither error is retriable, so a client handles both in the same way. An lz4 frame's content checksum is
verified here, but not in Kafka."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct

import cramjam
import lz4.frame
import zstandard

from jesenska.base.errors import InvalidRecordError
from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES, DECOMPRESSION_PIECE_BYTES
from jesenska.records.header import Buffer, Codec

#: Compressed bytes that are passed to a decompressor at once. The number is small, because unused bytes are copied at
#: each call.
_INPUT_PIECE_BYTES = 16 * 1024
#: lz4 frames up to this many bytes are decompressed in one call.
_SMALL_LZ4_BYTES = 64 * 1024
_LZ4_RATIO_MAX = 255
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_BEST_RATIO = 22
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER_SIZE_MIN = 7
_LZ4_VERSION_MASK = 0xC0
_LZ4_VERSION = 0x40
_LZ4_INDEPENDENT = 0x20
_LZ4_RESERVED = 0x03
_LZ4_CONTENT_SIZE = 0x08
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_WINDOW_MAX_BYTES = 1 << 27
_ZSTD_BLOCK_MAX_BYTES = 128 * 1024
_U32_BE = Struct(">I")
_U32_LE = Struct("<I")
_GZIP_MEMBER_START = b"\x1f\x8b"


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Returns `data` compressed. `level` is on the codec's own scale; None means the default of Kafka's clients. Other
    threads can run meanwhile, because Python's interpreter lock is released."""
    if codec == Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
        return packed
    if codec == Codec.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return bytes(data)


def with_true_lz4_checksum(packed: Buffer) -> bytearray:
    """Returns an lz4 frame with the header checksum that lz4's format requires. The checksum is wrong in message sets
    of format v0."""
    return _with_lz4_checksum(packed, len(_LZ4_MAGIC))


def with_old_lz4_checksum(packed: Buffer) -> bytearray:
    """Returns an lz4 frame with the header checksum of message sets of format v0, which also covers the frame's
    magic."""
    return _with_lz4_checksum(packed, 0)


def _with_lz4_checksum(packed: Buffer, begins_at: int) -> bytearray:
    frame = bytearray(packed)
    place = _LZ4_HEADER_SIZE_MIN - 1 + (8 if len(frame) > 4 and frame[4] & _LZ4_CONTENT_SIZE else 0)
    if place >= len(frame):
        raise _cut_short("lz4")
    frame[place] = _xxh32_short(bytes(frame[begins_at:place])) >> 8 & 0xFF
    return frame


@lru_cache(maxsize=64)  # nearly all frames begin with the same bytes
def _xxh32_short(data: bytes) -> int:
    """Returns xxHash32 with seed 0 of up to 15 bytes."""
    value = 0x165667B1 + len(data)
    at = 0
    while at + 4 <= len(data):
        value = value + int.from_bytes(data[at : at + 4], "little") * 0xC2B2AE3D & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 0x27D4EB2F & 0xFFFFFFFF
        at += 4
    for byte in data[at:]:
        value = value + byte * 0x165667B1 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 0x9E3779B1 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return value ^ value >> 16


def decompress_pieces(codec: Codec, buffer: Buffer, limit: int = DECOMPRESSED_BATCH_MAX_BYTES) -> Iterator[Buffer]:
    """Yields the decompressed bytes of `buffer` in pieces of at most DECOMPRESSION_PIECE_BYTES. Each piece is valid
    until the next one is requested.

    Raises InvalidRecordError if there are more than `limit` bytes in all, or if the stream is incomplete or
    malformed."""
    total = 0
    try:
        for piece in _STREAMS[codec](memoryview(buffer).cast("B"), limit):
            total += len(piece)
            if total > limit:
                raise InvalidRecordError(f"the batch takes more than {limit} bytes once decompressed")
            yield piece
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise InvalidRecordError(f"the {codec.name.lower()} stream of the batch cannot be read: {error}") from error


def decompress(codec: Codec, buffer: Buffer, limit: int = DECOMPRESSED_BATCH_MAX_BYTES) -> bytearray:
    """Returns all decompressed bytes of `buffer`. Raises the errors of `decompress_pieces`."""
    if codec == Codec.LZ4 and len(buffer) <= min(_SMALL_LZ4_BYTES, limit // _LZ4_RATIO_MAX):
        frame = memoryview(buffer).cast("B")
        _check_lz4_frame(frame)
        if not frame[4] & _LZ4_CONTENT_SIZE:  # the library would allocate the size that the frame claims
            return _unlz4_at_once(frame)
    whole = bytearray()
    for piece in decompress_pieces(codec, buffer, limit):
        whole += piece
    return whole


def _cut_short(codec: str) -> InvalidRecordError:
    return InvalidRecordError(f"the {codec} stream of the batch is cut short")


def _slices(data: memoryview, size: int) -> Iterator[memoryview]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _plain(data: memoryview, limit: int) -> Iterator[Buffer]:
    yield from _slices(data, DECOMPRESSION_PIECE_BYTES)


def _gunzip(data: memoryview, limit: int) -> Iterator[Buffer]:
    position = 0
    while True:
        member = zlib.decompressobj(31)
        while not member.eof:
            given = data[position : position + _INPUT_PIECE_BYTES]
            if not given:
                raise _cut_short("gzip")
            position += len(given)
            piece = member.decompress(given, DECOMPRESSION_PIECE_BYTES)
            while True:
                if piece:
                    yield piece
                if member.eof or not (member.unconsumed_tail or len(piece) == DECOMPRESSION_PIECE_BYTES):
                    break
                piece = member.decompress(member.unconsumed_tail, DECOMPRESSION_PIECE_BYTES)
        position -= len(member.unused_data)
        if data[position : position + 2] != _GZIP_MEMBER_START:
            return


def _compress_xerial(data: Buffer) -> bytes:
    whole = bytearray(_XERIAL_HEADER)
    for block in _slices(memoryview(data).cast("B"), _XERIAL_BLOCK_BYTES):
        packed = cramjam.snappy.compress_raw(block)
        whole += _U32_BE.pack(len(packed))
        whole += memoryview(packed)
    return bytes(whole)


def _unsnap(data: memoryview, limit: int) -> Iterator[Buffer]:
    if data[:8] != _XERIAL_MAGIC:
        yield from _unsnap_block(data, limit)
        return
    if len(data) < len(_XERIAL_HEADER):
        raise _cut_short("snappy")
    position = len(_XERIAL_HEADER)
    left = limit
    while position < len(data):
        if len(data) - position < 4:
            raise _cut_short("snappy")
        if data[position : position + 8] == _XERIAL_MAGIC:  # two streams in a row
            position += len(_XERIAL_HEADER)
            continue
        length = _U32_BE.unpack_from(data, position)[0]
        position += 4
        if length > len(data) - position:
            raise _cut_short("snappy")
        for piece in _unsnap_block(data[position : position + length], left):
            left -= len(piece)
            yield piece
        position += length


def _unsnap_block(block: memoryview, limit: int) -> Iterator[Buffer]:
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise InvalidRecordError("the snappy stream of the batch does not begin with a length")
    if length > limit:
        raise InvalidRecordError(
            f"a snappy block claims {length} bytes, more than the {limit} that a batch may take once decompressed"
        )
    if length > _SNAPPY_BEST_RATIO * len(block):
        raise InvalidRecordError(f"a snappy block of {len(block)} bytes claims {length}, more than it can hold")
    whole = bytearray(length)
    if length or len(block) > 1:
        written = cramjam.snappy.decompress_raw_into(block, whole)
        if written != length:
            raise _cut_short("snappy")
    yield from _slices(memoryview(whole), DECOMPRESSION_PIECE_BYTES)


def _check_lz4_frame(data: memoryview) -> None:
    if len(data) < _LZ4_HEADER_SIZE_MIN:
        raise _cut_short("lz4")
    flags = data[4]
    if data[:4] != _LZ4_MAGIC or flags & _LZ4_VERSION_MASK != _LZ4_VERSION or flags & _LZ4_RESERVED:
        raise InvalidRecordError("the lz4 stream of the batch does not begin with a frame")
    if not flags & _LZ4_INDEPENDENT:
        raise InvalidRecordError("the lz4 frame of the batch has linked blocks, which Kafka clients cannot read")


def _unlz4(data: memoryview, limit: int) -> Iterator[Buffer]:
    _check_lz4_frame(data)
    frame = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not frame.eof:
        given: Buffer = b""
        if frame.needs_input:
            given = data[position : position + _INPUT_PIECE_BYTES]
            if not given:
                raise _cut_short("lz4")
            position += len(given)
        piece = frame.decompress(given, DECOMPRESSION_PIECE_BYTES)
        if piece:
            yield piece


def _unlz4_at_once(frame: memoryview) -> bytearray:
    """Decompresses a small lz4 frame with one call of the library instead of five. The caller has checked that the
    result cannot exceed the limit."""
    try:
        whole: bytearray = lz4.frame.decompress(frame, return_bytearray=True)
    except RuntimeError as error:
        raise InvalidRecordError(f"the lz4 stream of the batch cannot be read: {error}") from error
    return whole


def _unzstd(data: memoryview, limit: int) -> Iterator[Buffer]:
    _check_zstd_frames(data)
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES)
    piece = bytearray(min(DECOMPRESSION_PIECE_BYTES, max(1024, 8 * len(data))))
    view = memoryview(piece)
    with unpacker.stream_reader(data, read_size=_INPUT_PIECE_BYTES, read_across_frames=True) as reader:
        while count := reader.readinto(piece):
            yield view[:count]


class _ZstdBytes:
    """Reads the bytes of a zstd stream from the beginning. Raises InvalidRecordError if the stream ends too soon."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    @property
    def are_left(self) -> bool:
        return self._position < len(self._data)

    def number(self, size: int) -> int:
        begin = self._position
        self.skip(size)
        return int.from_bytes(self._data[begin : begin + size], "little")

    def skip(self, size: int) -> None:
        if len(self._data) - self._position < size:
            raise _cut_short("zstd")
        self._position += size


def _check_zstd_frames(data: memoryview) -> None:
    """Checks that all frames of a zstd stream are complete, by their block sizes, without decompressing. The library's
    streaming reader does not report an incomplete last frame."""
    taken = _ZstdBytes(data)
    while taken.are_left:
        magic = taken.number(4)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
            taken.skip(taken.number(4))
            continue
        if magic != _ZSTD_MAGIC:
            raise InvalidRecordError("the zstd stream of the batch does not begin with a frame")
        descriptor = taken.number(1)
        single_segment = descriptor & 0x20
        content_size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        if not single_segment:
            taken.skip(1)
        taken.skip((0, 1, 2, 4)[descriptor & 3] + content_size_bytes)
        last = 0
        while not last:
            block = taken.number(3)
            last = block & 1
            size = block >> 3
            if size > _ZSTD_BLOCK_MAX_BYTES:
                raise InvalidRecordError(f"a zstd block of {size} bytes is more than the format allows")
            taken.skip(1 if block >> 1 & 3 == 1 else size)
        if descriptor & 0x04:
            taken.skip(4)


_STREAMS: dict[Codec, Callable[[memoryview, int], Iterator[Buffer]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
