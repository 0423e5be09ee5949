"""A map in the order of its keys, as the stores of a task need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """Keys (bytes, numbers or tuples of them) in ascending order. Iterating sees the keys that were there at the
    start, without those that have gone since."""

    def __init__(self) -> None:
        self._map: SortedDict[Any, V] = SortedDict()

    def get(self, key: Any) -> V | None:
        found: V | None = self._map.get(key)
        return found

    def put(self, key: Any, value: V) -> None:
        self._map[key] = value

    def remove(self, key: Any) -> V | None:
        removed: V | None = self._map.pop(key, None)
        return removed

    def first(self) -> Any:
        """Returns the smallest key; None if the map is empty."""
        return self._map.peekitem(0)[0] if self._map else None

    def items(self, lowest: Any = None, above: Any = None) -> Iterator[tuple[Any, V]]:
        """Keys from `lowest` to below `above`, with their values."""
        for key in list(self._map.irange(lowest, above, inclusive=(True, False))):
            if key in self._map:
                yield key, self._map[key]

    def remove_below(self, above: Any) -> None:
        """Removes all keys below `above`."""
        for key in list(self._map.irange(maximum=above, inclusive=(True, False))):
            del self._map[key]

    def __len__(self) -> int:
        return len(self._map)

    def __contains__(self, key: Any) -> bool:
        return key in self._map
