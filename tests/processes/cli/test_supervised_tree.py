"""The tree's process alone. The test sends it orders in place of the supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.limits import TREE_ORDER_MAX_BYTES
from jesenska.log.directory.directory_lock import DirectoryLock
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.net.listener import listening_socket
from tests.on_a_loop import on_a_loop
from tests.session_holder import SESSION_TIMEOUT_MS

#: The limit for waits. It is less than a session's timeout.
_SECONDS = 50.0


class Tree:
    """The process, its orders and answers."""

    def __init__(
        self, directory: Path, *arguments: str, stdin: Any = subprocess.PIPE, descriptors: tuple[int, ...] = ()
    ) -> None:
        command = [sys.executable, "-m", "jesenska.cli.supervision.supervised_tree", str(directory), *arguments]
        self.process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, start_new_session=True, pass_fds=descriptors
        )
        self.address = ""

    def hear(self) -> dict[str, Any]:
        """The next line of its output."""
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        assert isinstance(said, dict)
        return said

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, **order: Any) -> dict[str, Any]:
        self.write(json.dumps(order).encode() + b"\n")
        return self.hear()

    def end_of_orders(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def session(self) -> tuple[Store, asyncio.Event]:
        """The session of a client, and the event of its end."""
        store, expired = await connect(self.address, session_timeout_ms=SESSION_TIMEOUT_MS), asyncio.Event()
        store.on_state(lambda state: expired.set() if state is SessionState.EXPIRED else None)
        return store, expired


@contextmanager
def started(
    directory: Path, *arguments: str, stdin: Any = subprocess.PIPE, descriptors: tuple[int, ...] = ()
) -> Iterator[Tree]:
    """The process, which always ends with the block."""
    tree = Tree(directory, *arguments, stdin=stdin, descriptors=descriptors)
    with tree.process:
        try:
            yield tree
        finally:
            tree.process.kill()


@contextmanager
def serving(directory: Path, *arguments: str, descriptors: tuple[int, ...] = ()) -> Iterator[Tree]:
    """The process when clients can connect. It must end in order when its orders end."""
    with started(directory, *arguments, descriptors=descriptors) as tree:
        ready = tree.hear()
        assert (ready["ready"], ready["host"], ready["process"]) == (True, "127.0.0.1", tree.process.pid)
        tree.address = f"127.0.0.1:{ready['port']}"
        yield tree
        tree.end_of_orders()
        assert tree.process.wait(60) == 0


@on_a_loop
async def test_the_session_that_holds_a_node_ends_by_order_and_no_other(tmp_path: Path) -> None:
    with serving(tmp_path) as tree:
        (one, one_ended), (other, other_ended) = await tree.session(), await tree.session()
        await one.create("/one", ephemeral=True)
        await other.create("/other", ephemeral=True)
        gone = asyncio.Event()
        assert await other.exists("/one", lambda _: gone.set()) is not None
        assert tree.ask(number=7, order="end-session", path="/one") == {"number": 7, "session": one.session_id}
        async with asyncio.timeout(_SECONDS):
            await gone.wait()
            await one_ended.wait()
        assert tree.ask(number=8, order="end-session", path="/one") == {"number": 8, "session": None}
        assert tree.ask(number=9, order="end-session", path="/none/at/all") == {"number": 9, "session": None}
        assert await other.exists("/other") is not None
        assert not other_ended.is_set()
        for store in (one, other):
            await store.close()


@on_a_loop
async def test_a_session_ends_by_its_id(tmp_path: Path) -> None:
    with serving(tmp_path) as tree:
        store, ended = await tree.session()
        assert tree.ask(number=0, order="end-session", session=store.session_id) == {
            "number": 0,
            "session": store.session_id,
        }
        async with asyncio.timeout(_SECONDS):
            await ended.wait()
        assert tree.ask(number=1, order="end-session", session=store.session_id) == {"number": 1, "session": None}
        await store.close()


@on_a_loop
async def test_a_session_of_before_the_order_ends_when_it_takes_the_node_later(tmp_path: Path) -> None:
    with serving(tmp_path) as tree:
        old, old_ended = await tree.session()
        assert tree.ask(number=1, order="end-session", path="/a") == {"number": 1, "session": None}
        new, new_ended = await tree.session()
        await old.create("/a", ephemeral=True)
        async with asyncio.timeout(_SECONDS):
            await old_ended.wait()
        created = await new.create("/a", ephemeral=True)
        await new.sync()
        assert await new.exists("/a") == created.stat
        assert not new_ended.is_set()
        # The new one has it by right: an order about it is still carried out.
        assert tree.ask(number=2, order="end-session", path="/a") == {"number": 2, "session": new.session_id}
        for store in (old, new):
            await store.close()


@on_a_loop
async def test_what_is_no_order_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as tree:
        store, ended = await tree.session()
        await store.create("/a", ephemeral=True)
        await store.create("/kept")
        for line, number, why in (
            (b"end-session /a", None, "not JSON"),
            (b"\xff\xfe", None, "not JSON"),
            (b"[" * TREE_ORDER_MAX_BYTES, None, "not JSON"),
            (b"", None, "not JSON"),
            (b'["end-session", "/a"]', None, "not a JSON object"),
            (b'{"order": "end-session", "path": "/a"}', None, "no number"),
            (b'{"number": true, "order": "end-session", "path": "/a"}', None, "no number"),
            (b'{"number": 1, "order": "end", "path": "/a"}', 1, "The order is not known"),
            (b'{"number": 1, "order": ["end-session"], "path": "/a"}', 1, "The order is not known"),
            (b'{"number": 2, "order": "end-session"}', 2, "and nothing else"),
            (b'{"number": 2, "order": "end-session", "path": "/a", "session": 1}', 2, "and nothing else"),
            (b'{"number": 3, "order": "end-session", "path": "a"}', 3, "a path begins with /"),
            (b'{"number": 3, "order": "end-session", "path": 7}', 3, "not a text"),
            (b'{"number": 3, "order": "end-session", "path": "/\\ud800"}', 3, "does not hold the character"),
            (b'{"number": 4, "order": "end-session", "path": "/kept"}', 4, "not ephemeral"),
            (b'{"number": 5, "order": "end-session", "session": "1"}', 5, "not the id"),
            (b'{"number": 5, "order": "end-session", "session": 1e999}', 5, "not the id"),
            (b'{"number": 6, "order": "guard", "process": 0, "grace_seconds": 1}', 6, "not the id"),
            (b'{"number": 6, "order": "guard", "process": 1, "grace_seconds": NaN}', 6, "not a time"),
            (b'{"number": 6, "order": "guard", "process": 1, "grace_seconds": 1}', 6, "not another child"),
            (
                b'{"number": 7, "order": "end-session", "path": "/a' + b"a" * TREE_ORDER_MAX_BYTES + b'"}',
                None,
                "longer than 16384 bytes",
            ),
        ):
            tree.write(line + b"\n")
            said = tree.hear()
            assert said.keys() == {"number", "refused"}, line[:80]
            assert said["number"] == number, line[:80]
            assert why in said["refused"], line[:80]
        assert await store.exists("/a") is not None
        assert not ended.is_set()
        # It still takes orders, also in pieces.
        tree.write(b'{"number": 8, "order": "end-sess')
        assert tree.process.poll() is None
        tree.write(b'ion", "path": "/a"}\n')
        assert tree.hear() == {"number": 8, "session": store.session_id}
        await store.close()


@on_a_loop
async def test_it_serves_at_the_socket_that_it_is_given_again_and_again(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        descriptor, address = listening.fileno(), f"127.0.0.1:{listening.getsockname()[1]}"
        with started(tmp_path, str(descriptor), descriptors=(descriptor,)) as tree:
            assert tree.hear()["port"] == listening.getsockname()[1]
            tree.address = address
            store, ended = await tree.session()
            before = (await store.create("/a", ephemeral=True)).stat
        # A client that connects while there is no server waits.
        waiting = asyncio.create_task(connect(address, session_timeout_ms=SESSION_TIMEOUT_MS))
        with serving(tmp_path, str(descriptor), descriptors=(descriptor,)) as again:
            assert again.address == address
            other = await waiting
            assert await other.exists("/a") == before
            assert not ended.is_set()
            for client in (store, other):
                await client.close()


def test_it_ends_in_order_by_sigterm(tmp_path: Path) -> None:
    with started(tmp_path) as tree:
        assert tree.hear()["ready"]
        tree.process.terminate()
        assert tree.process.wait(60) == 0
        DirectoryLock(tmp_path).release()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("print(flush=True); signal.pause()", -signal.SIGTERM),
        (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); [signal.pause() for _ in iter(int, 1)]",
            -signal.SIGKILL,
        ),
    ],
)
def test_whom_it_guards_ends_with_the_orders(tmp_path: Path, script: str, code: int) -> None:
    with (
        serving(tmp_path) as tree,
        subprocess.Popen([sys.executable, "-c", f"import signal; {script}"], stdout=subprocess.PIPE) as guarded,
    ):
        try:
            assert guarded.stdout is not None
            assert guarded.stdout.readline() == b"\n"
            for number in (1, 2):  # the second time is no other than the first
                assert tree.ask(number=number, order="guard", process=guarded.pid, grace_seconds=0.2) == {
                    "number": number
                }
            assert guarded.poll() is None
            tree.end_of_orders()
            assert guarded.wait(60) == code
        finally:
            guarded.kill()


def test_it_guards_no_strangers(tmp_path: Path) -> None:
    with serving(tmp_path) as tree:
        for process, why in (
            (os.getpid(), "not another child"),
            (tree.process.pid, "not another child"),
            (2**22 + 1, "cannot be guarded"),
        ):
            assert why in tree.ask(number=1, order="guard", process=process, grace_seconds=1)["refused"]


def test_it_says_why_it_cannot_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with file.open() as stdin:
        for directory, arguments, given, why in (
            (
                tmp_path / "tree",
                ["7"],
                subprocess.PIPE,
                "7 is not the descriptor of a listening socket: give such a descriptor, or leave the argument out.",
            ),
            (
                tmp_path / "tree",
                ["x"],
                subprocess.PIPE,
                "x is not the descriptor of a listening socket: give such a descriptor, or leave the argument out.",
            ),
            (
                tmp_path / "tree",
                ["1", "2"],
                subprocess.PIPE,
                "Give a directory for the tree, and optionally the descriptor of a listening socket.",
            ),
            (
                file,
                [],
                subprocess.PIPE,
                f"The tree's directory {file} cannot be made (File exists): name a directory that can be written.",
            ),
            (
                tmp_path / "tree",
                [],
                stdin,
                "Orders cannot be read from stdin (Operation not permitted): make it a pipe, which ends this process "
                "when it is closed.",
            ),
        ):
            with started(directory, *arguments, stdin=given) as tree:
                assert tree.hear() == {"failed": why}
                assert tree.process.wait(60) == 1


def test_it_does_not_take_a_directory_that_is_in_use(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    try:
        with started(tmp_path) as tree:
            assert tree.hear() == {
                "failed": (
                    f"The tree's directory {tmp_path} is in use by process {os.getpid()}: stop it, or name another "
                    f"directory."
                )
            }
            assert tree.process.wait(60) == 1
    finally:
        lock.release()
