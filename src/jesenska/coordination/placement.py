"""Maps a key (a group id or a transactional id) to a partition of the coordinator's topic. Every client and broker
must compute the same partition, because the leader of this partition is the key's coordinator."""

from __future__ import annotations

_INT32_MIN = -(1 << 31)


def partition_for(key: str, partition_count: int) -> int:
    """Returns the number of the key's partition: the absolute value of its Java hash, modulo the number of partitions.
    The smallest 32-bit hash counts as 0, because its absolute value is not a 32-bit number."""
    value = _java_hash(key)
    return (0 if value == _INT32_MIN else abs(value)) % partition_count


def _java_hash(text: str) -> int:
    """Returns the hash that Java's `String.hashCode` computes, over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - (value >> 31 << 32)
