"""A process that writes to the tree is killed: every change that it has answered is there afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.base.clock import ManualClock
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from tests.units.metadata.test_embedded import run

WRITER = """
import asyncio, sys
from pathlib import Path
from jesenska.base.clock import SystemClock
from jesenska.metadata.embedded import EmbeddedTree

async def main():
    tree = await EmbeddedTree.open(Path(sys.argv[1]), SystemClock())
    store = await tree.session()
    if await store.exists("/n") is None:
        await store.create("/n")
    async def one():
        while True:
            result = await store.create("/n/", b"x" * 50, sequential=True)
            sys.stdout.write(result.path + "\\n")
            sys.stdout.flush()
    await asyncio.gather(*[one() for _ in range(8)])

asyncio.run(main())
"""


@pytest.mark.crash
def test_everything_answered_before_kill_9_is_there_afterwards(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    answered: set[str] = set()
    for round_number in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(40 + 61 * round_number):
            answered.add(process.stdout.readline().strip())
        os.kill(process.pid, signal.SIGKILL)
        # A last line may be cut short by the kill.
        answered.update(line for line in process.stdout.read().splitlines() if re.fullmatch(r"/n/\d{10}", line))
        process.stdout.close()
        process.wait(30)

        async def check() -> None:
            tree = await EmbeddedTree.open(path, ManualClock())
            assert answered <= {f"/n/{name}" for name in tree.tree.children("/n")[0]}
            numbers = [int(name) for name in tree.tree.children("/n")[0]]
            assert numbers == list(range(len(numbers)))
            await tree.close()

        run(check())
    assert len(answered) > 400
