"""Maps a key (a group's name, a transactional id) to a partition of a coordinator's topic.

Every client and every broker must come to the same partition: its leader is the key's coordinator.
"""

from __future__ import annotations

_INT32_MIN = -(1 << 31)


def partition_for(key: str, partition_count: int) -> int:
    """Returns the number of the partition that keeps the key: the absolute value of its Java hash, modulo the number
    of partitions. The smallest 32-bit hash, whose absolute value has no 32-bit number, counts as 0."""
    value = _java_hash(key)
    return (0 if value == _INT32_MIN else abs(value)) % partition_count


def _java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - (value >> 31 << 32)
