"""The topic that keeps groups and their offsets, and which of its partitions keeps a group.

Every client and every broker must come to the same partition: its leader is the group's coordinator.
"""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition that keeps the group: Java's hash of its name, without the sign, modulo the number of
    partitions."""
    return (_java_hash(group_id) & 0x7FFFFFFF) % partition_count


def _java_hash(text: str) -> int:
    """`String.hashCode` of Java, unsigned: over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value
