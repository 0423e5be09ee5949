"""Loads with clients of other projects, each in a process of its own: librdkafka (`rdkafka_clients.py`) and Apache
Kafka's (`RecordedClients.java`). They write histories for the checkers, as RecordedLoad does.

Several loads on one topic are one load (`Together`) and one history. Each of them has its own names of clients and its
own group."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from jesenska.testing.faults import LoadFailedError, RecordedLoad
from jesenska.testing.faults.history import CommitAcknowledged, CommittedFound, Operation, Polled, SendAcknowledged
from tests.conformance.conftest import need, need_modules
from tests.peers.clients import PROJECT
from tests.peers.java_programs import command_of

OURS, LIBRDKAFKA, JAVA = "ours", "librdkafka", "java"
JAVA_RELEASE = "4.3.1"

_BEGIN_SECONDS, _END_SECONDS = 120.0, 300.0
_LOOK_SECONDS = 0.01
_ACKNOWLEDGED, _POLLED = b'{"what":"acknowledged"', b'{"what":"polled"'


def _command(kind: str) -> list[str]:
    """The command that runs the clients. Skips, or fails in CI, where a program for them is missing."""
    if kind == LIBRDKAFKA:
        need_modules("confluent_kafka")
        return [sys.executable, "-m", "tests.processes.crash.rdkafka_clients"]
    need("java", "mvn")
    return command_of(JAVA_RELEASE, "RecordedClients", heap="128m")


class ClientProcess:
    """The clients of one kind on a topic that exists. The history is `path`, a file in `directory`."""

    def __init__(self, kind: str, bootstrap: str, topic: str, directory: Path, *, partitions: int = 3) -> None:
        self.kind = kind
        self.path = directory / f"{topic}-{kind}.jsonl"
        self.group = f"{topic}-{kind}-group"
        self._log = directory / f"{topic}-{kind}.log"
        self._command = [*_command(kind), bootstrap, topic, str(partitions), self.group, str(self.path)]
        self._process: subprocess.Popen[bytes] | None = None
        self._hearing: threading.Thread | None = None
        self._said: list[str] = []
        #: The size of the part of the history that was read, and the results so far.
        self._looked_bytes = 0
        self._acknowledged = 0
        self._is_reading = False

    # --- what it has said --------------------------------------------------------------------------------------------

    @property
    def errors(self) -> list[str]:
        """Errors that calls and callbacks of its clients reported."""
        return [line for line in self._said if line.startswith("error ")]

    @property
    def notices(self) -> list[str]:
        """Reports about connections to its clients, which are not errors of their work."""
        return [line for line in self._said if line.startswith("notice ")]

    @property
    def stuck(self) -> list[str]:
        """Its clients that could not be closed (`rdkafka_clients` explains why)."""
        return [line for line in self._said if line.startswith("stuck ")]

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._said.append(line.decode(errors="replace").rstrip("\n"))

    # --- Load --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when a record is acknowledged and a member of the group has read one; LoadFailedError if that takes
        longer than two minutes."""
        assert self._process is None, "the clients run already"
        self.path.touch()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._hearing = threading.Thread(target=self._hear, args=(self._process,), daemon=True)
        self._hearing.start()
        deadline = time.monotonic() + _BEGIN_SECONDS
        try:
            while not (self.steps() and self._is_reading):
                if time.monotonic() > deadline:
                    raise self._failure(f"has no record acknowledged and read within {_BEGIN_SECONDS:g} s")
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def steps(self) -> int:
        """The number of acknowledged records."""
        assert self._process is not None, "the clients were not started"
        if self._process.poll() not in (None, 0):
            raise self._failure(f"has ended with {self._process.returncode}")
        with self.path.open("rb") as file:
            file.seek(self._looked_bytes)
            lines, _, _ = file.read().rpartition(b"\n")
        self._looked_bytes += len(lines) + bool(lines)
        for line in lines.split(b"\n"):
            self._acknowledged += line.startswith(_ACKNOWLEDGED)
            self._is_reading = self._is_reading or (line.startswith(_POLLED) and b"-member-" in line)
        return self._acknowledged

    def stop(self) -> None:
        """Ends the clients in order: everything has its outcome, was read, and is committed by the group."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None and self._hearing is not None
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._failure(f"does not come to its end within {_END_SECONDS:g} s") from None
        self._hearing.join(10)
        if process.returncode:
            raise self._failure(f"has ended with {process.returncode}")

    def _failure(self, what: str) -> LoadFailedError:
        error = LoadFailedError(f"The load of {self.kind} {what}.")
        error.add_note(f"errors {self.errors[-20:]}\n{self._log.read_text(errors='replace')[-6000:]}")
        return error


class Together:
    """Several loads as one. It progresses by a step when each of them has."""

    def __init__(self, loads: Sequence[ClientProcess | RecordedLoad]) -> None:
        self.loads = list(loads)
        self._marks = [0] * len(self.loads)
        self._steps = 0

    @property
    def paths(self) -> list[Path]:
        return [load.path for load in self.loads]

    def start(self) -> None:
        with ExitStack() as begun:
            for load in self.loads:
                load.start()
                begun.callback(load.stop)
            self._marks = [load.steps() for load in self.loads]
            begun.pop_all()

    def steps(self) -> int:
        now = [load.steps() for load in self.loads]
        least = min(count - mark for count, mark in zip(now, self._marks, strict=True))
        if least:
            self._steps += least
            self._marks = now
        return self._steps

    def wait_for(self, more: int, seconds: float = 120.0) -> None:
        """Returns when each load has this number of further acknowledged records."""
        before, deadline = [load.steps() for load in self.loads], time.monotonic() + seconds
        while (gone := [load.steps() - count for load, count in zip(self.loads, before, strict=True)]) and min(
            gone
        ) < more:
            if time.monotonic() > deadline:
                raise LoadFailedError(
                    f"The loads stand still: they have got on by {gone} of {more} records in {seconds:g} s."
                )
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Stops them one after the other: the last of them reads the records of all."""
        with ExitStack() as ending:
            for load in reversed(self.loads):
                ending.callback(load.stop)

    @property
    def errors(self) -> list[str]:
        return [line for load in self.loads if isinstance(load, ClientProcess) for line in load.errors]

    def errors_by_kind(self) -> dict[str, int]:
        """The number of equal errors, where numbers in the text do not count."""
        return dict(Counter(re.sub(r"[0-9]+", "N", line) for line in self.errors))

    @property
    def stuck(self) -> list[str]:
        return [line for load in self.loads if isinstance(load, ClientProcess) for line in load.stuck]

    @property
    def notices(self) -> list[str]:
        return [line for load in self.loads if isinstance(load, ClientProcess) for line in load.notices]


def load_of(kind: str, bootstrap: str, topic: str, directory: Path) -> ClientProcess | RecordedLoad:
    """Starts a load of this kind on a topic of three partitions with three replicas."""
    if kind == OURS:
        return RecordedLoad(bootstrap, topic, directory, replication_factor=3)
    return ClientProcess(kind, bootstrap, topic, directory)


def assert_clients_took_part(history: Sequence[Operation], kind: str) -> None:
    """Fails unless each client of this kind has done its part: an empty history would be clean, too."""
    acknowledged = Counter(operation.client for operation in history if isinstance(operation, SendAcknowledged))
    read = Counter[str]()
    for operation in history:
        if isinstance(operation, Polled):
            read[operation.client] += len(operation.records)
    assert acknowledged[f"{kind}-producer"]
    assert any(name.startswith(f"{kind}-member-") for name in read)
    assert read[f"{kind}-last-reader"] >= acknowledged[f"{kind}-producer"]
    assert any(
        isinstance(operation, CommitAcknowledged) and operation.client.startswith(f"{kind}-member-")
        for operation in history
    )
    assert any(isinstance(operation, CommittedFound) and operation.client == f"{kind}-looker" for operation in history)
