"""The watches on a metadata tree. A watch is called once, at the next change of a node or of the list of its children.

    set with          called at
    get, exists       creation, change of data, deletion of the node
    children          creation or deletion of a child, deletion of the node

A watch ends with its first event. A watcher (the receiver of events) may be any hashable value; if it sets the same
watch twice, it gets one event. Events are in the order of the changes. For one change, the event of the node comes
before the event of its parent, as in ZooKeeper."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from jesenska.metadata.tree import split
from jesenska.metadata.tree_operations import Change, DataSet, NodeCreated, NodeDeleted


class EventType(IntEnum):
    """Kinds of watch events, with ZooKeeper's numbers."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


W = TypeVar("W", bound=Hashable)


class Watches(Generic[W]):
    """The watches of one tree. `W` is the type of its watchers, the receivers of events."""

    __slots__ = ("_child", "_data", "_of")

    def __init__(self) -> None:
        self._data: dict[str, dict[W, None]] = {}
        self._child: dict[str, dict[W, None]] = {}
        self._of: dict[W, set[tuple[bool, str]]] = {}

    def watch_data(self, path: str, watcher: W) -> None:
        """Sets a watch for the next creation, change or deletion of a node. The node need not exist yet."""
        self._data.setdefault(path, {})[watcher] = None
        self._of.setdefault(watcher, set()).add((True, path))

    def watch_children(self, path: str, watcher: W) -> None:
        """Sets a watch for the next creation or deletion of one of the node's children."""
        self._child.setdefault(path, {})[watcher] = None
        self._of.setdefault(watcher, set()).add((False, path))

    def forget(self, watcher: W) -> None:
        """Removes all watches of a watcher."""
        for place in list(self._of.get(watcher, ())):
            self._drop(watcher, place)

    def has(self, path: str, watcher: W, *, data: bool, children: bool) -> bool:
        """Returns True if the watcher has a watch on this path that has not fired: of the node (`data`), or of its
        children (`children`)."""
        return bool(self._held(path, watcher, data, children))

    def remove(self, path: str, watcher: W, *, data: bool, children: bool) -> bool:
        """Removes the watches of the watcher on this path. Returns True if there was at least one such watch."""
        held = self._held(path, watcher, data, children)
        for place in held:
            self._drop(watcher, place)
        return bool(held)

    def _held(self, path: str, watcher: W, data: bool, children: bool) -> list[tuple[bool, str]]:
        places = self._of.get(watcher, ())
        return [
            place
            for place, is_meant in (((True, path), data), ((False, path), children))
            if is_meant and place in places
        ]

    def _drop(self, watcher: W, place: tuple[bool, str]) -> None:
        is_data, path = place
        table = self._data if is_data else self._child
        del table[path][watcher]
        if not table[path]:
            del table[path]
        places = self._of[watcher]
        places.discard(place)
        if not places:
            del self._of[watcher]

    def watchers(self) -> list[W]:
        """Returns the watchers that have at least one watch that has not fired."""
        return list(self._of)

    def fired(self, changes: Iterable[Change]) -> list[tuple[W, WatchEvent]]:
        """Returns the events that these changes cause, each with its watcher, and removes the watches that fired."""
        found: list[tuple[W, WatchEvent]] = []
        if not self._of:
            return found
        for change in changes:
            if isinstance(change, DataSet):
                self._take(found, (self._data,), change.path, EventType.NODE_DATA_CHANGED)
            elif isinstance(change, NodeCreated):
                self._take(found, (self._data,), change.path, EventType.NODE_CREATED)
                self._take(found, (self._child,), split(change.path)[0], EventType.NODE_CHILDREN_CHANGED)
            elif isinstance(change, NodeDeleted):
                self._take(found, (self._data, self._child), change.path, EventType.NODE_DELETED)
                self._take(found, (self._child,), split(change.path)[0], EventType.NODE_CHILDREN_CHANGED)
        return found

    def count(self, watcher: W) -> int:
        """Returns the number of watches of a watcher that have not fired."""
        return len(self._of.get(watcher, ()))

    def paths(self) -> int:
        """Returns the number of paths with at least one watch."""
        return len(self._data.keys() | self._child.keys())

    def __len__(self) -> int:
        return sum(len(places) for places in self._of.values())

    def _take(
        self,
        found: list[tuple[W, WatchEvent]],
        tables: tuple[dict[str, dict[W, None]], ...],
        path: str,
        kind: EventType,
    ) -> None:
        heard: dict[W, None] = {}
        for table in tables:
            for watcher in table.pop(path, {}):
                heard[watcher] = None
                places = self._of[watcher]
                places.discard((table is self._data, path))
                if not places:
                    del self._of[watcher]
        found += [(watcher, WatchEvent(kind, path)) for watcher in heard]
