"""A request's place in the order of the answers on its connection."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.metadata.tree_operations import TreeCode

#: The body of an answer, or an error code.
Answer = bytes | bytearray | TreeCode


class Slot:
    """A request's place in the order of the answers on its connection. `answer` is the answer once it is known, and
    `zxid` the zxid that is sent with it. If `read` is set, the request is a read: `read` is called when its turn
    comes, and reads the committed tree."""

    __slots__ = ("after_error", "answer", "begun_ms", "closes", "read", "size", "type", "xid", "zxid")

    def __init__(self, xid: int, kind: int, size: int, begun_ms: float) -> None:
        self.xid, self.type, self.size, self.begun_ms = xid, kind, size, begun_ms
        self.answer: Answer | None = None
        self.read: Callable[[], Answer] | None = None
        self.zxid: int | None = None
        self.closes = False
        #: The body that follows an error code, for the requests whose refusals have one.
        self.after_error = b""
