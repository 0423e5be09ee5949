"""The metadata tree (ZooKeeper's nodes) in a small separate process, for a supervisor (`supervisor`). The process
serves the tree to ZooKeeper's clients, and gets orders on stdin.

    python -m jesenska.cli.supervision.supervised_tree [--login] DIRECTORY [DESCRIPTOR]

DIRECTORY contains the tree, and is created if it is missing. DESCRIPTOR is a listening socket that the supervisor has
opened and also keeps open. So the port stays the same when this process is started again, and clients that connect
during the restart wait. With --login, only clients that log in as the directory's file says (`tree_login`) may use
the tree. Without DESCRIPTOR the operating system chooses a port at the loopback address. The lines on
stdin and stdout are described in `tree_orders`; the first line on stdout reports that clients can connect. Logs go to
stderr.

SIGTERM stops the process cleanly; sessions remain in the tree. When stdin is closed, the supervisor has ended. Then
this process first ends the guarded processes (`guarded`), because they need the tree for a clean stop, and then
itself. If the tree can no longer be written, the process ends, because a new start reads the tree again. Exit codes: 0
after a clean stop, 1 after it has reported on stdout why it failed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.base.limits import TREE_ORDER_MAX_BYTES
from jesenska.cli.shared.ending import stopped_in_order
from jesenska.cli.shared.log_lines import OnceAMinute
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tree_login import guard_of_directory
from jesenska.cli.shared.tree_serving import Listening, served_tree, stops_when_the_tree_fails
from jesenska.cli.supervision.guarded import Guarded, NotGuardedError
from jesenska.cli.supervision.session_ends import SessionEnds
from jesenska.cli.supervision.tree_orders import (
    TREE_HOST,
    EndHolder,
    EndSession,
    OrderError,
    OrderLines,
    line_of,
    parse_order,
)
from jesenska.metadata.tree_operations import BadArgumentsError
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket

#: All clients on one machine may have the same address, so the number of connections is not limited.
_CONFIG = ServerConfig(max_client_connections=0)
_STDIN, _STDOUT = 0, 1
_READ_BYTES = 64 * 1024


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    has_login = words[:1] == ["--login"]
    del words[: int(has_login)]
    logging.basicConfig(level=logging.WARNING, format="[%(asctime)s] %(levelname)s %(message)s")
    logging.getLogger().handlers[0].addFilter(OnceAMinute(SystemClock().monotonic))
    try:
        if not 1 <= len(words) <= 2:
            raise JesenskaError("Give a directory for the tree, and optionally the descriptor of a listening socket.")
        asyncio.run(_serve(Path(words[0]), words[1] if len(words) == 2 else None, has_login))
    except JesenskaError as error:
        _say(failed=str(error))
        return 1
    return 0


async def _serve(directory: Path, descriptor: str | None, has_login: bool) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in heeded_signals():
        loop.add_signal_handler(number, stopping.set)

    listening = _Listening(descriptor)
    async with served_tree(
        directory,
        lambda: Listening(listening.open()),
        _CONFIG,
        named=f"The tree's directory {directory}",
        guard=partial(guard_of_directory, directory) if has_login else None,
    ) as server:
        stops_when_the_tree_fails(server, stopping)
        supervisor = _Supervisor(server, stopping)
        supervisor.listen()
        _say(ready=True, host=listening.host, port=server.port, process=os.getpid())
        await stopping.wait()
        failure = server.tree.failure
        await supervisor.close()
    if failure is not None:
        raise JesenskaError(failure)
    stopped_in_order()


class _Listening:
    """The listening socket of the tree: the supervisor's socket or, without it, a socket at the loopback address.
    After the socket was opened, `host` is its address."""

    def __init__(self, descriptor: str | None) -> None:
        self.host = TREE_HOST
        self._descriptor = descriptor

    def open(self) -> socket.socket:
        opened = listening_socket(TREE_HOST, 0) if self._descriptor is None else _inherited(self._descriptor)
        self.host = opened.getsockname()[0]
        return opened


def _inherited(descriptor: str) -> socket.socket:
    """Returns the socket that was inherited from the supervisor."""
    try:
        listening = socket.socket(fileno=int(descriptor))
        if not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ValueError
    except (ValueError, OSError) as error:
        raise JesenskaError(
            f"{descriptor} is not the descriptor of a listening socket: give such a descriptor, or leave the "
            "argument out."
        ) from error
    listening.set_inheritable(False)
    listening.setblocking(False)
    return listening


def _say(**said: Any) -> None:
    """Writes a line for the supervisor. Errors are ignored, because the supervisor may have ended."""
    with suppress(OSError):
        os.write(_STDOUT, line_of(**said))


class _Supervisor:
    """The connection to the supervisor. It carries out the supervisor's orders, and notices the end of the
    supervisor."""

    def __init__(self, server: ZooKeeperServer, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._ends = SessionEnds(server)
        self._guarded = Guarded()
        self._lines = OrderLines()
        self._outliving: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Reads orders from stdin from now on. Raises JesenskaError if stdin cannot be read."""
        try:
            asyncio.get_running_loop().add_reader(_STDIN, self._readable)
        except OSError as error:
            raise JesenskaError(
                f"Orders cannot be read from stdin ({error.strerror}): make it a pipe, which ends this process when "
                f"it is closed."
            ) from error

    async def close(self) -> None:
        """Stops reading orders. If the supervisor has ended, waits until the guarded processes have ended."""
        asyncio.get_running_loop().remove_reader(_STDIN)
        if self._outliving is not None:
            await self._outliving
        self._guarded.close()

    def _readable(self) -> None:
        try:
            data = os.read(_STDIN, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            loop = asyncio.get_running_loop()
            loop.remove_reader(_STDIN)
            self._outliving = loop.create_task(self._outlive())
            return
        for line in self._lines.feed(data):
            self._take(line)

    async def _outlive(self) -> None:
        await self._guarded.end()
        self._stopping.set()

    def _take(self, line: bytes | None) -> None:
        try:
            if line is None:
                raise OrderError(f"The line is longer than {TREE_ORDER_MAX_BYTES} bytes: write less.")
            order = parse_order(line)
        except OrderError as error:
            _say(number=error.number, refused=str(error))
            return
        number = order.number

        def ended(session_id: int | None, error: Exception | None) -> None:
            if error is None:
                _say(number=number, session=session_id)
            elif isinstance(error, BadArgumentsError):
                _say(number=number, refused=f"No session holds it ({error.reason}).")
            else:
                _say(number=number, later=f"The tree could not write it ({error}).")

        if isinstance(order, EndHolder):
            self._ends.end_holder(order.path, ended)
        elif isinstance(order, EndSession):
            self._ends.end(order.session_id, ended)
        else:
            try:
                self._guarded.add(order.process, order.grace_seconds)
            except NotGuardedError as error:
                _say(number=number, refused=str(error))
            else:
                _say(number=number)


if __name__ == "__main__":
    sys.exit(main())
