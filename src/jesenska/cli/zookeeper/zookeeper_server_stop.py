"""zookeeper-server-stop: stops the server that `zookeeper-server-start` runs with a configuration, and waits until it
has stopped.

    zookeeper-server-stop zookeeper.properties    the server of that file's dataDir
    zookeeper-server-stop --data DIR              the server of that directory

Kafka's script ends every process whose command line looks like ZooKeeper's. This tool ends only the process that has
locked the directory (`stopping`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.stopping import add_stop_options, stop_holders
from jesenska.cli.shared.tool import Parser, add_output, directory, read_properties, run_async


def _parser() -> Parser:
    parser = Parser("zookeeper-server-stop", "Stops the server of a configuration's dataDir, or of another directory.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="The server's configuration (zookeeper.properties).")
    parser.add_argument("--data", type=directory, metavar="DIR", help="The server's directory, in place of FILE.")
    add_stop_options(parser)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if (options.file is None) == (options.data is None):
        parser.error("name the server with either FILE or --data, not with both")
    named = options.data or read_properties(options.file).get("dataDir")
    if not named:
        raise JesenskaError(f"{options.file} has no dataDir: name the directory with --data.")
    return await stop_holders("ZooKeeper server", [Path(named)], options)


if __name__ == "__main__":
    sys.exit(main())
