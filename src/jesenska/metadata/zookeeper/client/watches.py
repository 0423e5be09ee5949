"""The watches that a client has set on nodes, each remembered until its event arrives.

    data        of an existing node: its data changes, or it is deleted
    exist       of a missing node: it is created
    child       of an existing node: its children change, or it is deleted

Several watches of one path count as one watch on the server. After a reconnect the client sends all watches to the new
server (SetWatches), together with the newest zxid that it has seen. The server then sends at once the events of
changes that happened since that zxid."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper.messages import SetWatches

#: Most bytes of paths in one SetWatches request, because servers accept frames of a megabyte.
_SET_WATCHES_BYTES = 128 * 1024

Callback = Callable[[WatchEvent], None]
Table = dict[str, dict[Callback, None]]


class ClientWatches:
    """The watches of one session."""

    def __init__(self) -> None:
        self.data: Table = {}
        self.exist: Table = {}
        self.child: Table = {}

    def take(self, event: WatchEvent) -> list[Callback]:
        """Returns the callbacks that an event calls, and removes their watches: a watch has only one event."""
        tables = {
            EventType.NODE_CREATED: (self.data, self.exist),
            EventType.NODE_DATA_CHANGED: (self.data, self.exist),
            EventType.NODE_CHILDREN_CHANGED: (self.child,),
            EventType.NODE_DELETED: (self.data, self.exist, self.child),
        }[event.type]
        callbacks: dict[Callback, None] = {}
        for table in tables:
            callbacks |= table.pop(event.path, {})
        return list(callbacks)

    def requests(self, last_zxid: int) -> Iterator[SetWatches]:
        """Yields the SetWatches requests that set all watches on a new connection. Each request has a bounded size."""
        lists: tuple[list[str], list[str], list[str]] = ([], [], [])
        size = 0
        for number, table in enumerate((self.data, self.exist, self.child)):
            for path in table:
                lists[number].append(path)
                size += 4 + len(path.encode())
                if size > _SET_WATCHES_BYTES:
                    yield SetWatches(last_zxid, *map(tuple, lists))
                    lists, size = ([], [], []), 0
        if size:
            yield SetWatches(last_zxid, *map(tuple, lists))

    def clear(self) -> None:
        """Removes all watches, because the session has ended."""
        for table in (self.data, self.exist, self.child):
            table.clear()


def keep(table: Table, path: str, watch: Callback | None) -> None:
    """Stores a watch's callback under its path. Does nothing if there is no callback."""
    if watch is not None:
        table.setdefault(path, {})[watch] = None
