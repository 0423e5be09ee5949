"""The findings of checkers, and helpers for their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

#: A topic and a partition.
Key = tuple[str, int]
T = TypeVar("T")

#: The largest number of offsets and values that a finding names. The finding's sentence contains the total number.
NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a guarantee. `offsets` and `values` are the first ten offsets and values with the violation.
    `sentence` describes the violation."""

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
    """Returns the end of a sentence that names only the first few of `count` items. The text contains the number of
    the items that are not named."""
    return f", and {count - 1} more" if count > 1 else ""
