"""zookeeper-shell: reads and changes the nodes of a ZooKeeper, or of jesenska's metadata tree, over ZooKeeper's
protocol. Arguments are those of Apache Kafka's script:

    zookeeper-shell HOST:PORT[,HOST:PORT...][/CHROOT] [-zk-tls-config-file FILE] [COMMAND [ARGUMENT]...]

The shell runs one command or, without a command, the lines of standard input (with a prompt on a terminal). Commands
and their output are those of ZooKeeper's own shell:

    ls [-s] [-w] [-R] PATH     get [-s] [-w] PATH     stat [-w] PATH
    set [-s] [-v VERSION] PATH DATA [VERSION]     sync PATH
    create [-s] [-e] PATH [DATA] [ACL]     delete [-v VERSION] PATH [VERSION]
    deleteall PATH     getEphemerals [PATH]
    getAcl [-s] PATH     setAcl [-s] [-v VERSION] PATH ACL     addauth SCHEME AUTH     whoami
    version     help     quit

An ACL is SCHEME:ID:PERMISSIONS[,...] with permissions of cdrwa (create, delete, read, write, admin), such as
world:anyone:cdrwa. The shell logs in with the entry Client of the JAAS file that KAFKA_OPTS names
(-Djava.security.auth.login.config), and uses TLS with the settings zookeeper.ssl.* of FILE. With -w the next change of
the node is printed when it happens. Differs from ZooKeeper's shell: a failed command is reported on standard error; an
unknown permission letter is an error. Not supported: containers and nodes that expire (create -c, -t), quotas,
reconfig, addWatch, history."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from jesenska import __version__
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.cli.shared.tool import Parser, run_async, telling
from jesenska.cli.shared.zookeeper_option import TLS_FLAG, access_of, add_tls_config_file
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.metadata.store import ChrootStore, Store
from jesenska.metadata.tree_operations import (
    ADMIN,
    ANY_VERSION,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    BadVersionError,
    ConnectionLossError,
    InvalidAclError,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetAcl,
    Stat,
    TreeError,
)
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.failures import explained
from jesenska.security.java_options import LOGIN_FILE

_USAGE = __doc__.split("\n\n")[3].strip() if __doc__ else ""
_SENTENCES: dict[type[TreeError], str] = {
    NoNodeError: "Node does not exist: {}",
    NodeExistsError: "Node already exists: {}",
    NotEmptyError: "Node not empty: {}",
    BadVersionError: "version No is not valid : {}",
    NoAuthError: "Insufficient permission : {}",
    InvalidAclError: "Acl is not valid : {}",
    NoChildrenForEphemeralsError: "Ephemerals cannot have children: {}",
}


#: The letters of permissions, in the order in which they are printed.
_PERMISSIONS = {"c": CREATE, "d": DELETE, "r": READ, "w": WRITE, "a": ADMIN}
#: The number of seconds that a ZooKeeper may take to answer. After that the shell checks if a Kafka broker listens at
#: the address.
_ANSWER_SECONDS = 1.0


_TLS_FLAGS = ("--zk-tls-config-file", "-zk-tls-config-file")


class _UsageError(Exception):
    """The error that is raised if a command is not valid. The message is the reason."""


def _parser() -> Parser:
    parser = Parser("zookeeper-shell", "Looks at a tree behind ZooKeeper's protocol, and changes it.")
    parser.add_argument("servers", metavar="HOST:PORT[,...][/CHROOT]", help="Where the tree is served.")
    parser.add_argument(
        "--timeout-ms", type=int, default=30_000, metavar="MS", help="The session's timeout (default: 30000)."
    )
    add_tls_config_file(parser, _TLS_FLAGS[1])
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="One command; without one, they are read from standard input.",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_async(_parser(), arguments, _work)


async def _work(options: argparse.Namespace) -> int:
    try:
        where = ConnectString.parse(options.servers)
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    if len(options.command) > 1 and options.command[0] in _TLS_FLAGS:  # Kafka's script has the flag after the servers
        options.zk_tls_config_file = options.command[1]
        del options.command[:2]
    access = access_of(options.zk_tls_config_file)
    async with telling(f"Waiting for the ZooKeeper at {options.servers}"):
        shell = _Shell(await _connected(where, options.timeout_ms, access), where.chroot, access.is_identified)
    try:
        if options.command:
            return 0 if await shell.run(options.command) else 1
        async for line in _lines():
            try:
                words = shlex.split(line)
            except ValueError as error:
                print(f"{error}", file=sys.stderr)
                continue
            if words[:1] in (["quit"], ["close"]):
                break
            if words:
                await shell.run(words)
        return 0
    finally:
        await shell.close()


async def _connected(where: ConnectString, timeout_ms: int, access: TreeAccess) -> ZooKeeperStore:
    """Returns a session with the server. Raises JesenskaError if the server does not answer, or if a Kafka broker
    answers."""
    connecting = asyncio.get_running_loop().create_task(
        ZooKeeperStore.connect(where, session_timeout_ms=timeout_ms, access=access)
    )
    try:
        await asyncio.wait({connecting}, timeout=_ANSWER_SECONDS)
        if not connecting.done() or connecting.exception() is not None:
            for host, port in where.servers:
                if await _is_a_broker(host, port):
                    raise JesenskaError(
                        f"A Kafka broker answers at {host}:{port}, and not a ZooKeeper: name the port of the "
                        "ZooKeeper, which is usually 2181."
                    )
        with explained(", ".join(f"{host}:{port}" for host, port in where.servers), TLS_FLAG):
            return await connecting
    except ConnectionLossError as error:
        raise JesenskaError(
            f"{error.reason[:1].upper()}{error.reason[1:]}: start the ZooKeeper, or name another one."
        ) from error
    finally:
        connecting.cancel()


async def _is_a_broker(host: str, port: int) -> bool:
    cluster = Cluster(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}", ClientConfig(request_timeout_seconds=_ANSWER_SECONDS)
    )
    try:
        await cluster.any_channel()
    except KafkaError:
        return False
    finally:
        await cluster.close()
    return True


async def _lines() -> AsyncIterator[str]:
    """Yields the lines of standard input. A read that waits for the next line does not delay Ctrl-C."""
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


class _Command(NamedTuple):
    """The form of a command: its flags (a colon follows flags that take a number), and the smallest and largest number
    of its words."""

    flags: str
    least: int
    most: int


_COMMANDS = {
    "help": _Command("", 0, 9),
    "version": _Command("", 0, 0),
    "whoami": _Command("", 0, 0),
    "ls": _Command("swR", 1, 1),
    "get": _Command("sw", 1, 1),
    "stat": _Command("w", 1, 1),
    "set": _Command("sv:", 2, 3),
    "create": _Command("se", 1, 3),
    "delete": _Command("v:", 1, 2),
    "deleteall": _Command("", 1, 1),
    "sync": _Command("", 1, 1),
    "getEphemerals": _Command("", 0, 1),
    "getAcl": _Command("s", 1, 1),
    "setAcl": _Command("sv:", 2, 2),
    "addauth": _Command("", 2, 2),
}


def _parsed(command: str, words: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Returns a command's flags, each with its number (0 for flags without a number), and its words."""
    form = _COMMANDS.get(command)
    if form is None:
        raise _UsageError(f"{shlex.join([command, *words])} is not a command of this shell.")
    flags, rest, waiting = {}, [], list(words)
    while waiting:
        word = waiting.pop(0)
        if len(word) == 2 and word[0] == "-" and word[1] in form.flags and word[1] != ":":
            flags[word[1]] = _number(waiting.pop(0) if waiting else "") if word[1] + ":" in form.flags else 0
        elif len(word) == 2 and word[0] == "-" and not word[1].isdigit():
            raise _UsageError(f"{command} has no flag {word}.")
        else:
            rest.append(word)
    if not form.least <= len(rest) <= form.most:
        raise _UsageError(f"{shlex.join([command, *words])} is not a command of this shell.")
    if command in ("set", "delete") and len(rest) == form.most:
        flags["v"] = _number(rest.pop())
    return flags, rest


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _UsageError(f"{text!r} is not a version: write a number.") from None


def parse_acl(text: str) -> tuple[Acl, ...]:
    """Returns the rules in a text SCHEME:ID:PERMISSIONS[,...]; an id may contain colons. Raises `_UsageError` for text
    that is not in this form."""
    rules = []
    for piece in text.split(","):
        scheme, first, rest = piece.partition(":")
        name, last, letters = rest.rpartition(":")
        if not (first and last):
            raise _UsageError(f"{piece} does not have the form scheme:id:perm")
        unknown = [letter for letter in letters if letter not in _PERMISSIONS]
        if unknown:
            raise _UsageError(f"Unknown perm type: {unknown[0]}")
        rules.append(Acl(sum(_PERMISSIONS[letter] for letter in set(letters)), scheme, name))
    return tuple(rules)


def _acl_lines(acl: Sequence[Acl]) -> list[str]:
    lines = []
    for rule in acl:
        letters = "".join(letter for letter, bit in _PERMISSIONS.items() if rule.permissions & bit)
        lines += [f"'{rule.scheme},'{rule.id}", f": {letters}"]
    return lines


def _tell(event: WatchEvent) -> None:
    """Prints an event of a watch, in the format of ZooKeeper's shell."""
    kind = "".join(word.capitalize() for word in event.type.name.split("_"))
    print(f"\nWATCHER::\n\nWatchedEvent state:SyncConnected type:{kind} path:{event.path}", flush=True)


class _Shell:
    """Runs commands in one session with the server."""

    def __init__(self, session: ZooKeeperStore, chroot: str, is_identified: bool) -> None:
        self._session = session
        self._is_identified = is_identified
        self._chroot = chroot
        self._store: Store = ChrootStore(session, chroot) if chroot else session

    async def close(self) -> None:
        await self._session.close()

    async def run(self, words: Sequence[str]) -> bool:
        """Runs a command and prints its result or its error. Returns true if it succeeded."""
        try:
            flags, rest = _parsed(words[0], words[1:])
            for line in await self._done(words[0], flags, rest):
                print(line, flush=True)
            return True
        except _UsageError as error:
            print(f"{error}\n{_USAGE}", file=sys.stderr)
        except (TreeError, MultiError) as error:
            refused = error.error if isinstance(error, MultiError) else error
            text = _SENTENCES.get(type(refused), str(refused).replace("{", "{{").replace("}", "}}"))
            why = f" ({refused.reason})" if isinstance(refused, NoAuthError) and refused.reason else ""
            if isinstance(refused, NoAuthError) and not self._is_identified:
                why += f'. Log in with a JAAS file: KAFKA_OPTS="-D{LOGIN_FILE}=FILE".'
            print(text.format(refused.path.removeprefix(self._chroot) or "/") + why, file=sys.stderr)
        return False

    async def _done(self, command: str, flags: Mapping[str, int], words: list[str]) -> list[str]:
        store, version = self._store, flags.get("v", ANY_VERSION)
        watch = _tell if "w" in flags else None

        def with_stat(lines: list[str], stat: Stat) -> list[str]:
            return [*lines, *_described(stat)] if "s" in flags else lines

        match command, words:
            case "help", _:
                return [_USAGE]
            case "version", _:
                return [f"ZooKeeper CLI version: jesenska {__version__}"]
            case "whoami", _:
                return ["Auth scheme: User", *(f"{scheme}: {name}" for scheme, name in await self._session.who_am_i())]
            case "addauth", [scheme, auth]:
                await self._session.add_auth(scheme, auth.encode())
                self._is_identified = True
            case "ls", [path] if "R" in flags:
                return await _tree(store, path)
            case "ls", [path]:
                names, stat = await store.children(path, watch)
                return with_stat([f"[{', '.join(names)}]"], stat)
            case "get", [path]:
                data, stat = await store.get(path, watch)
                return with_stat([data.decode(errors="replace") if data else "null"], stat)
            case "stat", [path]:
                found = await store.exists(path, watch)
                if found is None:
                    raise NoNodeError(path)
                return _described(found)
            case "set", [path, data]:
                return with_stat([], await store.set(path, data.encode(), version))
            case "create", [path, *more]:
                acl = parse_acl(more[1]) if len(more) > 1 else OPEN_ACL
                result = await store.create(
                    path, "".join(more[:1]).encode(), ephemeral="e" in flags, sequential="s" in flags, acl=acl
                )
                return [f"Created {result.path}"]
            case "delete", [path]:
                await store.delete(path, version)
            case "deleteall", [path]:
                for below in reversed(await _tree(store, path)):
                    await store.delete(below)
            case "sync", [path]:
                await store.sync(path)
                return ["Sync is OK"]
            case "getAcl", [path]:
                acl, stat = await self._session.get_acl(self._inside(path))
                return with_stat(_acl_lines(acl), stat)
            case "setAcl", [path, rules]:
                (result,) = await store.multi([SetAcl(path, parse_acl(rules), version)])
                assert result.stat is not None
                return with_stat([], result.stat)
            case "getEphemerals", paths:
                found_paths = await self._session.ephemerals(self._inside(paths[0] if paths else "/"))
                return [f"[{', '.join(item.removeprefix(self._chroot) for item in found_paths)}]"]
        return []

    def _inside(self, path: str) -> str:
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path


async def _tree(store: Store, path: str) -> list[str]:
    """Returns the node and all nodes below it, each before its children. Nodes that are deleted meanwhile are left
    out."""
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
    """Returns the lines of a stat in the format of ZooKeeper's shell."""
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
