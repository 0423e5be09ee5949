"""The time until other processes know the end of a process: a supervisor's child is killed, and another client of the
tree learns by a watch that the child's session has ended.

    python -m bench.failover_bench [--rounds 20] [--dir D] [--output json]

Also the cost of the tree's process: seconds until clients can connect (the first time, and after it was killed),
memory (resident; PSS, in which shared pages are divided among their processes).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import re
import signal
import tempfile
import time
from pathlib import Path

from tests.session_holder import ENVIRONMENT, SESSION_TIMEOUT_MS, holder_command

from bench.figures import percentile, resident_mb
from jesenska.cli.supervision.prefixed_output import PrefixedOutput
from jesenska.cli.supervision.supervisor import Child, Supervisor
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.zookeeper.client.client import connect

_NODE = "/held"


def pss_mb(pid: int) -> float:
    match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024


async def _until(store: Store, wanted: bool) -> float:
    """The time at which the node existed, or did not."""
    while True:
        changed = asyncio.Event()
        stat = await store.exists(_NODE, lambda _, changed=changed: changed.set())  # type: ignore[misc]
        if (stat is not None) == wanted:
            return time.perf_counter()
        await changed.wait()


async def _kill_children(supervisor: Supervisor, store: Store, rounds: int) -> list[float]:
    found = []
    for number in range(rounds):
        name = f"child {number}"
        supervisor.add(
            Child(name, holder_command(supervisor.address, _NODE), _NODE, restarts=False, environment=ENVIRONMENT)
        )
        await _until(store, True)
        gone: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        await store.exists(_NODE, lambda _, gone=gone: gone.set_result(time.perf_counter()))  # type: ignore[misc]
        process = supervisor.process_of(name)
        assert process is not None
        killed = time.perf_counter()
        os.kill(process, signal.SIGKILL)
        found.append(await gone - killed)
    return found


async def _kill_tree(supervisor: Supervisor, store: Store) -> float:
    back = asyncio.Event()
    store.on_state(lambda state: back.set() if state is SessionState.CONNECTED else None)
    assert supervisor.tree_process is not None
    killed = time.perf_counter()
    os.kill(supervisor.tree_process, signal.SIGKILL)
    await back.wait()
    return time.perf_counter() - killed


async def measured(directory: Path, rounds: int) -> dict[str, float]:
    """Each figure under its name and unit."""
    begun = time.perf_counter()
    nothing = io.StringIO()
    async with Supervisor(directory, passed_on=PrefixedOutput(nothing, nothing)) as supervisor:
        ready = time.perf_counter() - begun
        store = await connect(supervisor.address, session_timeout_ms=SESSION_TIMEOUT_MS)
        assert supervisor.tree_process is not None
        memory = resident_mb(supervisor.tree_process), pss_mb(supervisor.tree_process)
        ends = await _kill_children(supervisor, store, rounds)
        later = resident_mb(supervisor.tree_process), pss_mb(supervisor.tree_process)
        back = await _kill_tree(supervisor, store)
        await store.close()
    return {
        "kill of a child to the watch, ms, p50": percentile(ends, 0.5) * 1e3,
        "kill of a child to the watch, ms, max": max(ends) * 1e3,
        "start of the tree to ready, s": ready,
        "kill of the tree to a client connected again, s": back,
        "the tree at its start, resident MB": memory[0],
        "the tree at its start, PSS MB": memory[1],
        "the tree after the children, resident MB": later[0],
        "the tree after the children, PSS MB": later[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon a dead child's session has ended.")
    parser.add_argument("--rounds", type=int, default=20, help="children that are killed")
    parser.add_argument("--dir", help="where to keep the tree's data while it runs")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        found = asyncio.run(measured(Path(directory) / "tree", options.rounds))
    if options.output == "json":
        print(json.dumps(found))
        return
    print(
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} "
        f"rounds"
    )
    for name, value in found.items():
        print(f"{name:<56} {value:8.2f}")


if __name__ == "__main__":
    main()
