"""A map in the order of its keys, as the stores of a task need it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """Keys (bytes, numbers or tuples of them) in ascending order. Iterating sees the map as it was at the start."""

    def __init__(self) -> None:
        self._values: dict[Any, V] = {}
        self._keys: list[Any] = []

    def get(self, key: Any) -> V | None:
        return self._values.get(key)

    def put(self, key: Any, value: V) -> None:
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value

    def remove(self, key: Any) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            del self._keys[bisect_left(self._keys, key)]
        return value

    def first(self) -> Any:
        """The smallest key; None if the map is empty."""
        return self._keys[0] if self._keys else None

    def items(self, lowest: Any = None, above: Any = None) -> Iterator[tuple[Any, V]]:
        """Keys from `lowest` to below `above`, with their values."""
        start = 0 if lowest is None else bisect_left(self._keys, lowest)
        end = len(self._keys) if above is None else bisect_left(self._keys, above)
        for key in self._keys[start:end]:
            if key in self._values:
                yield key, self._values[key]

    def remove_below(self, above: Any) -> None:
        """Removes all keys below `above`."""
        end = bisect_left(self._keys, above)
        for key in self._keys[:end]:
            del self._values[key]
        del self._keys[:end]

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Any) -> bool:
        return key in self._values
