"""The hash function by which Kafka's Java client chooses the partition of a key: murmur2, 32 bits, with the seed
0x9747b28c."""

from __future__ import annotations

from jesenska.records.header import Buffer

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: Buffer) -> int:
    """Returns the murmur2 hash of the bytes as an unsigned number."""
    length = len(data)
    value = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        value = ((value * _M) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        value ^= int.from_bytes(rest, "little")
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    value ^= value >> 15
    return value
