"""Apache Kafka's command-line tools of one release, all in one JVM (`Tools.java` says how)."""

from __future__ import annotations

import base64
import subprocess
import threading
from types import TracebackType
from typing import NamedTuple

from tests.peers.apache_kafka import tool_class
from tests.peers.java_programs import command_of


class Outcome(NamedTuple):
    """What a tool said and how it ended. Bytes that are not UTF-8 stand as surrogates."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


class Tools:
    """Ends with the `with` block; a tool that takes longer than `seconds` ends the JVM and the test with it."""

    def __init__(self, release: str, seconds: float = 60.0) -> None:
        self.release = release
        self._seconds = seconds
        command = command_of(release, "Tools", heap="512m")
        if int(release.split(".")[0]) < 2:
            command[1:1] = [
                "-Djava.security.manager=allow",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
                "-Dfile.encoding=UTF-8",
            ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )

    def __enter__(self) -> Tools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()  # threads that a tool has left behind
            self._process.wait()
        self._process.stdout.close()

    def run(self, name: str, *arguments: object, given: str = "") -> Outcome:
        """Runs a tool by the name of its script, with `given` on its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [tool_class(self.release, name), _text(given), *(_text(str(argument)) for argument in arguments)]
        watch = threading.Timer(self._seconds, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().split()
        finally:
            watch.cancel()
        assert len(answer) == 3, (
            f"{name} {' '.join(map(str, arguments))} did not end within {self._seconds:g} s, or ended the JVM"
        )
        return Outcome(int(answer[0]), _string(answer[1]), _string(answer[2]))


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def _string(text: str) -> str:
    return "" if text == "-" else base64.b64decode(text).decode(errors="surrogateescape")
