"""The clients of a bank (`transfers`) as processes that are killed, paused and started again, and the watchers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jesenska.testing.faults import LoadFailedError
from tests.conformance.conftest import need, need_modules
from tests.peers.java_programs import command_of
from tests.processes.crash.talking_process import Process, said

LIBRDKAFKA, OURS = "librdkafka", "ours"
_BEGIN_AGAIN = 3
_SECONDS = 180.0


def command(kind: str) -> list[str]:
    """The command that runs a client of this kind: ours, librdkafka, or a release of Apache Kafka's. Skips, or fails
    in CI, where a program for it is missing."""
    if kind == LIBRDKAFKA:
        need_modules("confluent_kafka")
        return [sys.executable, "-m", "tests.processes.crash.transfer_client"]
    if kind == OURS:
        return [sys.executable, "-m", "tests.processes.crash.our_transfer_client"]
    need("java", "mvn")
    return command_of(kind, "TransferClient", heap="96m", log_level="ERROR")


class Client(Process):
    """A client of the bank. Each start has a new name, and a history of its own."""

    def __init__(
        self,
        kind: str,
        mode: str,
        name: str,
        directory: Path,
        bootstrap: str,
        *arguments: str,
        isolation: str = "read_committed",
    ) -> None:
        super().__init__(name, command(kind), directory)
        self._directory, self._bootstrap = directory, bootstrap
        self._mode, self._arguments = mode, arguments
        self._isolation = [isolation] if kind == LIBRDKAFKA else []
        self.paths: list[Path] = []

    def command(self) -> Sequence[str]:
        path = self._directory / f"{self.name}-{self.starts}.jsonl"
        path.touch()
        self.paths.append(path)
        return [
            *super().command(),
            self._mode,
            self._bootstrap,
            f"{self.name}.{self.starts}",
            *self._arguments,
            str(path),
            *self._isolation,
        ]


class Bank:
    """A load of `faults.apply`: workers of the named kinds, and watchers. Its progress is the number of transfers that
    were seen. `kinds`: ours, librdkafka, or releases of Apache Kafka's client."""

    def __init__(
        self,
        bootstrap: str,
        kinds: list[str],
        directory: Path,
        *,
        watchers: tuple[str, ...] = (LIBRDKAFKA,),
        watched: str = "read_committed",
    ) -> None:
        self.workers = {}
        for number, kind in enumerate(kinds, 1):
            name = f"{kind}-{number}"
            self.workers[name] = Client(kind, "work", name, directory, bootstrap, name)
        self.watchers = [
            Client(kind, "watch", f"{kind}-watcher", directory, bootstrap, isolation=watched) for kind in watchers
        ]
        self.transfers = 0

    @property
    def paths(self) -> list[Path]:
        return [path for process in (*self.workers.values(), *self.watchers) for path in process.paths]

    def start(self) -> None:
        try:
            for process in (*self.watchers, *self.workers.values()):
                process.start()
            for process in self.workers.values():
                process.wait_for("ready")
            self.until(lambda: all(watcher.number("seen") > 0 for watcher in self.watchers), "nothing is seen")
        except BaseException:
            self._kill()
            raise

    def steps(self) -> int:
        """The number of transfers that every watcher has seen. A worker that has ended because it was fenced is
        started again."""
        self._keep_up()
        return min(watcher.number("seen") for watcher in self.watchers)

    def _keep_up(self) -> None:
        for worker in self.workers.values():
            code = worker.code
            if code == _BEGIN_AGAIN:
                worker.kill()
                worker.start()
            elif code is not None:
                raise worker.failure(f"has ended with {code}")
        for watcher in self.watchers:
            if watcher.code is not None:
                raise watcher.failure(f"has ended with {watcher.code}")

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Returns when the condition is true. Otherwise raises LoadFailedError with the last output of all clients."""
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            self._keep_up()
            if time.monotonic() > deadline:
                error = LoadFailedError(f"After {_SECONDS:g} s {what}.")
                error.add_note(
                    "\n".join(
                        f"{process.name}: {process.lines[-10:]}" for process in (*self.workers.values(), *self.watchers)
                    )
                )
                raise error
            time.sleep(0.02)

    def stop(self) -> None:
        """Waits until all transfers are made. Then the workers end, and everything is read once more."""
        try:
            first = self.watchers[0]
            first.tell("end")
            self.until(lambda: "complete" in first.lines, "not all transfers are seen")
            self.transfers = first.number("fed")
            for worker in self.workers.values():
                assert worker.finish() in (0, _BEGIN_AGAIN)
            for watcher in self.watchers:
                watcher.tell("last")
                if watcher.finish():
                    raise watcher.failure("has failed")
        finally:
            self._kill()

    def _kill(self) -> None:
        for process in (*self.workers.values(), *self.watchers):
            process.kill()

    def said(self, word: str) -> dict[str, int]:
        """The number of times that its clients have printed each line that begins with this word."""
        return said([*self.workers.values(), *self.watchers], word)
