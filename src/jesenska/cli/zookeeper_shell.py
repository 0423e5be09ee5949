"""zookeeper-shell: looks at a tree behind ZooKeeper's protocol, ours or a ZooKeeper's, and changes it. Arguments of Apache Kafka's script:

    zookeeper-shell HOST:PORT[,HOST:PORT...][/CHROOT] [COMMAND [ARGUMENT]...]

One command, or, without one, lines of them on standard input (a prompt where that is a terminal). Commands and what they print are ZooKeeper's own shell's:

    ls [-s] [-R] PATH     get [-s] PATH     stat PATH     set [-s] [-v VERSION] PATH DATA     create [-s] [-e] PATH [DATA]
    delete [-v VERSION] PATH     deleteall PATH     sync PATH     help     quit
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from jesenska.base.errors import JesenskaError
from jesenska.cli.tool import Parser, run_async, telling
from jesenska.metadata.store import Store
from jesenska.metadata.transactions import (
    ANY_VERSION,
    BadVersionError,
    ConnectionLossError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    TreeError,
)
from jesenska.metadata.zookeeper.client import connect

_USAGE = __doc__.split("\n\n")[3].strip() if __doc__ else ""
_SENTENCES: dict[type[TreeError], str] = {
    NoNodeError: "Node does not exist: {}",
    NodeExistsError: "Node already exists: {}",
    NotEmptyError: "Node not empty: {}",
    BadVersionError: "version No is not valid : {}",
    NoAuthError: "Insufficient permission : {}",
    NoChildrenForEphemeralsError: "Ephemerals cannot have children: {}",
}


class _UsageError(Exception):
    """The command is not one; the text says what is wrong."""


def _parser() -> Parser:
    parser = Parser("zookeeper-shell", "Looks at a tree behind ZooKeeper's protocol, and changes it.")
    parser.add_argument("servers", metavar="HOST:PORT[,...][/CHROOT]", help="Where the tree is served.")
    parser.add_argument("--timeout-ms", type=int, default=30_000, metavar="MS", help="The session's timeout (default: 30000).")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="One command; without one, they are read from standard input.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_async(_parser(), arguments, _work)


async def _work(options: argparse.Namespace) -> int:
    try:
        async with telling(f"Waiting for the ZooKeeper at {options.servers}"):
            store = await connect(options.servers, session_timeout_ms=options.timeout_ms)
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    except ConnectionLossError as error:
        raise JesenskaError(f"{error.reason[:1].upper()}{error.reason[1:]}: start it, or name another.") from error
    try:
        if options.command:
            return 0 if await _told(store, options.command) else 1
        async for line in _lines():
            try:
                words = shlex.split(line)
            except ValueError as error:
                print(f"{error}", file=sys.stderr)
                continue
            if words[:1] in (["quit"], ["close"]):
                break
            if words:
                await _told(store, words)
        return 0
    finally:
        await store.close()


async def _lines() -> AsyncIterator[str]:
    """Lines of standard input; Ctrl-C is not held up by a read that waits for the next one."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    wanted = threading.Semaphore(0)

    def read() -> None:
        while wanted.acquire():
            data = os.read(sys.stdin.fileno(), 65536)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(arrived.put_nowait, data)

    threading.Thread(target=read, daemon=True).start()
    is_terminal, rest = sys.stdin.isatty(), b""
    while True:
        if is_terminal and not rest:
            print("> ", end="", flush=True)
        while b"\n" not in rest:
            wanted.release()
            data = await arrived.get()
            if not data:
                if rest:
                    yield rest.decode(errors="replace")
                return
            rest += data
        line, _, rest = rest.partition(b"\n")
        yield line.decode(errors="replace")


async def _told(store: Store, words: Sequence[str]) -> bool:
    """Does a command and prints what it found, or why not."""
    try:
        for line in await _done(store, words[0], list(words[1:])):
            print(line, flush=True)
        return True
    except _UsageError as error:
        print(f"{error}\n{_USAGE}", file=sys.stderr)
    except TreeError as error:
        print(_SENTENCES.get(type(error), str(error).replace("{", "{{").replace("}", "}}")).format(error.path), file=sys.stderr)
    return False


async def _done(store: Store, command: str, words: list[str]) -> list[str]:
    flags = {word for word in words if word in ("-s", "-R", "-e")} if command in ("ls", "get", "set", "create") else set()
    version = ANY_VERSION
    if command in ("set", "delete") and "-v" in words:
        place = words.index("-v")
        with contextlib.suppress(IndexError, ValueError):
            version = int(words.pop(place + 1))
            words.pop(place)
    words = [word for word in words if word not in flags]
    match command, words:
        case "help", _:
            return [_USAGE]
        case "ls", [path] if "-R" in flags:
            return await _tree(store, path)
        case "ls", [path]:
            names, stat = await store.children(path)
            return [f"[{', '.join(names)}]", *(_described(stat) if "-s" in flags else ())]
        case "get", [path]:
            data, stat = await store.get(path)
            return [data.decode(errors="replace") if data else "null", *(_described(stat) if "-s" in flags else ())]
        case "stat", [path]:
            found = await store.exists(path)
            if found is None:
                raise NoNodeError(path)
            return _described(found)
        case "set", [path, data]:
            stat = await store.set(path, data.encode(), version)
            return _described(stat) if "-s" in flags else []
        case "create", [path, *data] if len(data) < 2:
            result = await store.create(path, "".join(data).encode(), ephemeral="-e" in flags, sequential="-s" in flags)
            return [f"Created {result.path}"]
        case "delete", [path]:
            await store.delete(path, version)
            return []
        case "deleteall", [path]:
            for below in reversed(await _tree(store, path)):
                await store.delete(below)
            return []
        case "sync", [path]:
            await store.sync(path)
            return ["Sync is OK"]
    raise _UsageError(f"{shlex.join([command, *words])} is no command of this shell.")


async def _tree(store: Store, path: str) -> list[str]:
    """The node and all below it, each before its children; a node that goes meanwhile is left out."""
    found, waiting = [path], [path]
    await store.get(path)
    while waiting:
        parent = waiting.pop(0)
        with contextlib.suppress(NoNodeError):
            below = [f"{parent.rstrip('/')}/{name}" for name in (await store.children(parent))[0]]
            found += below
            waiting += below
    return found


def _described(stat: Stat) -> list[str]:
    """A stat as ZooKeeper's shell prints it."""
    return [
        f"cZxid = {stat.czxid:#x}",
        f"ctime = {_time(stat.ctime)}",
        f"mZxid = {stat.mzxid:#x}",
        f"mtime = {_time(stat.mtime)}",
        f"pZxid = {stat.pzxid:#x}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = {stat.ephemeral_owner:#x}",
        f"dataLength = {stat.data_length}",
        f"numChildren = {stat.num_children}",
    ]


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


if __name__ == "__main__":
    sys.exit(main())
