"""Apache Kafka's own classes, in one JVM for each release and test run: messages (`Judge.java` says what it can be
asked), or another program here."""

from __future__ import annotations

import base64
import json
import subprocess
from types import TracebackType
from typing import Any

from tests.peers.apache_kafka import further_options, java_program
from tests.peers.java_programs import class_path_and_program


class JudgeError(Exception):
    """What the classes said against a message."""


class Judge:
    """Ends with the `with` block."""

    def __init__(self, release: str, program: str = "Judge") -> None:
        self.release = release
        command = [
            java_program(),
            "-Xmx256m",
            *further_options(release),
            "-cp",
            *class_path_and_program(release, program),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def ask(self, *words: object) -> str:
        """One question, one answer; JudgeError if the classes refuse."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        if answer.startswith("!") or not answer:
            raise JudgeError(f"{' '.join(map(str, words))[:120]}: {answer[1:]}")
        return answer

    def apis(self) -> dict[int, tuple[int, int]]:
        """Lowest and highest version of each key that has one."""
        found = {}
        for item in self.ask("apis").split():
            key, _, versions = item.partition(":")
            low, _, high = versions.partition("-")
            if not high.startswith("-"):
                found[int(key)] = (int(low), int(high))
        return found

    def random(self, kind: str, key: int, version: int, seed: int) -> tuple[bytes, Any]:
        """A random message: its bytes and what they say as JSON."""
        encoded, _, text = self.ask("random", kind, key, version, seed).partition(" ")
        return _bytes(encoded), json.loads(text)

    def as_json(self, kind: str, key: int, version: int, data: bytes) -> Any:
        return json.loads(self.ask("json", kind, key, version, _text(data)))

    def again(self, kind: str, key: int, version: int, data: bytes) -> bytes:
        """Decoded and encoded by Kafka's classes; JudgeError where they find something wrong or bytes left over."""
        return _bytes(self.ask("again", kind, key, version, _text(data)))

    def frame(self, key: int, version: int, correlation_id: int, body: bytes) -> bytes:
        """A request as Kafka's client would send it, without the length in front."""
        return _bytes(self.ask("frame", key, version, correlation_id, _text(body)))

    def answer(self, key: int, version: int, frame: bytes) -> tuple[int, Any]:
        """Correlation id and body of a response, read by Kafka's classes to its last byte."""
        correlation_id, _, text = self.ask("answer", key, version, _text(frame)).partition(" ")
        return int(correlation_id), json.loads(text)

    def from_json(self, kind: str, key: int, version: int, value: Any) -> bytes:
        return _bytes(self.ask("fromjson", kind, key, version, base64.b64encode(json.dumps(value).encode()).decode()))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode() or "-"


def _bytes(text: str) -> bytes:
    return b"" if text == "-" else base64.b64decode(text)
