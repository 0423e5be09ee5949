"""Chooses the partition of a record as Kafka's Java client does: murmur2 of the key, made positive, modulo the number
of partitions. Records without a key go to one partition until its batch is full, then to another random partition
(KIP-480)."""

from __future__ import annotations

from jesenska.records.murmur2 import murmur2

__all__ = ["murmur2", "partition_of_key"]


def partition_of_key(key: bytes | bytearray | memoryview, partition_count: int) -> int:
    """Returns the partition for a key. Java clients choose the same partition."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
