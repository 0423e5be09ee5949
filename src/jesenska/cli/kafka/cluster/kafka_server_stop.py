"""kafka-server-stop: stops the broker that has locked the log directories of a configuration, or ./data, and waits
until it has stopped.

    kafka-server-stop                      the broker of ./data, as `jesenska up` starts it
    kafka-server-stop --data DIR           the broker of the directory DIR
    kafka-server-stop server.properties    the broker that uses the log.dirs of that file

Kafka's script ends every process whose command line looks like Kafka's. This tool ends only a process that has locked
one of the directories (`stopping`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.stopping import add_stop_options, stop_holders
from jesenska.cli.shared.tool import Parser, add_output, directory, run_async


def _parser() -> Parser:
    parser = Parser(
        "kafka-server-stop", "Stops the broker that uses ./data, another directory, or the log.dirs of a configuration."
    )
    parser.runs_without_arguments = True
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="The broker's configuration (server.properties); its log.dirs name the broker.",
    )
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="A setting that beats the file."
    )
    parser.add_argument("--data", type=directory, metavar="DIR", help="The broker's data directory (default: ./data).")
    add_stop_options(parser)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.file is not None and options.data is not None:
        parser.error("FILE can't be used with --data")
    return await stop_holders("broker", _directories(options), options)


def _directories(options: argparse.Namespace) -> list[Path]:
    if options.file is None and not options.override:
        return [Path(options.data or "data")]
    defaults = {} if options.file is not None else {"log.dirs": options.data or "data"}
    config = broker_config(options.file, defaults, options.override, warns=False)
    names = config.string("log.dirs") or config.string("log.dir") or ""
    return [Path(name.strip()) for name in names.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
