"""The clients of a bank (`transfers`) as processes that are killed, paused and started again, and those that watch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO

from jesenska.testing.faults import LoadFailedError
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import java_command
from tests.peers.clients import PROJECT
from tests.peers.java_programs import class_path_and_program

LIBRDKAFKA = "librdkafka"
_BEGIN_AGAIN = 3
_SECONDS = 180.0


def command(kind: str) -> list[str]:
    """What runs a client of that kind: librdkafka, or a release of Apache Kafka's. Skips, or fails in CI, where
    something is missing for it."""
    if kind == LIBRDKAFKA:
        need_modules("confluent_kafka")
        return [sys.executable, "-m", "tests.crash.transfer_client"]
    need("java", "mvn")
    found = java_command(kind, "TransferClient", heap="96m", log_level="ERROR")
    found[-2:] = class_path_and_program(kind, "TransferClient")
    return found


class Process:
    """One process that says lines. Each start is a client of a new name, with a history of its own."""

    def __init__(self, kind: str, mode: str, name: str, directory: Path, *arguments: str, isolation: str = "read_committed") -> None:
        self.name = name
        self._kind, self._mode, self._directory, self._arguments, self._isolation = kind, mode, directory, arguments, isolation
        self._process: subprocess.Popen[str] | None = None
        self._heard = threading.Condition()
        self.starts = 0
        self.paths: list[Path] = []
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, if it has ended."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        self.starts += 1
        path = self._directory / f"{self.name}-{self.starts}.jsonl"
        path.touch()
        self.paths.append(path)
        more = [self._isolation] if self._kind == LIBRDKAFKA else []
        command_line = [*command(self._kind), self._mode, self._arguments[0], f"{self.name}.{self.starts}", *self._arguments[1:], str(path), *more]
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command_line, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        threading.Thread(target=self._hear, args=(self._process.stdout,), daemon=True).start()

    def _hear(self, output: IO[str]) -> None:
        with output:
            for line in output:
                with self._heard:
                    self.lines.append(line.strip())
                    self._heard.notify_all()

    def number(self, word: str) -> int:
        """The number that it has said last behind that word; 0 before."""
        return next((int(line.split()[1]) for line in reversed(self.lines) if line.startswith(f"{word} ")), 0)

    def wait_for(self, word: str, seconds: float = _SECONDS) -> None:
        with self._heard:
            if self._heard.wait_for(lambda: any(line.startswith(word) for line in self.lines) or self.code is not None, seconds) and self.code is None:
                return
        raise self.failure(f"has not said {word!r} (exit code {self.code})")

    def tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def finish(self, seconds: float = _SECONDS) -> int:
        """Ends its stdin, and gives its exit code."""
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None
        process.stdin.close()
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self.failure(f"does not end within {seconds:g} s") from None

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def stop(self) -> None:
        self.kill()

    def failure(self, what: str) -> LoadFailedError:
        error = LoadFailedError(f"{self.name} {what}.")
        error.add_note("\n".join(self.lines[-20:]) + "\n" + (self._directory / f"{self.name}.log").read_text(errors="replace")[-6000:])
        return error


class Bank:
    """A load of `faults.apply`: workers of the named kinds, and two that watch; it gets on by transfers that were seen.
    `kinds`: librdkafka, or releases of Apache Kafka's client."""

    def __init__(
        self, bootstrap: str, kinds: list[str], directory: Path, *, watchers: tuple[str, ...] = (LIBRDKAFKA,), watched: str = "read_committed"
    ) -> None:
        self.workers = {}
        for number, kind in enumerate(kinds, 1):
            name = f"{kind}-{number}"
            self.workers[name] = Process(kind, "work", name, directory, bootstrap, name)
        self.watchers = [Process(kind, "watch", f"{kind}-watcher", directory, bootstrap, isolation=watched) for kind in watchers]
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
        """Transfers that every watcher has seen. A worker that has ended because it was fenced begins again."""
        self._keep_up()
        return min(watcher.number("seen") for watcher in self.watchers)

    def _keep_up(self) -> None:
        for worker in self.workers.values():
            if worker.code == _BEGIN_AGAIN:
                worker.kill()
                worker.start()
            elif worker.code is not None:
                raise worker.failure(f"has ended with {worker.code}")
        for watcher in self.watchers:
            if watcher.code is not None:
                raise watcher.failure(f"has ended with {watcher.code}")

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Returns when it is so; LoadFailedError with what all have said last otherwise."""
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            self._keep_up()
            if time.monotonic() > deadline:
                error = LoadFailedError(f"After {_SECONDS:g} s {what}.")
                error.add_note("\n".join(f"{process.name}: {process.lines[-10:]}" for process in (*self.workers.values(), *self.watchers)))
                raise error
            time.sleep(0.02)

    def stop(self) -> None:
        """All transfers are made; then the workers end, and everything is read once more."""
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
        """How often the clients said the same, whatever the numbers in it."""
        found = Counter[str]()
        for process in (*self.workers.values(), *self.watchers):
            for line in process.lines:
                if line.startswith(word):
                    found["".join("N" if letter.isdigit() else letter for letter in line)[:160]] += 1
        return dict(found.most_common(20))
