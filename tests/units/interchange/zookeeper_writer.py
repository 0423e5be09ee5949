"""ZooKeeper's files, written for tests: snapshots and transaction logs, byte for byte as the releases lay them out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import pack

from jesenska.interchange.nodes import Node

_ACL = pack(">iii", 1, 31, 5) + b"world" + pack(">i", 6) + b"anyone"
_CREATE, _DELETE, _SET_DATA, _MULTI, _CREATE_SESSION, _CLOSE_SESSION = 1, 2, 5, 14, -10, -11
#: A kind and a body.
Body = tuple[int, bytes]


def text(value: str) -> bytes:
    return buffer(value.encode())


def buffer(value: bytes | None) -> bytes:
    return pack(">i", -1) if value is None else pack(">i", len(value)) + value


def create(path: str, data: bytes | None, ephemeral: bool = False) -> Body:
    return _CREATE, text(path) + buffer(data) + _ACL + pack(">?i", ephemeral, 1)


def delete(path: str) -> Body:
    return _DELETE, text(path)


def set_data(path: str, data: bytes | None, version: int) -> Body:
    return _SET_DATA, text(path) + buffer(data) + pack(">i", version)


def multi(bodies: Iterable[Body]) -> Body:
    inside = [pack(">i", kind) + buffer(body) for kind, body in bodies]
    return _MULTI, pack(">i", len(inside)) + b"".join(inside)


def open_session() -> Body:
    return _CREATE_SESSION, pack(">i", 6000)


def close_session() -> Body:
    return _CLOSE_SESSION, b""


def snapshot(nodes: Mapping[str, Node], owners: Mapping[str, int] | None = None) -> bytes:
    out = b"ZKSN" + pack(">iq", 2, 0) + pack(">iqi", 1, 7, 6000) + pack(">iq", 1, 1) + _ACL
    for path in ["", *sorted(nodes)]:
        node = nodes.get(path, Node(b""))
        owner = (owners or {}).get(path, 0)
        out += (
            text(path)
            + buffer(node.data)
            + pack(">q", 1)
            + pack(">qqqqiiiqq", 1, 1, 0, 0, node.version, 0, 0, owner, 1)
        )
    out += text("/")
    return out + pack(">q", zlib.adler32(out)) + text("/")


def entry(zxid: int, body: Body, session: int = 7) -> bytes:
    kind, content = body
    whole = pack(">qiqqi", session, 1, zxid, 0, kind) + content
    return pack(">qi", zlib.adler32(whole), len(whole)) + whole + b"B"


def log(entries: Iterable[bytes], allocated: int = 200) -> bytes:
    return b"ZKLG" + pack(">iq", 2, 0) + b"".join(entries) + bytes(allocated)


def data_directory(directory: Path, nodes: Mapping[str, Node]) -> Path:
    """Writes a dataDir with exactly these nodes."""
    (directory / "version-2").mkdir(parents=True)
    (directory / "version-2" / "snapshot.5").write_bytes(snapshot(nodes))
    return directory
