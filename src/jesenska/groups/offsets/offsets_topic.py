"""The name of the topic that stores groups and their offsets, and the function that maps a group to its partition of
this topic. The leader of this partition is the group's coordinator."""

from __future__ import annotations

from jesenska.coordination.placement import partition_for

__all__ = ["OFFSETS_TOPIC", "partition_for"]

OFFSETS_TOPIC = "__consumer_offsets"
