"""The watches of a client, each until its event.

    data        of an existing node: its data changes, or it is deleted
    exist       of a missing node: it is created
    child       of an existing node: its children change, or it is deleted

A watch is kept under its path until its event arrives; several of one path are one watch of the server. On a new
connection all of them are sent to the server (SetWatches), with the newest zxid that was seen: the server sends the
events of changes since then at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper.messages import SetWatches

#: Bytes of paths in one SetWatches: servers accept frames of a megabyte.
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
        """Returns the callbacks for an event; their watches are used up."""
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
        """Yields all watches, in requests of a bounded size."""
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
        """Drops all watches: the session is over."""
        for table in (self.data, self.exist, self.child):
            table.clear()


def keep(table: Table, path: str, watch: Callback | None) -> None:
    """Keeps a watch, if one is wanted."""
    if watch is not None:
        table.setdefault(path, {})[watch] = None
