"""Hostile frames from good ones. Everything follows from the random source, so a frame can be made again from its
number."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import google_crc32c

_INTERESTING = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    1_000_000,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_FRAME_MAX = 1 << 20
#: The offsets of the parts of a batch of format 2: length at 8, magic at 16, CRC at 17, bytes under the CRC from 21.
_BATCH_HEAD_BYTES, _MAGIC_AT, _CRC_AT, _COVERED_AT = 61, 16, 17, 21


def _flip_bits(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
        frame[source.randrange(len(frame))] ^= 1 << source.randrange(8)


def _put_integer(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    """Changes a count, a length, an offset or a version: 1 to 8 bytes get a value at the edge of its range."""
    size = source.choice((1, 2, 4, 8))
    at = source.randrange(len(frame))
    frame[at : at + size] = (source.choice(_INTERESTING) % (1 << (8 * size))).to_bytes(size, "big")[: len(frame) - at]


def _put_varint(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    at = source.randrange(len(frame))
    frame[at : at + 1] = source.choice(
        (
            b"\xff\xff\xff\xff\x0f",
            b"\x80\x80\x80\x80\x08",
            b"\xff" * 10,
            b"\x80\x00",
            b"\xff\xff\x7f",
            b"\x80" * 4 + b"\x01",
        )
    )


def _truncate(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    del frame[source.randrange(len(frame)) :]


def _cut_out(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    at = source.randrange(len(frame))
    del frame[at : at + source.randrange(1, 40)]


def _repeat(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    at = source.randrange(len(frame))
    piece = bytes(frame[at : at + source.randrange(1, 60)])
    frame[at:at] = piece * source.choice((1, 1, 2, 10, 1000))


def _splice(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    """Joins the head of one frame and the tail of another."""
    other = source.choice(others)
    frame[source.randrange(len(frame)) :] = other[source.randrange(len(other)) :]


def _transplant(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    """Inserts a piece of another frame somewhere inside."""
    other, at = source.choice(others), source.randrange(len(frame))
    start, size = source.randrange(len(other)), source.randrange(1, 100)
    frame[at : at + size] = other[start : start + size]


def _other_version(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    frame[2:4] = struct.pack(">h", source.choice((*range(20), -1, -32768, 32767)))


def _other_key(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    frame[0:2] = struct.pack(">h", source.choice((*range(93), -1, 32767)))


def _noise(frame: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    at = source.randrange(len(frame))
    piece = source.randbytes(source.randrange(1, 200))
    frame[at : at + len(piece)] = piece


_MUTATIONS: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _flip_bits,
    _flip_bits,
    _put_integer,
    _put_integer,
    _put_integer,
    _put_varint,
    _put_varint,
    _truncate,
    _cut_out,
    _repeat,
    _splice,
    _transplant,
    _other_version,
    _other_key,
    _noise,
)


def _seal(frame: bytearray) -> None:
    """Corrects the CRC of a batch in the frame, so that errors inside the batch are met after the check of the CRC."""
    at = frame.find(b"\x02", _MAGIC_AT)
    while at >= _MAGIC_AT:
        base = at - _MAGIC_AT
        end = base + 12 + int.from_bytes(frame[base + 8 : base + 12], "big")
        if base + _BATCH_HEAD_BYTES <= end <= len(frame):
            frame[base + _CRC_AT : base + _COVERED_AT] = struct.pack(
                ">I", google_crc32c.value(bytes(frame[base + _COVERED_AT : end]))
            )
            return
        at = frame.find(b"\x02", at + 1)


def hostile(frames: Sequence[bytes], source: random.Random) -> bytes:
    """One frame with its length in front, which is sometimes wrong."""
    frame = bytearray(source.choice(frames))
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        if frame:
            source.choice(_MUTATIONS)(frame, frames, source)
    del frame[_FRAME_MAX:]
    if frame[:2] == b"\0\0" and source.random() < 0.5:
        _seal(frame)
    size = len(frame)
    if source.random() < 0.03:
        size = source.choice(
            (
                size + source.randrange(1, 100),
                max(0, size - source.randrange(1, 100)),
                0,
                -1,
                -(2**31),
                2**31 - 1,
                104_857_601,
                104_857_600,
            )
        )
    return struct.pack(">i", size) + frame
