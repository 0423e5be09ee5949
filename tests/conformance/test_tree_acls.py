"""The same random requests of the same clients to our server and to Apache ZooKeeper 3.8.4: with random ACLs, both
refuse the same, answer the same, and tell the same clients of changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.metadata.acl import digest_identity
from jesenska.metadata.tree_operations import Acl, Stat
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    AuthPacket,
    CreateRequest,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    Message,
    MultiHeader,
    NamesResponse,
    OpCode,
    PathRequest,
    PathResponse,
    SaslToken,
    SetAclRequest,
    SetDataRequest,
    StatResponse,
    VersionRequest,
    WatchableRequest,
    WatcherEvent,
    Xid,
)
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.security.digest_md5 import DigestMd5Client
from tests.conformance.conftest import need
from tests.peers.zookeeper import ZooKeeper
from tests.raw_tree_client import Raw
from tests.served_tree import ServedTree

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(120)]

_USERS = {"kafka": "of kafka", "anna": "of anna", "super": "of super"}
#: The clients: the users as whom they log in, and the digest identities that they send.
_CLIENTS: tuple[tuple[str | None, tuple[bytes, ...]], ...] = (
    ("kafka", ()),
    ("anna", (b"u:p",)),
    (None, (b"u:p", b"v:q")),
    (None, ()),
    ("super", ()),
    (None, (b"root:secret",)),
)
_ROOT = digest_identity(b"root:secret")
_PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z")
_IDS = (
    ("world", "anyone"),
    ("world", "anyone"),
    ("world", "somebody"),
    ("auth", ""),
    ("auth", ""),
    ("digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
    ("digest", "w"),
    ("digest", ""),
    ("sasl", "kafka"),
    ("sasl", "anna"),
    ("sasl", "anna@"),
    ("sasl", "a/b@c@d"),
    ("sasl", ""),
    ("ip", "127.0.0.1"),
    ("ip", "127.0.0.0/8"),
    ("ip", "10.0.0.0/8"),
    ("ip", "300.0.0.1"),
    ("ip", "1.2.3"),
    ("super", ""),
    ("none", "x"),
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of our server and of Apache ZooKeeper, with the same users."""
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("acls")
    users = " ".join(f'user_{name}="{password}"' for name, password in _USERS.items())
    (directory / "jaas.conf").write_text(
        f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};\n"
    )
    settings = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "DigestAuthenticationProvider.superDigest": _ROOT.id,
    }
    guard = Guard(_USERS, superusers=frozenset({_ROOT}))
    options = [f"-Djava.security.auth.login.config={directory}/jaas.conf"]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(ServedTree(directory / "tree.db", guard=guard)).server.port
        theirs = stack.enter_context(ZooKeeper(directory, settings=settings, java_options=options)).port
        yield ours, theirs


class _Client:
    """One client of one server. `ask` returns the answer without times and numbers of transactions."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.events: list[Any] = []

    @staticmethod
    async def open(port: int, user: str | None, digests: tuple[bytes, ...]) -> _Client:
        raw = await Raw.open(port)
        if user is not None:
            client = DigestMd5Client(user, _USERS[user], "nonce-of-client")
            token = client.step(None)
            while token is not None:
                header, answer = await raw.ask(OpCode.SASL, SaslToken(token), answer=SaslToken)
                assert header.error == 0
                token = client.step(answer.token)
        for digest in digests:
            header, _ = await raw.ask(OpCode.AUTH, AuthPacket(0, "digest", digest), xid=Xid.AUTH)
            assert header.error == 0
        return _Client(raw)

    async def ask(self, kind: OpCode, *body: Message, answer: type[Message] | None = None) -> tuple[int, Any]:
        self._raw.send(kind, *body)
        while True:
            header, found = await self._raw.reply(None)
            if header.xid == Xid.NOTIFICATION:
                self.events.append(_decoded(WatcherEvent, found))
                continue
            assert header.xid == self._raw.xid
            return header.error, None if header.error or answer is None else _decoded(answer, found)


def _decoded(kind: type[Message], body: bytes) -> Any:
    return _plain(messages.read(kind, messages.Reader(body)))


def _plain(value: Any) -> Any:
    """Returns a value without the parts that differ between two servers, and rules as a set."""
    if isinstance(value, Stat):
        return (value.version, value.cversion, value.aversion, value.data_length, value.num_children)
    if isinstance(value, tuple):
        if value and all(isinstance(item, Acl) for item in value):
            return frozenset(value)
        if value and all(isinstance(item, str) for item in value):
            return tuple(sorted(value))
        return tuple(_plain(item) for item in value)
    return value


def _rules(chance: random.Random) -> tuple[Acl, ...]:
    permissions = (31, 31, 1, 2, 4, 8, 16, 3, 27, 15, 0)
    return tuple(
        Acl(chance.choice(permissions), *chance.choice(_IDS)) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3)))
    )


def _request(chance: random.Random) -> tuple[OpCode, tuple[Message, ...], type[Message] | None]:
    path, watch = chance.choice(_PATHS), chance.random() < 0.4
    match chance.randrange(12):
        case 0 | 1 | 2:
            return OpCode.CREATE, (CreateRequest(path, b"x", _rules(chance), 0),), PathResponse
        case 3:
            return OpCode.DELETE, (VersionRequest(path, -1),), None
        case 4:
            return OpCode.SET_DATA, (SetDataRequest(path, b"yy", -1),), StatResponse
        case 5:
            return OpCode.GET_DATA, (WatchableRequest(path, watch),), GetDataResponse
        case 6:
            return OpCode.EXISTS, (WatchableRequest(path, watch),), StatResponse
        case 7:
            return OpCode.GET_CHILDREN2, (WatchableRequest(path, watch),), GetChildren2Response
        case 8:
            return OpCode.GET_CHILDREN, (WatchableRequest(path, watch),), NamesResponse
        case 9:
            return OpCode.SET_ACL, (SetAclRequest(path, _rules(chance), chance.choice((-1, -1, 0, 1))),), StatResponse
        case 10:
            return OpCode.GET_ACL, (PathRequest(path),), GetAclResponse
        case _:
            parts: list[Message] = []
            for _ in range(2):
                kind, body = chance.choice(
                    (
                        (OpCode.CREATE, CreateRequest(chance.choice(_PATHS), b"m", _rules(chance), 0)),
                        (OpCode.SET_DATA, SetDataRequest(chance.choice(_PATHS), b"m", -1)),
                        (OpCode.CHECK, VersionRequest(chance.choice(_PATHS), -1)),
                        (OpCode.DELETE, VersionRequest(chance.choice(_PATHS), -1)),
                    )
                )
                parts += [MultiHeader(kind, False, -1), body]
            return OpCode.MULTI, (*parts, MultiHeader(-1, True, -1)), None


async def _compare(ports: tuple[int, int], seed: int, steps: int) -> None:
    sides = []
    for port in ports:
        clients = [await _Client.open(port, *who) for who in _CLIENTS]
        for path in sorted(_PATHS, reverse=True):
            await clients[-1].ask(OpCode.DELETE, VersionRequest(path, -1))
        sides.append(clients)
    try:
        chance = random.Random(seed)
        done = []
        for _ in range(steps):
            number = chance.randrange(len(_CLIENTS))
            kind, body, answer = _request(chance)
            results = [await side[number].ask(kind, *body, answer=answer) for side in sides]
            done.append((number, kind.name, body, results))
            assert results[0] == results[1], done[-8:]
            if kind in (OpCode.CREATE, OpCode.DELETE, OpCode.SET_DATA, OpCode.MULTI):
                heard = []
                for side in sides:
                    for client in side:
                        await client.ask(OpCode.SYNC, PathRequest("/"))
                    heard.append([client.events for client in side])
                assert heard[0] == heard[1], done[-8:]
    finally:
        for client in [client for side in sides for client in side]:
            Raw.made.remove(client._raw)
            await client._raw.end()


@pytest.mark.parametrize(("seed", "steps"), [(0, 400), (1, 400), (100, 2500)])
def test_rules_decide_as_in_apache_zookeeper(servers: tuple[int, int], seed: int, steps: int) -> None:
    asyncio.run(_compare(servers, seed, steps))
