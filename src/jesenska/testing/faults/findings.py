"""The findings of checkers in a history, and their wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

#: Topic and partition.
Key = tuple[str, int]
T = TypeVar("T")

#: The most offsets and values that a finding names; its sentence has the total number.
NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation. `offsets` and `values` are the first ten that it concerns; the sentence says the rest."""

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
    """Returns the end of a sentence about the first of several: the number of the other ones."""
    return f", and {count - 1} more" if count > 1 else ""
