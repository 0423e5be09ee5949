"""A map that is sorted by key, for the stores of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """A map whose keys (bytes, numbers or tuples of them) are sorted in ascending order. An iteration leaves out keys
    that are added or removed after its start."""

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
        """Returns the smallest key, or None if the map is empty."""
        return self._map.peekitem(0)[0] if self._map else None

    def items(self, lowest: Any = None, above: Any = None) -> Iterator[tuple[Any, V]]:
        """Yields the keys from `lowest` up to, not including, `above`, with their values."""
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
