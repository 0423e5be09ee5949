"""Processes that print lines on stdout and read lines on stdin. They can be killed, paused and started again."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jesenska.testing.faults import LoadFailedError, ServerFaults
from tests.peers.clients import PROJECT

_SECONDS = 180.0


class Process:
    """One such process, which is a server for `ServerFaults`."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self._command = command
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        self._heard = threading.Condition()
        self.starts = 0
        #: Its output lines, over all its starts.
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, if it has ended."""
        return None if self._process is None else self._process.poll()

    def command(self) -> Sequence[str]:
        """The command that this start runs."""
        return self._command

    def start(self) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        threading.Thread(target=self._hear, args=(self._process,), daemon=True).start()

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                with self._heard:
                    self.lines.append(line.strip())
                    self._heard.notify_all()
        process.wait()
        with self._heard:
            self._heard.notify_all()

    def number(self, word: str) -> int:
        """The number in its last line that begins with this word. 0 before the first such line."""
        return next((int(line.split()[1]) for line in reversed(self.lines) if line.startswith(f"{word} ")), 0)

    def wait_for(self, word: str, seconds: float = _SECONDS) -> None:
        self.until(lambda: any(line.startswith(word) for line in self.lines), f"has not said {word!r}", seconds)

    def until(self, is_so: Callable[[], bool], otherwise: str, seconds: float = _SECONDS) -> None:
        """Returns when its output makes the condition true while it runs. Otherwise raises LoadFailedError."""
        with self._heard:
            if self._heard.wait_for(lambda: is_so() or self.code is not None, seconds) and self.code is None:
                return
        raise self.failure(f"{otherwise} (exit code {self.code})")

    def until_gone(self, seconds: float = _SECONDS) -> int:
        """Waits until it has ended by itself. Returns its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.wait(seconds)

    def tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def finish(self, seconds: float = _SECONDS) -> int:
        """Ends its stdin, and returns its exit code."""
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
        error.add_note("\n".join(self.lines[-20:]) + "\n" + self._log.read_text(errors="replace")[-6000:])
        return error


class Faults(ServerFaults):
    """Faults of a process that may have ended by itself. An ended process counts as paused."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._process = process

    def pause(self) -> None:
        if self._process.code is None:
            super().pause()


def said(processes: Iterable[Process], word: str) -> dict[str, int]:
    """The number of equal lines that begin with this word, where numbers in the text do not count."""
    found = Counter[str]()
    for process in processes:
        for line in process.lines:
            if line.startswith(word):
                found["".join("N" if letter.isdigit() else letter for letter in line)[:160]] += 1
    return dict(found.most_common(20))
