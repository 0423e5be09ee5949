"""The tree's server (zookeeper-server-start) is killed with SIGKILL in the middle of a load, again and again, and
starts again on the same port and directory. The profile of the tests sets the number of kills:

    JESENSKA_TESTS=everything python -m pytest tests/processes/crash/test_tree_kill.py -s
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from jesenska.metadata.tree_operations import OPEN_ACL
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import framed
from jesenska.metadata.zookeeper.messages import (
    ConnectRequest,
    CreateFlag,
    CreateRequest,
    OpCode,
    Reader,
    ReplyHeader,
    RequestHeader,
)
from jesenska.testing.tree import TreeProcess
from tests.processes.crash.tree_load import Holder, InOrder, Load, Numberer, Session, Setter, Watcher, check_numbers
from tests.profiles import rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CRASHES = rounds(quick=1, ci=3, everything=20)
#: The timeout of sessions that do not return.
_SHORT_TIMEOUT_MS = 1000
_SETTINGS = {"tickTime": "200", "maxSessionTimeout": "60000"}


class Deserter:
    """A session with ephemeral nodes that loses its connection with the server and does not return."""

    def __init__(self, writer: asyncio.StreamWriter, paths: list[str]) -> None:
        self._writer = writer
        self.paths = paths

    @staticmethod
    async def open(port: int, name: str) -> Deserter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(messages.write(bytearray(), ConnectRequest(0, 0, _SHORT_TIMEOUT_MS, 0, bytes(16)))))
        flags = (
            CreateFlag.EPHEMERAL,
            CreateFlag.EPHEMERAL | CreateFlag.SEQUENTIAL,
            CreateFlag.EPHEMERAL | CreateFlag.SEQUENTIAL,
        )
        for number, flag in enumerate(flags):
            request = CreateRequest(f"/gone/{name}-{number}-", b"", OPEN_ACL, flag)
            writer.write(framed(messages.write(bytearray(), RequestHeader(number + 1, OpCode.CREATE), request)))
        paths = []
        for number in range(len(flags) + 1):
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if number:
                answer = Reader(frame)
                assert messages.read(ReplyHeader, answer).error == 0
                paths.append(messages.read(messages.PathResponse, answer).path)
        return Deserter(writer, paths)

    def desert(self) -> None:
        self._writer.transport.abort()


async def _until_gone(reader: Session, path: str) -> None:
    async with asyncio.timeout(60):
        while True:
            heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def hear(_: WatchEvent, heard: asyncio.Future[None] = heard) -> None:
                heard.set_result(None)

            if await reader.store.exists(path, hear) is None:
                return
            await heard


def test_nothing_answered_is_lost_and_watches_are_heard_once_when_the_trees_server_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        chance = random.Random(1948)
        load = Load(tree.address)
        given: dict[str, str] = {}
        try:
            reader = await load.session()
            for path in ("/set", "/numbers", "/held", "/gone"):
                await reader.store.create(path)
            setters: list[Setter] = []
            watchers: list[Watcher] = []
            numberers: list[Numberer] = []
            holders: list[Holder] = []
            for number in range(3):
                writing, watching = await load.session(), await load.session()
                for name in ("a", "b", "c"):
                    setters.append(Setter(load, writing, f"/set/{number}{name}"))
                    watchers.append(Watcher(load, watching, f"/set/{number}{name}"))
                numberers += [Numberer(load, writing, "/numbers", f"{number}{name}", given) for name in ("a", "b")]
                await writing.store.create(f"/held/{number}")
                holders.append(Holder(load, writing, f"/held/{number}"))
            orders = [
                InOrder(load, await load.session(), await load.session(), f"/order-{number}") for number in range(2)
            ]
            runners: list[Setter | Watcher | Numberer | Holder | InOrder] = [
                *setters,
                *watchers,
                *numberers,
                *holders,
                *orders,
            ]
            load.start(*(one.run() for one in runners))

            for crash in range(CRASHES):
                await load.wait_for(200)
                deserter = await Deserter.open(tree.port, f"{crash}")
                await load.wait_for(chance.randrange(1, 1500))
                tree.kill()
                deserter.desert()
                await asyncio.to_thread(tree.start)
                for session in load.sessions:
                    await session.connected()
                    assert session.losses == crash + 1
                for path in deserter.paths:
                    await _until_gone(reader, path)
            await load.wait_for(200)
            await load.stop()

            async def check(who: Session) -> None:
                for setter in setters:
                    await setter.check(who)
                for holder in holders:
                    await holder.check(who)
                await check_numbers(who, "/numbers", numberers, given)
                assert (await who.store.children("/gone"))[0] == []

            await check(reader)
            tree.kill()
            await asyncio.to_thread(tree.start)  # a further start finds the same
            await reader.connected()
            await check(reader)
            heard = sum(one.heard for one in watchers)
            in_order = sum(len(one.events) for one in orders)
            print(
                f"\n{CRASHES} kills, {load.answered:,} changes answered, {len(given):,} numbers given, {heard:,} + "
                f"{in_order:,} watches heard"
            )
            assert heard > 0
            assert in_order > 0
        finally:
            await load.end()

    with TreeProcess(tmp_path, _SETTINGS) as tree:
        asyncio.run(main())
        assert tree.stop() == 0
    assert "Traceback" not in tree.log, tree.log[-6000:]
