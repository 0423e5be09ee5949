"""The topic that keeps groups and their offsets, and the partition that keeps a group: its leader is the group's
coordinator."""

from __future__ import annotations

from jesenska.coordination.placement import partition_for

__all__ = ["OFFSETS_TOPIC", "partition_for"]

OFFSETS_TOPIC = "__consumer_offsets"
