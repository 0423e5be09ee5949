"""What a checker has found in a history, and how it names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

#: Topic and partition.
Key = tuple[str, int]
T = TypeVar("T")

#: Offsets and values that a finding names; its sentence has the number of all.
NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `offsets` and `values` are what it is about, the first ten of them; the sentence
    says the rest."""

    kind: str
    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[str | None, ...]
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


def place_of(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def first_of(items: Sequence[T]) -> tuple[T, ...]:
    return tuple(items[:NAMED_MAX])


def more_of(count: int) -> str:
    """What a sentence about the first of several says of the others."""
    return f", and {count - 1} more" if count > 1 else ""
