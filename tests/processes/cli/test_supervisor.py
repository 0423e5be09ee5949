"""The supervisor: it notices dead children, starts some again, and leaves no process running. Sessions last for a
minute, and no test waits for so long: the supervisor causes everything that is faster."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.cli.supervision.child_process import ChildProcess
from jesenska.cli.supervision.prefixed_output import PrefixedOutput
from jesenska.cli.supervision.supervisor import Child, Supervisor
from jesenska.log.directory.directory_lock import DirectoryLock
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import Stat
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper.client.client import connect
from tests.on_a_loop import on_a_loop
from tests.session_holder import ENVIRONMENT, SESSION_TIMEOUT_MS, holder_command
from tests.supervised import SupervisorProcess
from tests.watched_processes import children_of, watched

#: For each thing that is waited for: much, on a busy machine, and still less than a session's timeout.
_SECONDS = 50.0
assert _SECONDS * 1000 < SESSION_TIMEOUT_MS


def setting(event: asyncio.Event, state: SessionState | None = None) -> Callable[[object], None]:
    """Returns a callback that sets the event. With `state`, it sets the event only for that state."""
    return lambda told: event.set() if state in (None, told) else None


class Heard:
    """A stream that keeps everything that is written to it. A test can wait for more text."""

    def __init__(self) -> None:
        self.text = ""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def write(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._add, text)

    def flush(self) -> None:
        """Does nothing, since there is no buffer."""

    def _add(self, text: str) -> None:
        self.text += text
        self._changed.set()

    async def when(self, condition: Callable[[str], object]) -> None:
        """Returns when this is true of all the text that was written."""
        async with asyncio.timeout(_SECONDS):
            while not condition(self.text):
                self._changed.clear()
                await self._changed.wait()

    async def until(self, pattern: str) -> None:
        await self.when(re.compile(pattern, re.MULTILINE).search)


class Cluster:
    """A supervisor with a client of its tree."""

    def __init__(self, supervisor: Supervisor, store: Store, out: Heard, err: Heard) -> None:
        self.supervisor, self.store, self.out, self.err = supervisor, store, out, err

    def add(self, name: str, *, deaf: bool = False, restarts: bool = True, node: str | None = None) -> None:
        path = node or f"/{name}"
        command = holder_command(self.supervisor.address, path, deaf=deaf)
        self.supervisor.add(Child(name, command, path, restarts=restarts, environment=ENVIRONMENT))

    async def until(self, path: str, wanted: bool) -> Stat | None:
        """Waits by a watch until a node exists, or does not exist. Returns its stat."""
        async with asyncio.timeout(_SECONDS):
            while True:
                changed = asyncio.Event()
                stat = await self.store.exists(path, setting(changed))
                if (stat is not None) == wanted:
                    return stat
                await changed.wait()

    async def node(self, name: str) -> Stat:
        """Returns a child's node when it exists."""
        stat = await self.until(f"/{name}", True)
        assert stat is not None
        return stat

    async def will_go(self, name: str) -> asyncio.Future[WatchEvent]:
        """Returns a future that is done when the node of a running child has disappeared."""
        gone: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
        assert await self.store.exists(f"/{name}", gone.set_result) is not None
        return gone

    def kill(self, name: str) -> int:
        process = self.supervisor.process_of(name)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        return process

    def kill_tree(self) -> int:
        process = self.supervisor.tree_process
        assert process is not None
        os.kill(process, signal.SIGKILL)
        return process

    async def connected_again(self) -> None:
        """Returns when the client is connected."""
        async with asyncio.timeout(_SECONDS):
            back = asyncio.Event()
            self.store.on_state(setting(back, SessionState.CONNECTED))
            if self.store.state is not SessionState.CONNECTED:
                await back.wait()


@contextlib.asynccontextmanager
async def cluster(directory: Path, grace_seconds: float = 30.0) -> AsyncIterator[Cluster]:
    """A cluster, which is stopped with the block. No error may be left unhandled on the loop."""
    out, err = Heard(), Heard()
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with Supervisor(directory, passed_on=PrefixedOutput(out, err), grace_seconds=grace_seconds) as supervisor:
        store = await connect(supervisor.address, session_timeout_ms=SESSION_TIMEOUT_MS)
        try:
            yield Cluster(supervisor, store, out, err)
        finally:
            await store.close()
    assert not failures


def is_gone(process: int) -> bool:
    """True if there is no such process, not even as a zombie."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@on_a_loop
async def test_the_session_of_a_child_that_is_killed_ends_at_once_and_the_others_stay(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a", restarts=False)
        running.add("b")
        await running.node("a")
        before = await running.node("b")
        gone = await running.will_go("a")
        process = running.kill("a")
        async with asyncio.timeout(_SECONDS):
            event = await gone
        assert (event.type.name, event.path) == ("NODE_DELETED", "/a")
        await running.err.until(r"^a was ended by SIGKILL; it is not started again\.$")
        assert is_gone(process)
        assert running.supervisor.process_of("a") is None
        assert await running.store.exists("/a") is None
        assert await running.store.exists("/b") == before


@on_a_loop
async def test_a_death_is_heard_of_where_the_system_has_no_descriptors_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    async with cluster(tmp_path) as running:
        running.add("a")
        running.add("b", restarts=False)
        for name in "ab":
            await running.node(name)
        gone = await running.will_go("b")
        killed = running.kill("b")
        async with asyncio.timeout(_SECONDS):
            await gone
        await running.err.until(r"^b was ended by SIGKILL; it is not started again\.$")
        processes = [running.supervisor.tree_process, running.supervisor.process_of("a")]
    assert all(process is not None and is_gone(process) for process in (*processes, killed))


@on_a_loop
async def test_a_child_that_is_killed_starts_again_and_takes_its_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a")
        before = await running.node("a")
        gone = await running.will_go("a")
        process = running.kill("a")
        async with asyncio.timeout(_SECONDS):
            await gone
        after = await running.node("a")
        assert after.ephemeral_owner != before.ephemeral_owner
        assert running.supervisor.process_of("a") not in (None, process)
        # Its successor has not failed because of the node.
        assert running.err.text == "a was ended by SIGKILL; it starts again at once.\n"


@on_a_loop
async def test_the_tree_that_is_killed_is_back_at_its_port_and_sessions_live_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a")
        running.add("b")
        before = [await running.node(name) for name in "ab"]
        processes = [running.supervisor.process_of(name) for name in "ab"]
        for _ in range(2):
            address, lost = running.supervisor.address, asyncio.Event()
            running.store.on_state(setting(lost, SessionState.SUSPENDED))
            process = running.kill_tree()
            async with asyncio.timeout(_SECONDS):
                await lost.wait()
            await running.connected_again()
            assert is_gone(process)
            assert running.supervisor.address == address
            # Its own client has found it there, and so have the children: a session that had ended would have been
            # reported.
            assert [await running.store.exists(f"/{name}") for name in "ab"] == before
        assert [running.supervisor.process_of(name) for name in "ab"] == processes
        await running.err.until(r"^The tree's process was ended by SIGKILL; it starts again at once\.$")
        # The children's nodes belong to sessions that the supervisor knows: orders still reach the tree.
        gone = await running.will_go("b")
        running.kill("b")
        async with asyncio.timeout(_SECONDS):
            await gone
        assert await running.store.exists("/a") == before[0]


@on_a_loop
async def test_a_child_that_dies_while_there_is_no_tree_loses_its_session_when_there_is_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a", restarts=False)
        running.add("b")
        await running.node("a")
        before = await running.node("b")
        gone = await running.will_go("a")
        running.kill_tree()
        running.kill("a")
        async with asyncio.timeout(_SECONDS):
            await gone
        await running.connected_again()
        assert await running.store.exists("/b") == before


@on_a_loop
async def test_an_order_that_the_tree_cannot_write_is_given_to_its_successor(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a", restarts=False)
        await running.node("a")
        gone = await running.will_go("a")
        process = running.supervisor.tree_process
        assert process is not None
        # No byte of any file can be written by that process.
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
        running.kill("a")
        async with asyncio.timeout(_SECONDS):
            await gone
        await running.err.until(r"^The tree's process has failed \(The metadata file .*\); it starts again at once\.$")


@on_a_loop
async def test_a_session_that_was_left_by_somebody_else_ends_before_a_child_starts(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        left = await connect(running.supervisor.address, session_timeout_ms=SESSION_TIMEOUT_MS)
        expired = asyncio.Event()
        left.on_state(setting(expired, SessionState.EXPIRED))
        await left.create("/a", ephemeral=True)
        running.add("a")
        async with asyncio.timeout(_SECONDS):
            await expired.wait()
        assert (await running.node("a")).ephemeral_owner != left.session_id
        await left.close()
    assert not running.err.text


@on_a_loop
async def test_a_child_that_cannot_start_is_told_of_and_tried_again_ever_later(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.supervisor.add(Child("missing", [str(tmp_path / "nowhere")], "/missing"))
        running.supervisor.add(
            Child(
                "failing",
                [sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"],
                "/failing",
            )
        )
        running.add("a")
        await running.node("a")
        for pause in ("at once", "in 0.25 s", "in 0.5 s"):
            why = re.escape(
                f"missing cannot be started (No such file or directory: {tmp_path / 'nowhere'}); it starts again "
                f"{pause}."
            )
            await running.err.until(f"^{why}$")
            await running.err.until(f"^failing ended with exit code 3; it starts again {re.escape(pause)}\\.$")
        await running.err.until("^failing: no luck$")
        assert running.supervisor.process_of("a") is not None


@on_a_loop
async def test_a_node_that_is_nobodys_does_not_keep_a_child_from_starting(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await running.store.create("/kept")
        running.supervisor.add(Child("a", [sys.executable, "-c", "print('here')"], "/kept", restarts=False))
        await running.out.until("^a: here$")
        await running.err.until(r"^The session of a is not ended: No session holds it \(the node is not ephemeral\)\.$")
        assert await running.store.exists("/kept") is not None


@on_a_loop
async def test_what_children_print_has_their_names_in_front(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        script = (
            "import sys; print('one\\ntwo'); sys.stdout.flush(); print('three', end='', file=sys.stderr); "
            "sys.stdout.buffer.write(b'\\xff' + b'x' * 70000)"
        )
        running.supervisor.add(Child("broker 1", [sys.executable, "-c", script], "/a", restarts=False))
        await running.out.until("^broker 1: one\nbroker 1: two\n")
        await running.err.until("^broker 1: three$")
        # A line that does not end is passed on in pieces.
        await running.out.until("^broker 1: \ufffdx+$")
        await running.out.when(lambda text: text.count("x") == 70000)
        assert [len(line) for line in running.out.text.splitlines()] == [
            len("broker 1: ") + size for size in (3, 3, 65536, 70001 - 65536)
        ]


@on_a_loop
async def test_as_json_every_line_is_an_object_that_names_its_process(tmp_path: Path) -> None:
    out, err = Heard(), Heard()
    async with Supervisor(tmp_path, passed_on=PrefixedOutput(out, err, as_json=True)) as supervisor:
        script = 'import sys; print("{\\"level\\":\\"INFO\\"}\\n{}\\n{\\"not\\": \\"one\\nplain\\u00e9"); sys.exit(3)'
        supervisor.add(
            Child('broker "1"', [sys.executable, "-c", script], "/a", restarts=False, environment={"PYTHONUTF8": "1"})
        )
        await out.until("plain")
        await err.until("exit code 3")
    assert [json.loads(line) for line in out.text.splitlines()] == [
        {"process": 'broker "1"', **rest}
        for rest in ({"level": "INFO"}, {"message": "{}"}, {"message": '{"not": "one'}, {"message": "plain\u00e9"})
    ]
    (sentence,) = map(json.loads, err.text.splitlines())
    assert (sentence["process"], sentence["level"]) == ("supervisor", "WARNING")
    assert sentence["message"] == 'broker "1" ended with exit code 3; it is not started again.'


@on_a_loop
async def test_a_child_that_speaks_is_heard_and_what_it_has_failed_by_is_told(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        heard: list[dict[str, Any]] = []
        ends: list[str] = []
        script = 'print(\'{"ready": 1}\\nno JSON\\n[1]\\n{"failed": "No luck."}\', flush=True); import sys; sys.exit(1)'
        child = Child(
            "a", [sys.executable, "-c", script], "/a", restarts=False, on_word=heard.append, on_end=ends.append
        )
        running.supervisor.add(child)
        await running.err.until(r"^a has failed \(No luck\); it is not started again\.$")
        assert heard == [{"ready": 1}, {"failed": "No luck."}]
        assert ends == ["has failed (No luck)"]
        assert not running.out.text


@on_a_loop
async def test_who_is_told_of_an_end_may_begin_the_stop_and_nothing_starts_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        ends: list[str] = []
        has_ended = asyncio.Event()

        def ended(how: str) -> None:
            ends.append(how)
            running.supervisor.begin_stop()
            has_ended.set()

        running.supervisor.add(Child("a", [sys.executable, "-c", "import sys; sys.exit(3)"], "/a", on_end=ended))
        async with asyncio.timeout(_SECONDS):
            await has_ended.wait()
        await running.supervisor.stop()
    assert ends == ["ended with exit code 3"]
    assert not running.err.text


@on_a_loop
async def test_a_terminal_that_is_held_holds_nobody_up(tmp_path: Path) -> None:
    released = threading.Event()

    class Held:
        def write(self, text: str) -> None:
            assert released.wait(100)

        def flush(self) -> None:
            """Nothing was written."""

    try:
        async with Supervisor(tmp_path, passed_on=PrefixedOutput(Held(), Held())) as held:
            store = await connect(held.address, session_timeout_ms=SESSION_TIMEOUT_MS)
            running = Cluster(held, store, Heard(), Heard())
            running.add("a")
            before = await running.node("a")
            gone = await running.will_go("a")
            running.kill("a")
            async with asyncio.timeout(_SECONDS):
                await gone
            assert (await running.node("a")).ephemeral_owner != before.ephemeral_owner
            await store.close()
    finally:
        released.set()


@on_a_loop
async def test_a_stop_leaves_no_process_and_no_session_of_a_child(tmp_path: Path) -> None:
    async with cluster(tmp_path, grace_seconds=1.0) as running:
        running.add("orderly")
        running.add("deaf", deaf=True)
        running.supervisor.add(Child("missing", [str(tmp_path / "nowhere")], "/missing"))
        for name in ("orderly", "deaf"):
            await running.node(name)
        processes = [running.supervisor.tree_process, *map(running.supervisor.process_of, ("orderly", "deaf"))]
    assert all(process is not None and is_gone(process) for process in processes)
    assert "deaf has not stopped within 1 s and was ended by SIGKILL.\n" in running.err.text
    assert "orderly has not stopped" not in running.err.text
    tree = await EmbeddedTree.open(tmp_path / METADATA_FILE, SystemClock(), served=True)
    try:
        assert (tree.tree.exists("/orderly"), tree.tree.exists("/deaf")) == (None, None)
        assert not tree.tree.sessions
    finally:
        await tree.close()


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The stops of processes as they start and end: the kind and the process."""
    seen: list[tuple[str, int]] = []
    stop = ChildProcess.stop

    async def watched_stop(process: ChildProcess, grace_seconds: float) -> bool:
        seen.append(("begins", process.pid))
        try:
            return await stop(process, grace_seconds)
        finally:
            seen.append(("ends", process.pid))

    monkeypatch.setattr(ChildProcess, "stop", watched_stop)
    return seen


@on_a_loop
async def test_children_stop_one_after_the_other_and_the_tree_last(
    tmp_path: Path, stops: list[tuple[str, int]]
) -> None:
    async with cluster(tmp_path) as running:
        for name in "abc":
            running.add(name)
        for name in "abc":
            await running.node(name)
        processes = [*map(running.supervisor.process_of, "cba"), running.supervisor.tree_process]
    assert stops == [(what, process) for process in processes for what in ("begins", "ends")]


@on_a_loop
async def test_a_child_that_takes_long_to_stop_does_not_hold_up_the_others_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr("jesenska.cli.supervision.supervisor._STOPS_ALONE_SECONDS", 0.1)
    async with cluster(tmp_path, grace_seconds=3.0) as running:
        running.add("a")
        running.add("deaf", deaf=True)
        for name in ("a", "deaf"):
            await running.node(name)
        orderly, deaf = map(running.supervisor.process_of, ("a", "deaf"))
    assert stops[:2] == [("begins", deaf), ("begins", orderly)]
    assert {*stops[2:4]} == {("ends", deaf), ("ends", orderly)}


@on_a_loop
async def test_a_kill_ends_all_processes(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    async with cluster(tmp_path) as running:
        running.add("a")
        running.add("deaf", deaf=True)
        for name in ("a", "deaf"):
            await running.node(name)
        running.supervisor.kill()
        await running.supervisor.stop()
        assert children_of(os.getpid()) <= before
    assert "starts again" not in running.err.text


@on_a_loop
async def test_a_stop_does_not_wait_for_a_tree_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jesenska.cli.supervision.supervisor._LAST_ORDER_SECONDS", 0.5)
    out, err, before = Heard(), Heard(), children_of(os.getpid())
    async with Supervisor(tmp_path, passed_on=PrefixedOutput(out, err), grace_seconds=0.5) as hanging:
        hanging.add(Child("a", holder_command(hanging.address, "/a"), "/a", environment=ENVIRONMENT))
        await out.until("^a: holds /a as")
        assert hanging.tree_process is not None
        os.kill(hanging.tree_process, signal.SIGSTOP)
    assert children_of(os.getpid()) <= before
    assert "The tree's process has not stopped within 0.5 s and was ended by SIGKILL.\n" in err.text


@on_a_loop
async def test_a_tree_that_cannot_start_stops_the_start(tmp_path: Path) -> None:
    lock, before = DirectoryLock(tmp_path), children_of(os.getpid())
    try:
        with pytest.raises(JesenskaError) as refused:
            await Supervisor(tmp_path, passed_on=PrefixedOutput(Heard(), Heard())).start()
    finally:
        lock.release()
    assert (
        str(refused.value)
        == f"The tree's directory {tmp_path} is in use by process {os.getpid()}: stop it, or name another directory."
    )
    assert children_of(os.getpid()) <= before


@on_a_loop
async def test_a_child_that_can_never_be_started_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.add("a")
        for child, why in (
            (Child("a", ["true"], "/b"), "there is a child a already"),
            (Child("b", [], "/b"), "no command"),
            (Child("b", ["true\0"], "/b"), "no command"),
            (Child("b", ["true"], "b"), "a path begins with /"),
        ):
            with pytest.raises(ValueError, match=why):
                running.supervisor.add(child)
    with pytest.raises(ValueError, match="does not run"):
        running.add("c")


def test_everybody_ends_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "a", "b:deaf") as supervisor:
        processes = supervisor.wait_for_children()
        assert processes.keys() == {"tree", "a", "b"}
        with watched(*processes.values()) as have_ended:
            supervisor.kill()
            assert have_ended()
        # The directory is not locked any more, and the files of the old processes are no obstacle.
        supervisor.start()
        again = supervisor.wait_for_children(without=processes.values())
        with watched(*again.values()) as have_ended:
            assert supervisor.stop() == 0
            assert have_ended()
        assert "Traceback" not in supervisor.log


def test_a_tree_that_was_started_again_ends_whom_the_one_before_it_would_have_ended(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "a", "b:deaf") as supervisor:
        processes = supervisor.wait_for_children()
        with watched(processes["b"]) as has_ended:
            os.kill(processes["tree"], signal.SIGKILL)
            os.kill(processes["a"], signal.SIGKILL)
            # It can be here only by leave of the new tree.
            again = supervisor.wait_for_children(without=[processes["a"]])
            assert again["b"] == processes["b"]
            with watched(again["a"]) as has_ended_too:
                supervisor.kill()
                assert has_ended()
                assert has_ended_too()


def test_children_end_when_the_supervisor_and_its_tree_are_killed(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "a", "b") as supervisor:
        processes = supervisor.wait_for_children()
        with watched(*processes.values()) as have_ended:
            os.kill(supervisor.pid, signal.SIGSTOP)  # so that it starts no other tree
            os.kill(processes["tree"], signal.SIGKILL)
            supervisor.kill()
            assert have_ended()
