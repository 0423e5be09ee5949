"""The watches of a client: who hears of what, until it has happened once.

    data        of a node that is there: its data change, it goes
    exist       of a node that is not: it is made
    child       of a node that is there: its children change, it goes

A watch is kept under its path until its event comes; several of one path are one watch of the server. On another
connection the server is told all of them (SetWatches), with the newest zxid that was seen: what has changed since then
is heard at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper.messages import SetWatches

#: Bytes of paths in one SetWatches: servers take frames of a megabyte.
_SET_WATCHES_BYTES = 128 * 1024

Callback = Callable[[WatchEvent], None]
Table = dict[str, dict[Callback, None]]


class ClientWatches:
    """Those of one session."""

    def __init__(self) -> None:
        self.data: Table = {}
        self.exist: Table = {}
        self.child: Table = {}

    def take(self, event: WatchEvent) -> list[Callback]:
        """Who is to hear of an event; their watches are used up."""
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
        """All watches, in requests of a bounded size."""
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
        """The session is over: nobody hears of anything any more."""
        for table in (self.data, self.exist, self.child):
            table.clear()


def keep(table: Table, path: str, watch: Callback | None) -> None:
    """Keeps a watch, if one is wanted."""
    if watch is not None:
        table.setdefault(path, {})[watch] = None
