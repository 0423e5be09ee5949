"""kafka-server-stop: stops the broker that holds the log directories of a configuration, or of ./data, and waits until it has stopped.

    kafka-server-stop                      the broker of ./data, as `jesenska up` starts it
    kafka-server-stop --data DIR           another directory
    kafka-server-stop server.properties    the log.dirs of that file

Kafka's script ends every process whose command line looks like Kafka's. This one ends a process only if its id stands in the lock file of one of
those directories *and* the system says that this very process holds the lock: an id that a crashed broker left there may belong to somebody else
by now, and Apache Kafka locks the same file without writing its id.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.configuration import broker_config
from jesenska.cli.tool import Parser, add_output, print_json, run_async, telling
from jesenska.log.directory_lock import FILE_NAME

_LOOK_SECONDS = 0.05
#: `struct flock` of fcntl(2): kind, whence, start, length and process, in the system's order.
_FLOCK = struct.Struct("@qqihh") if sys.platform == "darwin" else struct.Struct("@hhqqi4x")


def _parser() -> Parser:
    parser = Parser("kafka-server-stop", "Stops the broker that uses ./data, another directory, or the log.dirs of a configuration.")
    parser.runs_without_arguments = True
    parser.add_argument("file", nargs="?", metavar="FILE", help="The broker's configuration (server.properties); its log.dirs name the broker.")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE", help="A setting that beats the file.")
    parser.add_argument("--data", metavar="DIR", help="The broker's data directory (default: ./data).")
    parser.add_argument("--timeout-seconds", type=float, default=300.0, metavar="S", help="How long to wait until it has stopped (default: 300).")
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.file is not None and options.data is not None:
        parser.error("FILE can't be used with --data")
    directories = _directories(options)
    holders: dict[int, Path] = {}
    for directory in directories:
        if (process := lock_holder(directory)) is not None:
            holders.setdefault(process, directory)
    if not holders:
        where = ", ".join(map(str, directories))
        raise JesenskaError(f"No broker of jesenska runs on {where}: name its directory with --data, or its configuration file.")
    for process, directory in holders.items():
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            raise JesenskaError(f"Process {process}, which holds {directory}, belongs to another user: stop it as that one, or as root.") from None
    async with telling(f"Waiting for process {', '.join(map(str, holders))} to stop"):
        try:
            async with asyncio.timeout(options.timeout_seconds):
                # A lock that falls tells nobody: it has to be looked at.
                while any(lock_holder(directory) == process for process, directory in holders.items()):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise JesenskaError(
                f"The broker has not stopped within {options.timeout_seconds:g} s: wait, or end process {', '.join(map(str, holders))} with SIGKILL."
            ) from None
    if options.output == "json":
        print_json([{"pid": process, "directory": str(directory)} for process, directory in holders.items()])
    else:
        for process, directory in holders.items():
            print(f"Stopped process {process}, the broker of {directory}.")
    return 0


def _directories(options: argparse.Namespace) -> list[Path]:
    if options.file is None and not options.override:
        return [Path(options.data or "data")]
    defaults = {} if options.file is not None else {"log.dirs": options.data or "data"}
    config = broker_config(options.file, defaults, options.override)
    names = config.string("log.dirs") or config.string("log.dir") or ""
    return [Path(name.strip()) for name in names.split(",") if name.strip()]


def lock_holder(directory: Path) -> int | None:
    """The process that holds a directory's lock and wrote its id there, so a broker of ours; None otherwise. Takes no lock itself."""
    try:
        descriptor = os.open(directory / FILE_NAME, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        text = os.pread(descriptor, 32, 0).strip()
        asked = _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    kind, process = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    if kind == fcntl.F_UNLCK or not text.isdigit() or int(text) != process:
        return None
    return int(process)


if __name__ == "__main__":
    sys.exit(main())
