"""Apache Kafka Streams of one release as a judge of topologies, in one JVM (`StreamsJudge.java`)."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any

from tests.peers.apache_kafka import further_options, java_program
from tests.peers.java_programs import class_path_and_program


class StreamsJudgeError(Exception):
    """The program could not run a description, which is a mistake in one of the two."""


class StreamsJudge:
    """Ends with the `with` block."""

    def __init__(self, release: str = "3.9.1") -> None:
        path_and_program = class_path_and_program(release, "StreamsJudge", test_driver=True)
        # One thread collects: there is little to collect, and few processors are free.
        command = [java_program(), "-Xmx256m", "-XX:+UseSerialGC", *further_options(release), "-cp", *path_and_program]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> StreamsJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def outcome(self, description: dict[str, Any]) -> dict[str, Any]:
        """What comes out of a topology; `tests/units/pipeline/streams/topology_spec.py` documents both."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(description) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"judge": "the JVM has ended"}')
        if "judge" in found:
            raise StreamsJudgeError(f"{description['name']}: {found['judge']}")
        return found
