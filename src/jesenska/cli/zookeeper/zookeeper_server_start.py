"""zookeeper-server-start: serves a metadata tree to ZooKeeper's clients, without a broker. Flags are those of Apache
Kafka's script:

    zookeeper-server-start [-name NAME] [-loggc] FILE [--override NAME=VALUE]...

FILE is a zookeeper.properties. Settings with an effect: dataDir, clientPort (2181; 0: any), clientPortAddress (all),
tickTime (3000), maxClientCnxns (60), minSessionTimeout, maxSessionTimeout. Other settings are named on stderr and
ignored. Settings of features that this server does not have are refused: an ensemble (server.N) and TLS
(secureClientPort). The data are stored in one SQLite file in dataDir, not in ZooKeeper's logs and snapshots. SIGTERM,
Ctrl-C and zookeeper-server-stop stop the server cleanly. Sessions remain in the tree, and clients can continue their
sessions after a restart. There is no -daemon."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.ending import parents_end, stopped_in_order
from jesenska.cli.shared.log_lines import add_logging, configure_logging
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tool import Parser, properties_of, read_properties, run_async
from jesenska.cli.shared.tree_serving import served_tree, stops_when_the_tree_fails
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket

_NUMBERS = {
    "clientPort": 2181,
    "tickTime": 3000,
    "maxClientCnxns": 60,
    "minSessionTimeout": -1,
    "maxSessionTimeout": -1,
}
_TEXTS = ("dataDir", "clientPortAddress")
_REFUSED = {
    "server.": "an ensemble is not built: run one server",
    "secureClientPort": "TLS is not built, and no plain connection is made in its place",
}


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
    host = settings.get("clientPortAddress", "")
    stopping = asyncio.Event()
    for number in heeded_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    parents_end(asyncio.get_running_loop(), stopping)
    async with served_tree(
        directory,
        lambda: listening_socket(host, numbers["clientPort"]),
        config,
        named=f"dataDir={directory}",
        stopped_by="zookeeper-server-stop",
    ) as server:
        stops_when_the_tree_fails(server, stopping)
        print(f"jesenska's ZooKeeper server is up at {host or '*'}:{server.port} (Ctrl-C stops it)", flush=True)
        await stopping.wait()
        failure = server.tree.failure
    if failure is not None:
        raise JesenskaError(failure)
    stopped_in_order()
    return 0


def _checked(settings: Mapping[str, str]) -> tuple[Path, dict[str, int]]:
    """Returns the dataDir and the settings that are numbers. Raises JesenskaError if a setting is missing or wrong, or
    belongs to a feature that does not exist here."""
    for name in settings:
        for begin, reason in _REFUSED.items():
            if name.startswith(begin):
                raise JesenskaError(f"{name} is set, but {reason}; remove it.")
        if name not in _NUMBERS and name not in _TEXTS:
            print(f"zookeeper-server-start: {name} has no effect here.", file=sys.stderr)
    if not settings.get("dataDir"):
        raise JesenskaError("dataDir is missing: name the directory for the data.")
    numbers = {}
    for name, default in _NUMBERS.items():
        text = settings.get(name, str(default)).strip()
        if not (text.lstrip("-").isascii() and text.removeprefix("-").isdigit()):
            raise JesenskaError(f"{name}={text} is no number: write one.")
        numbers[name] = int(text)
    if not 0 <= numbers["clientPort"] < 65536 or numbers["tickTime"] < 1 or numbers["maxClientCnxns"] < 0:
        raise JesenskaError(
            "clientPort must be a port, tickTime a number of milliseconds from 1, maxClientCnxns 0 or more: correct "
            "the wrong one."
        )
    return Path(settings["dataDir"]), numbers


if __name__ == "__main__":
    sys.exit(main())
