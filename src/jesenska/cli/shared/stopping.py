"""Ends the process that has locked a directory, and waits until it has ended.

A process is ended only if its id is in the lock file of the directory *and* the system reports that this process has
the lock. The id may be left from a process that crashed, and may belong to another process by now. Apache Kafka locks
the same file, but does not write its id."""

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
from jesenska.cli.shared.tool import print_json, seconds, telling
from jesenska.log.directory.directory_lock import FILE_NAME

_LOOK_SECONDS = 0.05
#: The fields of `struct flock` of fcntl(2), in the order of the operating system: type, whence, start, length and
#: process id.
_FLOCK = struct.Struct("@qqihh") if sys.platform == "darwin" else struct.Struct("@hhqqi4x")


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout-seconds",
        type=seconds,
        default=300.0,
        metavar="S",
        help="How long to wait until it has stopped (default: 300).",
    )


async def stop_holders(what: str, directories: Sequence[Path], options: argparse.Namespace) -> int:
    """Stops the processes that have locked these directories, and prints that they have stopped. Raises JesenskaError
    with one sentence if there is no such process, or if a process may not be stopped or does not stop."""
    holders: dict[int, Path] = {}
    for directory in directories:
        if (process := lock_holder(directory)) is not None:
            holders.setdefault(process, directory)
    if not holders:
        where = ", ".join(map(str, directories))
        raise JesenskaError(
            f"No {what} of jesenska runs on {where}: name its directory with --data, or its configuration file."
        )
    for process, directory in holders.items():
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            raise JesenskaError(
                f"Process {process}, which has locked {directory}, belongs to another user: stop it as that user, or "
                "as root."
            ) from None
    async with telling(f"Waiting for process {', '.join(map(str, holders))} to stop"):
        try:
            async with asyncio.timeout(options.timeout_seconds):
                # No event reports that a lock is released, so the lock is polled.
                while any(lock_holder(directory) == process for process, directory in holders.items()):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise JesenskaError(
                f"The {what} has not stopped within {options.timeout_seconds:g} s: wait, or end process "
                f"{', '.join(map(str, holders))} with SIGKILL."
            ) from None
    if options.output == "json":
        print_json([{"pid": process, "directory": str(directory)} for process, directory in holders.items()])
    else:
        for process, directory in holders.items():
            print(f"Stopped process {process}, the {what} of {directory}.")
    return 0


def lock_holder(directory: Path) -> int | None:
    """Returns the id of the process of jesenska that has locked a directory and has written its id into the lock file.
    Returns None if there is no such process. The function does not lock anything, so it only needs permission to read
    the file. Raises JesenskaError if this permission is missing."""
    try:
        descriptor = os.open(directory / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise JesenskaError(
            f"This user may not read {directory}: run the command as the user that runs the server, or as root."
        ) from error
    try:
        text = os.pread(descriptor, 32, 0).strip()
        asked = (
            _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            if sys.platform == "darwin"
            else _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    kind, process = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    if kind == fcntl.F_UNLCK or not text.isdigit() or int(text) != process:
        return None
    return int(process)
