"""Partitions, and the ids of topics and clusters.

The ids are 128-bit UUIDs written as 22 characters of URL-safe base64 without padding (KIP-78, KIP-516)."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)

NO_UUID = uuid.UUID(int=0)
_RESERVED = {NO_UUID, uuid.UUID(int=1)}
_DIRECTORY = re.compile(r"(.+)-(\d{1,10})")


class TopicPartition(NamedTuple):
    """A partition of a topic. Its text is `topic-0`, which is also the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of_directory(cls, name: str) -> TopicPartition | None:
        """Returns the partition whose directory has this name; None if the name is not the name of a partition's
        directory. The topic's name is not checked."""
        match = _DIRECTORY.fullmatch(name)
        return cls(match[1], int(match[2])) if match is not None else None


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic. Topics and numbers are sorted."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def uuid_to_text(value: uuid.UUID) -> str:
    """Returns the UUID as 22 characters of URL-safe base64, as Kafka prints ids of topics and clusters."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> uuid.UUID:
    """Returns the UUID of a text that `uuid_to_text` made. Raises ValueError for text that is not 16 bytes of
    base64."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 22-character id")
    return uuid.UUID(bytes=raw)


def random_uuid(make: Callable[[], uuid.UUID] = uuid.uuid4) -> uuid.UUID:
    """Returns a random id that Kafka accepts: it is not a reserved value, and its text does not begin with a dash,
    which tools would take for a flag. `make` returns random UUIDs."""
    while True:
        candidate = make()
        if candidate not in _RESERVED and not uuid_to_text(candidate).startswith("-"):
            return candidate
