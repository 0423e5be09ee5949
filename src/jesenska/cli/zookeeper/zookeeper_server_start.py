"""zookeeper-server-start: serves a metadata tree to ZooKeeper's clients, without a broker. Flags are those of Apache
Kafka's script:

    zookeeper-server-start [-name NAME] [-loggc] FILE [--override NAME=VALUE]...

FILE is a zookeeper.properties. Settings with an effect: dataDir, clientPort (2181; 0: any), clientPortAddress (all),
secureClientPort (TLS), secureClientPortAddress, tickTime (3000), maxClientCnxns (60), minSessionTimeout,
maxSessionTimeout, and the settings of TLS, logins and superusers that `metadata.zookeeper.server.guard_settings`
lists. If secureClientPort is set, clientPort has no default. The users are in the entry Server of the JAAS file that
KAFKA_OPTS names. Other settings are named on stderr and ignored. An ensemble (server.N) is refused. The data are
stored in one SQLite file in dataDir, not in ZooKeeper's logs and snapshots. SIGTERM, Ctrl-C and zookeeper-server-stop
stop the server cleanly. Sessions remain in the tree, and clients can continue their sessions after a restart. There is
no -daemon."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.ending import parents_end, stopped_in_order
from jesenska.cli.shared.log_lines import add_logging, configure_logging
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tool import Parser, properties_of, read_properties, run_async
from jesenska.cli.shared.tree_serving import Listening, served_tree, stops_when_the_tree_fails
from jesenska.metadata.zookeeper.server.guard_settings import GUARD_SETTINGS, guard_of, tls_of
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket

if TYPE_CHECKING:
    import ssl

    from jesenska.security.tls import TlsContexts

logger = logging.getLogger(__name__)

_NUMBERS = {
    "clientPort": 2181,
    "tickTime": 3000,
    "maxClientCnxns": 60,
    "minSessionTimeout": -1,
    "maxSessionTimeout": -1,
}
_TEXTS = ("dataDir", "clientPortAddress", "secureClientPort", "secureClientPortAddress")
_REFUSED = {"server.": "an ensemble is not built: run one server"}
#: Settings of Java's classes that serve TLS and identities, which this server always has.
_CLASSES = re.compile(
    r"serverCnxnFactory|authProvider\.\w+|jaasLoginRenew|ssl\.authProvider|requireClientAuthScheme|portUnification"
)


def _parser() -> Parser:
    parser = Parser(
        "zookeeper-server-start", "Serves the metadata tree to ZooKeeper's clients, with a configuration file."
    )
    parser.add_argument("file", metavar="FILE", help="The server's configuration (zookeeper.properties).")
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="A setting that beats the file."
    )
    parser.add_argument("-name", metavar="NAME", help="Accepted and ignored.")
    parser.add_argument("-loggc", action="store_true", help="Accepted and ignored.")
    add_logging(parser, "info")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_async(_parser(), arguments, _work)


async def _work(options: argparse.Namespace) -> int:
    configure_logging(options)
    settings = read_properties(options.file) | properties_of(options.override)
    directory, numbers = _checked(settings)
    config = ServerConfig(
        tick_ms=numbers["tickTime"],
        min_session_timeout_ms=numbers["minSessionTimeout"] if numbers["minSessionTimeout"] >= 0 else None,
        max_session_timeout_ms=numbers["maxSessionTimeout"] if numbers["maxSessionTimeout"] >= 0 else None,
        max_client_connections=numbers["maxClientCnxns"],
    )
    guard = guard_of(settings, os.environ)
    sockets = _Sockets(settings, numbers["clientPort"])
    stopping = asyncio.Event()
    for number in heeded_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    parents_end(asyncio.get_running_loop(), stopping)
    async with served_tree(
        directory,
        sockets.open,
        config,
        named=f"dataDir={directory}",
        stopped_by="zookeeper-server-stop",
        guard=lambda: guard,
    ) as server:
        stops_when_the_tree_fails(server, stopping)
        print(f"jesenska's ZooKeeper server is up at {sockets.shown(server)} (Ctrl-C stops it)", flush=True)
        await stopping.wait()
        failure = server.tree.failure
    if failure is not None:
        raise JesenskaError(failure)
    stopped_in_order()
    return 0


class _Sockets:
    """The ports of the server, and its TLS."""

    def __init__(self, settings: Mapping[str, str], port: int) -> None:
        self._host = settings.get("clientPortAddress", "")
        self._secure_host = settings.get("secureClientPortAddress", "")
        secure = settings.get("secureClientPort", "").strip()
        if secure and not (secure.isascii() and secure.isdigit() and int(secure) < 65536):
            raise JesenskaError(f"secureClientPort={secure} is not a port: write a number from 0 (any) to 65535.")
        self._port = port if "clientPort" in settings or not secure else None
        self._secure_port = int(secure) if secure else None
        self._contexts: TlsContexts | None = None
        if self._secure_port is not None:
            from jesenska.security.tls import TlsContexts

            self._contexts = TlsContexts(tls_of(settings, os.environ), logger.error)

    def open(self) -> Listening:
        plain = None if self._port is None else listening_socket(self._host, self._port)
        if self._secure_port is None:
            return Listening(plain)
        return Listening(plain, (listening_socket(self._secure_host, self._secure_port), self._context))

    def _context(self) -> ssl.SSLContext:
        assert self._contexts is not None
        self._contexts.look()
        return self._contexts.current()

    def shown(self, server: ZooKeeperServer) -> str:
        plain = None if self._port is None else f"{self._host or '*'}:{server.port}"
        secure = None if self._secure_port is None else f"{self._secure_host or '*'}:{server.secure_port} with TLS"
        return " and ".join(one for one in (plain, secure) if one is not None)


def _checked(settings: Mapping[str, str]) -> tuple[Path, dict[str, int]]:
    """Returns the dataDir and the settings that are numbers. Raises JesenskaError if a setting is missing or wrong, or
    belongs to a feature that does not exist here."""
    for name in settings:
        for begin, reason in _REFUSED.items():
            if name.startswith(begin):
                raise JesenskaError(f"{name} is set, but {reason}; remove it.")
        if name not in {*_NUMBERS, *_TEXTS, *GUARD_SETTINGS} and not _CLASSES.fullmatch(name):
            print(f"zookeeper-server-start: {name} has no effect here.", file=sys.stderr)
    if not settings.get("dataDir"):
        raise JesenskaError("dataDir is missing: name the directory for the data.")
    numbers = {}
    for name, default in _NUMBERS.items():
        text = settings.get(name, str(default)).strip()
        if not (text.lstrip("-").isascii() and text.removeprefix("-").isdigit()):
            raise JesenskaError(f"{name}={text} is not a number: write a number.")
        numbers[name] = int(text)
    if not 0 <= numbers["clientPort"] < 65536 or numbers["tickTime"] < 1 or numbers["maxClientCnxns"] < 0:
        raise JesenskaError(
            "clientPort must be a port, tickTime a number of milliseconds from 1, maxClientCnxns 0 or more: correct "
            "the wrong one."
        )
    return Path(settings["dataDir"]), numbers


if __name__ == "__main__":
    sys.exit(main())
