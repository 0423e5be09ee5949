"""Parses connect strings, `host:port,host:port/chroot`: the form in which Kafka's zookeeper.connect and ZooKeeper's
own clients write the addresses of a ZooKeeper ensemble."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError

DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True)
class ConnectString:
    """A parsed connect string. `chroot` is empty if the connect string has no chroot. Otherwise it begins with a slash
    and does not end with a slash."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @staticmethod
    def parse(text: str) -> ConnectString:
        """Parses a connect string. Raises ValueError, with a message of one sentence, if the text is not valid. An
        IPv6 address is written in brackets."""
        addresses, slash, path = text.strip().partition("/")
        chroot = (slash + path).rstrip("/")
        if chroot:
            try:
                check_path(chroot)
            except BadArgumentsError as error:
                raise ValueError(f"The chroot {chroot!r} is not a path of ZooKeeper ({error.reason}).") from None
        servers = tuple(_server(item.strip()) for item in addresses.split(",") if item.strip())
        if not servers:
            raise ValueError(f"{text!r} names no server: write host:port,host:port/chroot.")
        return ConnectString(servers, chroot)


def _server(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError(f"{text!r} is not an address: write host:port.")
    return host, int(port) if port else DEFAULT_PORT
