"""A tiny client of a tree: opens a session of a minute, makes an ephemeral node, and stays until it is told to stop.

    python -m tests.session_holder ADDRESS PATH [deaf]

Says `holds PATH as PROCESS` when the node is there. SIGTERM and its parent's end stop it in order; a `deaf` one heeds
neither. `holder_command` and `ENVIRONMENT` start it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from jesenska.cli.shared.ending import parents_end
from jesenska.metadata.zookeeper.client.client import connect

SESSION_TIMEOUT_MS = 60_000
#: Has a process find the tests, too.
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
}


def holder_command(address: str, path: str, *, deaf: bool = False) -> list[str]:
    return [sys.executable, "-m", "tests.session_holder", address, path, *(["deaf"] if deaf else [])]


async def _hold(address: str, path: str, deaf: bool) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        parents_end(loop, stopping)
    store = await connect(address, session_timeout_ms=SESSION_TIMEOUT_MS)
    await store.create(path, ephemeral=True)
    print(f"holds {path} as {os.getpid()}", flush=True)
    await stopping.wait()
    await store.close()


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], sys.argv[2], "deaf" in sys.argv[3:]))
