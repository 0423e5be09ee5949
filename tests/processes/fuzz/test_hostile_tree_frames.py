"""The tree's server (zookeeper-server-start) among hostile clients: frames of every operation, mutated, connects,
four-letter words, wild multis, over real sockets. JESENSKA_SEED is the seed of the random source. The long run sends a
hundred thousand:

    JESENSKA_TESTS=everything python -m pytest tests/processes/fuzz/test_hostile_tree_frames.py -s

The server stays up, serves a bystander all the time, meets no unexpected error (no stack trace in its log), and keeps
the bystander's data. Its memory does not grow: nodes that hostile frames have created are deleted before it is
measured, since they are not a leak.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from bench.figures import resident_mb

from jesenska.metadata.acl import digest_identity
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Acl, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing.tree import TreeProcess
from tests.processes.fuzz.sender import send_all
from tests.processes.fuzz.tree_frames import CLEANER, TreeFrames
from tests.profiles import rounds

FRAMES = rounds(quick=1000, ci=5000, everything=25_000)
SEED = int(os.environ.get("JESENSKA_SEED", "1"))
_CHUNK = 5000
#: The number of frames after which the memory of the allocator does not grow much any more.
_WARM_UP = max(5000, min(30_000, FRAMES // 4))
_GROWTH_MAX_MB = 20.0
#: A secret that hostile clients cannot guess.
_KEY = b"bystander:secret"
_OWN = (Acl(31, *digest_identity(_KEY)),)

pytestmark = pytest.mark.timeout(120 + FRAMES // 100)


class Bystander(threading.Thread):
    """Creates a node, reads it and the number of all the others again, and changes one, all the time, in a session of
    its own."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.ends = threading.Event()
        self.slowest_s = 0.0
        self.count = 0
        self.failure: BaseException | None = None
        self._address = address

    async def _work(self) -> None:
        store = await connect(self._address, session_timeout_ms=60_000, auth=[("digest", _KEY)])
        try:
            await store.create("/bystander", b"0", acl=_OWN)
            while not self.ends.is_set():
                begun = time.monotonic()
                path = f"/bystander/{self.count:06d}"
                await store.create(path, b"data %d" % self.count, acl=_OWN)
                data, stat = await store.get(path)
                assert (data, stat.version, stat.num_children) == (b"data %d" % self.count, 0, 0)
                stat = await store.set("/bystander", b"%d" % (self.count + 1))
                self.count += 1
                assert (stat.version, stat.num_children) == (self.count, self.count)
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                await asyncio.sleep(0.02)
        finally:
            await store.close()

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> Bystander:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.join()


async def _deleted(store: Store, path: str) -> int:
    """Deletes a node and all nodes below it, except forbidden ones. Returns the number of nodes that there were."""
    try:
        names = (await store.children(path))[0]
    except (NoNodeError, NoAuthError):
        return 0
    count = sum([await _deleted(store, f"{path.rstrip('/')}/{name}") for name in names])
    try:
        await store.delete(path)
    except (NoNodeError, NoAuthError, NotEmptyError):
        return count
    return count + 1


def _clean(address: str, sessions: int | None = None) -> int:
    """Deletes the nodes of hostile frames. With `sessions`, waits until no more than this number of sessions is
    left."""

    async def clean() -> int:
        store = await connect(address, auth=[("digest", CLEANER)])
        try:
            if sessions is not None:
                async with asyncio.timeout(60):
                    while await _sessions(address) > sessions + 1:
                        await asyncio.sleep(0.1)
            count = sum(
                [
                    await _deleted(store, f"/{name}")
                    for name in (await store.children("/"))[0]
                    if name not in ("bystander", "zookeeper")
                ]
            )
            with suppress(NodeExistsError, NoNodeError, NoAuthError):
                for path in ("/f", "/f/a", "/f/c"):
                    await store.create(path)
            return count
        finally:
            await store.close()

    return asyncio.run(clean())


async def _sessions(address: str) -> int:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"mntr")
    told = dict(line.split("\t") for line in (await reader.read()).decode().splitlines())
    writer.close()
    await writer.wait_closed()
    return int(told["zk_global_sessions"])


def _resident_mb(pid: int, limit: float | None) -> float:
    """The resident memory. Where it exceeds the limit, waits until the server has returned its free memory, which
    happens every fifteen seconds."""
    ends = time.monotonic() + 40
    found = resident_mb(pid)
    while limit is not None and found >= limit and time.monotonic() < ends:
        time.sleep(1)
        found = resident_mb(pid)
    return found


@pytest.mark.crash
def test_hostile_frames_harm_nobody_but_those_who_send_them(tmp_path: Path) -> None:
    frames = TreeFrames()

    def made(first: int, last: int) -> Iterator[bytes]:
        return (frames.frame(random.Random(f"{SEED}-{number}")) for number in range(first, last))

    jaas = tmp_path / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };')
    environment = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}
    with TreeProcess(tmp_path, {"maxSessionTimeout": "3000"}, environment=environment) as tree:
        totals: Counter[str] = Counter()
        resident: list[float] = []
        sent = 0
        begun = time.monotonic()
        _clean(tree.address)
        with Bystander(tree.address) as bystander:
            while sent < _WARM_UP + FRAMES:
                following = min(sent + _CHUNK, _WARM_UP if sent < _WARM_UP else _WARM_UP + FRAMES)
                totals += send_all(tree.address, made(sent, following), random.Random(sent), frames.opening)
                assert "Traceback" not in tree.log, f"frames {sent} to {following} of seed {SEED}:\n{tree.log[-6000:]}"
                assert bystander.failure is None, f"frames {sent} to {following} of seed {SEED}: {bystander.failure!r}"
                sent = following
                measured = sent in (_WARM_UP, _WARM_UP + FRAMES)
                totals["nodes made"] += _clean(tree.address, 1 if measured else None)
                if measured:
                    resident.append(_resident_mb(tree.pid, resident[0] + _GROWTH_MAX_MB if resident else None))
        seconds = time.monotonic() - begun

        async def check() -> None:
            store = await connect(tree.address, auth=[("digest", _KEY)])
            for number in range(bystander.count):
                assert (await store.get(f"/bystander/{number:06d}"))[0] == b"data %d" % number
            assert (await store.get("/bystander"))[1].num_children == bystander.count
            await store.close()

        asyncio.run(check())
        print(
            f"\n{sent:,} hostile frames in {seconds:.0f} s; {dict(totals)}; bystander: {bystander.count:,} nodes, "
            f"slowest {bystander.slowest_s * 1000:.0f} ms; "
            f"resident {resident[0]:.1f} MB after the warm-up, {resident[-1]:.1f} at the end"
        )
        assert bystander.count > 0
        assert totals["answers read"] > FRAMES // 100, "frames so broken that none gets past the header test nothing"
        assert totals["nodes made"] > 0
        assert resident[-1] - resident[0] < _GROWTH_MAX_MB
        assert tree.stop() == 0
    assert "Traceback" not in tree.log, tree.log[-6000:]
