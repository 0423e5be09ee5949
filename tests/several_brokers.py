"""`jesenska up -n N` as a process, for tests: started until all its brokers are ready, stopped or killed, started
again on the same data.

with SeveralBrokers(tmp_path / "data", 3) as brokers:
    ... brokers.bootstrap ...
    os.kill(brokers.processes()["broker 2"], signal.SIGKILL)
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from jesenska.testing.process import ServerProcess
from tests.watched_processes import children_of

#: For each thing that is waited for on a busy machine.
SECONDS = 100.0
_NUMBER = re.compile(rb"--flag\0broker\.id=(\d+)\0")


class SeveralBrokers(ServerProcess):
    """That command, on ports that the system chooses unless the words say another."""

    _READY = re.compile(rb"jesenska is up at \S+:(?P<port>\d+) ")

    def __init__(self, data: Path, count: int, *words: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(environment, ready_seconds=SECONDS)
        self.data, self._count, self._words = data, count, words

    def _command(self) -> list[str]:
        port = [] if "--port" in self._words else ["--port", "0"]
        return [
            sys.executable,
            "-m",
            "jesenska",
            "up",
            "-n",
            str(self._count),
            "--data",
            str(self.data),
            *port,
            *self._words,
        ]

    def start(self) -> Self:
        self._log_begin = len(self.log)
        return super().start()

    @property
    def bootstrap(self) -> str:
        """Where the brokers of this start are, as --bootstrap-server has them."""
        found = re.search(r"jesenska is up at (\S+) ", self.log[self._log_begin :])
        assert found is not None
        return found[1]

    def wait(self, seconds: float) -> int:
        """Its exit code, when it has ended by itself."""
        assert self._process is not None
        return self._process.wait(seconds)

    def orphan(self) -> None:
        """Has it find that its parent has ended."""
        os.close(self._lifeline)
        self._lifeline = os.open(os.devnull, os.O_RDONLY)

    def processes(self) -> dict[str, int]:
        """The ids of the processes beside its own: "tree", "broker 1" and so on."""
        found = {}
        for process in children_of(self.pid):
            with contextlib.suppress(OSError):  # it has ended
                words = Path(f"/proc/{process}/cmdline").read_bytes()
                number = _NUMBER.search(words)
                name = (
                    f"broker {int(number[1])}"
                    if number is not None
                    else "tree"
                    if b"supervised_tree" in words
                    else words.decode()
                )
                found[name] = process
        return found
