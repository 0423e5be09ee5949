"""A supervisor as a process: a tree, and a session holder for each name, whose node is `/NAME`.

    python -m tests.supervised DIRECTORY NAME[:deaf]...

Says where the tree is and as which process, then what its children say. SIGTERM and its parent's end stop it.
`SupervisorProcess` starts it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Self

from jesenska.cli.shared.ending import parents_end
from jesenska.cli.supervision.supervisor import Child, Supervisor
from jesenska.testing.process import ServerProcess
from tests.session_holder import ENVIRONMENT, holder_command

#: What deaf children are given before SIGKILL.
_GRACE_SECONDS = 1.0


class SupervisorProcess(ServerProcess):
    """That program, for tests."""

    _READY = re.compile(rb"the supervisor's tree is up at \S+:(?P<port>\d+) ")

    def __init__(self, directory: Path, *names: str) -> None:
        super().__init__(ENVIRONMENT, ready_seconds=60.0)
        self._directory, self._names = directory, names

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.supervised", str(self._directory), *self._names]

    def start(self) -> Self:
        self._log_begin = len(self.log)
        return super().start()

    def processes(self) -> dict[str, int]:
        """The ids of the tree, and of the children that have their nodes."""
        said = self.log[self._log_begin :]
        found = re.findall(
            r"^the (?:supervisor's )(tree) is .* as process (\d+)$|^\w+: holds /(\w+) as (\d+)$", said, re.MULTILINE
        )
        return {tree or name: int(of_tree or of_name) for tree, of_tree, name, of_name in found}

    def wait_for_children(self, *, without: Collection[int] = ()) -> dict[str, int]:
        """The same, when all children have their nodes, none of them as one of these processes."""

        def are_there() -> bool:
            found = self.processes()
            return len(found) > len(self._names) and not set(without) & {
                process for name, process in found.items() if name != "tree"
            }

        with self._heard:
            if not self._heard.wait_for(are_there, 60):
                raise TimeoutError(f"not all children have their nodes: {self.log[-2000:]}")
        return self.processes()


async def _supervise(directory: Path, names: list[str]) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    parents_end(loop, stopping)
    async with Supervisor(directory, grace_seconds=_GRACE_SECONDS) as supervisor:
        print(f"the supervisor's tree is up at {supervisor.address} as process {supervisor.tree_process}", flush=True)
        for text in names:
            name, _, deaf = text.partition(":")
            supervisor.add(
                Child(
                    name,
                    holder_command(supervisor.address, f"/{name}", deaf=bool(deaf)),
                    f"/{name}",
                    environment=ENVIRONMENT,
                )
            )
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(_supervise(Path(sys.argv[1]), sys.argv[2:]))
