"""Hostile frames for the tree's server: mutations of good ones, one or more of every operation, and frames that are
well formed with hostile values.

Everything follows from the random source, so a frame can be made again from its number."""

from __future__ import annotations

import random
import struct

from jesenska.metadata.acl import digest_identity
from jesenska.metadata.tree_operations import OPEN_ACL, Acl
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    AuthPacket,
    ConnectRequest,
    CreateRequest,
    Message,
    MultiHeader,
    OpCode,
    PathRequest,
    RequestHeader,
    SaslToken,
    SetAclRequest,
    SetDataRequest,
    SetWatches,
    SetWatches2,
    SubRequest,
    VersionRequest,
    WatchableRequest,
)
from jesenska.metadata.zookeeper.server import four_letter_words
from tests.processes.fuzz.mutate import hostile

#: The root is not in this list: a client that removes all others' rights to it would end the test.
_PATHS = (
    "/f",
    "/f/a",
    "/f/b",
    "/f/c/d",
    "/kept",
    "/zookeeper",
    "/zookeeper/quota",
    "/none/x",
    "",
    "x",
    "//",
    "/f/",
    "/f/..",
    "/f/\x01",
    "/f/\uf8ff",
    "/" + "p" * 3000,
)
_NUMBERS = (0, 1, -1, 2, 3, 4, 6, 31, 127, 1 << 16, 2**31 - 1, -(2**31))
#: The client that may delete all nodes.
CLEANER = b"me:secret"
_MINE = Acl(31, *digest_identity(CLEANER))
_ACLS = (
    OPEN_ACL,
    (),
    (Acl(31, "auth", ""), _MINE),
    (Acl(31, "digest", "a:b"), Acl(1, "world", "anyone"), _MINE),
    (Acl(1, "ip", "127.0.0.1/8"), _MINE),
    (Acl(1, "ip", "::/129"),),
    (Acl(-1, "sasl", "x"),),
    OPEN_ACL * 200,
)
_BODIES: tuple[tuple[OpCode, Message], ...] = (
    (OpCode.CREATE, CreateRequest("/f", b"", OPEN_ACL, 0)),
    (OpCode.CREATE, CreateRequest("/f/a", b"data", OPEN_ACL, 0)),
    (OpCode.CREATE2, CreateRequest("/f/b", None, OPEN_ACL, 1)),
    (OpCode.CREATE, CreateRequest("/f/n-", b"x" * 100, OPEN_ACL, 2)),
    (OpCode.CREATE, CreateRequest("/f/e-", b"x" * 100, OPEN_ACL, 3)),
    (OpCode.CREATE_CONTAINER, CreateRequest("/f/k", b"", OPEN_ACL, 4)),
    (OpCode.DELETE, VersionRequest("/f/a", -1)),
    (OpCode.EXISTS, WatchableRequest("/f/a", True)),
    (OpCode.GET_DATA, WatchableRequest("/f/a", True)),
    (OpCode.SET_DATA, SetDataRequest("/f/a", b"other", -1)),
    (OpCode.GET_ACL, PathRequest("/f/a")),
    (OpCode.SET_ACL, SetAclRequest("/f/a", (_MINE, Acl(1, "ip", "10.0.0.0/8")), -1)),
    (OpCode.GET_CHILDREN, WatchableRequest("/f", True)),
    (OpCode.GET_CHILDREN2, WatchableRequest("/f", False)),
    (OpCode.SYNC, PathRequest("/")),
    (OpCode.CHECK, VersionRequest("/f", 0)),
    (OpCode.AUTH, AuthPacket(0, "digest", CLEANER)),
    (OpCode.SASL, SaslToken(b"")),
    (OpCode.SASL, SaslToken(b'charset=utf-8,username="kafka",realm="zk-sasl-md5",nonce="n",nc=00000001,cnonce="c"')),
    (OpCode.SET_WATCHES, SetWatches(1, ("/f", "/f/a"), ("/f/b",), ("/f",))),
    (OpCode.SET_WATCHES2, SetWatches2(1, ("/f",), ("/f/b",), ("/f",), (), ())),
    (OpCode.GET_EPHEMERALS, PathRequest("/")),
    (OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/")),
)


def _request(kind: int, body: bytes | bytearray, xid: int = 1) -> bytes:
    return bytes(messages.write(bytearray(), RequestHeader(xid, kind))) + body


def _multi(kinds: list[SubRequest]) -> bytes:
    return bytes(messages.write_multi(bytearray(), kinds))


def recorded() -> list[bytes]:
    """One or more good frames of every operation, without the length in front."""
    multi = _multi([SubRequest(kind, body) for kind, body in _BODIES if kind in messages.MULTI_TYPES])
    reads = _multi(
        [
            SubRequest(OpCode.GET_DATA, WatchableRequest("/f/a", False)),
            SubRequest(OpCode.GET_CHILDREN, WatchableRequest("/f", False)),
        ]
    )
    return [
        *(_request(kind, messages.write(bytearray(), body)) for kind, body in _BODIES),
        *(
            _request(kind, b"", xid)
            for kind, xid in ((OpCode.PING, -2), (OpCode.WHO_AM_I, 1), (OpCode.CLOSE_SESSION, 1))
        ),
        _request(OpCode.MULTI, multi),
        _request(OpCode.MULTI_READ, reads),
    ]


def connects() -> list[bytes]:
    """First frames of a connection: a new session, with and without the read-only byte, and an unknown session that
    returns."""
    new = bytes(messages.write(bytearray(), ConnectRequest(0, 0, 4000, 0, bytes(16))))
    other = bytes(messages.write(bytearray(), ConnectRequest(0, 0, 4000, 2 << 56 | 1, b"p" * 16)))
    return [new, new + b"\x00", other, other + b"\x01"]


class TreeFrames:
    """Generates frames. `frame` has its length in front. `opening` makes the first frames of a connection, most of
    which are accepted."""

    def __init__(self) -> None:
        self._recorded = recorded()
        self._connects = connects()

    def opening(self, source: random.Random) -> bytes:
        chance = source.random()
        if chance < 0.8:
            first = source.choice(self._connects[:2])
            return struct.pack(">i", len(first)) + first
        if chance < 0.87:
            return source.choice(sorted(four_letter_words.WORDS)) + source.choice((b"", b"\n", b"x" * 100))
        return hostile(self._connects, source)

    def frame(self, source: random.Random) -> bytes:
        chance = source.random()
        if chance < 0.6:
            return hostile(self._recorded, source)
        if chance < 0.75:
            made = self._wild_multi(source)
        else:
            made = self._well_formed(source)
        return hostile([made], source) if source.random() < 0.2 else struct.pack(">i", len(made)) + made

    def _body(self, kind: OpCode, source: random.Random) -> bytearray:
        path, number = source.choice(_PATHS), source.choice(_NUMBERS)
        data = source.choice((None, b"", b"x", source.randbytes(50), bytes(source.choice((1000, 100_000)))))
        layout = messages.REQUESTS.get(kind)
        body: Message
        if layout is CreateRequest:
            body = CreateRequest(path, data, source.choice(_ACLS), source.choice(_NUMBERS))
        elif layout is VersionRequest:
            body = VersionRequest(path, number)
        elif layout is WatchableRequest:
            body = WatchableRequest(path, source.random() < 0.7)
        elif layout is SetDataRequest:
            body = SetDataRequest(path, data, number)
        elif layout is SetAclRequest:
            body = SetAclRequest(path, source.choice(_ACLS), number)
        elif layout is AuthPacket:
            body = AuthPacket(
                number,
                source.choice(("digest", "digest", "ip", "sasl", "")),
                source.choice((CLEANER, source.randbytes(source.randrange(40)))),
            )
        elif layout in (SetWatches, SetWatches2):
            paths = [tuple(source.choice(_PATHS) for _ in range(source.randrange(5))) for _ in range(5)]
            since = source.choice((0, 1, 10**6, -1, 2**63 - 1))
            body = (
                SetWatches(since, paths[0], paths[1], paths[2])
                if layout is SetWatches
                else SetWatches2(since, paths[0], paths[1], paths[2], paths[3], paths[4])
            )
        elif layout is PathRequest:
            body = PathRequest(path)
        else:
            return bytearray(source.randbytes(source.randrange(30)))
        return messages.write(bytearray(), body)

    def _well_formed(self, source: random.Random) -> bytes:
        kind = source.choice(list(OpCode))
        return _request(kind, self._body(kind, source), source.choice((1, 0, -1, -2, -4, -8, 2**31 - 1)))

    def _wild_multi(self, source: random.Random) -> bytes:
        """A multi of any length and of any kinds, with or without its end, or ended too early."""
        out = bytearray()
        kinds = [*messages.MULTI_TYPES, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.MULTI, OpCode.CREATE_CONTAINER]
        for _ in range(source.choice((0, 1, 2, 5, 50, 1000))):
            kind = source.choice(kinds if source.random() < 0.01 else sorted(messages.MULTI_TYPES))
            messages.write(out, MultiHeader(kind, source.random() < 0.002, source.choice((-1, 0, 7))))
            out += self._body(kind, source)
            if len(out) > 500_000:
                break
        if source.random() < 0.9:
            messages.write(out, MultiHeader(-1, True, -1))
        return _request(source.choice((OpCode.MULTI, OpCode.MULTI, OpCode.MULTI_READ)), out)
