"""Which partition a record goes to, as Kafka's Java client decides: murmur2 of the key, made positive, modulo the number of partitions; records
without a key stay with one partition until its batch is full, then move to another at random (KIP-480)."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """The 32-bit murmur2 hash that Kafka's Java client uses for keys, unsigned."""
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


def partition_of_key(key: bytes | bytearray | memoryview, partition_count: int) -> int:
    """The partition for a key, the same as every Java client chooses."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
