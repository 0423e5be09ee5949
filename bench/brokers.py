"""The two compared brokers, with the same interface: start, stop, start again on the same data.

jesenska can be profiled while a row runs, by cProfile inside the process (`bench/profiled.py`, Python functions) or by
perf from outside (C functions and the kernel); a profiled run's figures cannot be compared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from tests.peers.apache_kafka import ApacheKafka

from jesenska.testing import BrokerProcess

KAFKA = "4.3.1"


class Broker(Protocol):
    """One broker under measurement."""

    name: str
    bootstrap: str
    pid: int

    def start(self) -> float:
        """Starts it; seconds until clients can connect."""

    def stop(self) -> None:
        """Ends it in order, data kept."""

    def profiled(self, row: str) -> AbstractContextManager[None]:
        """A context for a row, which profiles it if a profile is wanted."""

    def loop_lag_p99_ms(self) -> tuple[float, float] | None:
        """The lateness of the broker's event loop, since the last call and since the start; None for a broker without
        one."""


class _ProcessOfTree(BrokerProcess):
    """A broker of another checkout of the project, run by the Python of its own .venv."""

    python = ""

    def _command(self) -> list[str]:
        return [self.python, *super()._command()[1:]]


def python_of(tree: Path) -> Path:
    """The interpreter of this checkout of the project."""
    return (tree / ".venv" / "bin" / "python").absolute()


def build_of(python: Path) -> str:
    """Version, compiler and place of this interpreter. Brokers are comparable if their builds are the same: a
    profile-optimised build takes a tenth less CPU than another of the same version."""
    told = subprocess.run(
        [python, "-c", "import sys; print(sys.version, sys.base_prefix)"], capture_output=True, text=True, check=True
    )
    return " ".join(told.stdout.split())


class Jesenska:
    """`profile` is "", "cprofile" or "perf"; profiles are written as text into the directory `profiles`, one for each
    row. `tree` is another checkout of the project with its .venv: then its broker is measured, with this tree's
    clients."""

    name = "jesenska"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        profile: str = "",
        profiles: Path = Path(),
        tree: Path | None = None,
    ) -> None:
        self._profile, self._profiles, self._raw = profile, profiles, directory / "profile"
        kind = BrokerProcess if tree is None else _ProcessOfTree
        self._process = kind(
            directory / "data",
            settings=settings,
            environment={"JESENSKA_PROFILE": str(self._raw)},
            module="bench.profiled" if profile == "cprofile" else "jesenska",
        )
        if isinstance(self._process, _ProcessOfTree) and tree is not None:
            self._process.python = str(python_of(tree))
        self.bootstrap, self.pid = "", 0

    def start(self) -> float:
        begun = time.monotonic()
        self._process.start()
        seconds = time.monotonic() - begun
        self.bootstrap, self.pid = self._process.bootstrap, self._process.pid
        return seconds

    def stop(self) -> None:
        self._process.stop()

    def loop_lag_p99_ms(self) -> tuple[float, float] | None:
        told = self._process.log.count("\nfigures {")
        os.kill(self.pid, signal.SIGUSR1)
        while self._process.log.count("\nfigures {") == told:
            time.sleep(0.005)
        figures = json.loads(self._process.log.rpartition("\nfigures ")[2].partition("\n")[0])
        return figures["loop_lag_ms"]["p99"], figures["loop_lag_ms_since_start"]["p99"]

    @contextmanager
    def profiled(self, row: str) -> Iterator[None]:
        target = self._profiles / (re.sub(r"[^\w.=]+", "-", row) + ".txt")
        if self._profile == "cprofile":
            os.kill(self.pid, signal.SIGUSR2)
            yield
            self._raw.unlink(missing_ok=True)
            os.kill(self.pid, signal.SIGUSR2)
            while not self._raw.exists():  # written under another name first
                time.sleep(0.01)
            shutil.move(self._raw, target)
        elif self._profile == "perf":
            data = self._raw.with_suffix(".perf")
            perf = subprocess.Popen(
                ["perf", "record", "-q", "-F", "499", "-g", "-p", str(self.pid), "-o", str(data)],
                stderr=subprocess.DEVNULL,
            )
            yield
            perf.send_signal(signal.SIGINT)
            perf.wait()
            said = subprocess.run(
                ["perf", "report", "--stdio", "--no-children", "-g", "none", "-i", str(data)],
                capture_output=True,
                text=True,
                check=False,
            )
            target.write_text(said.stdout)
        else:
            yield


class Apache:
    """Apache Kafka as its own start script would run it, with a heap of 1 GB."""

    name = "Apache Kafka"

    def __init__(self, directory: Path, settings: Mapping[str, str], release: str = KAFKA) -> None:
        self._peer = ApacheKafka(release, directory / "kafka", settings=dict(settings))
        self.bootstrap, self.pid = "", 0

    def start(self) -> float:
        try:
            self._peer.start()
        except BaseException:
            self._peer.stop()
            raise
        self.bootstrap, self.pid = self._peer.bootstrap, self._peer.pids[0]
        return self._peer.ready_seconds

    def stop(self) -> None:
        self._peer.stop()

    def loop_lag_p99_ms(self) -> tuple[float, float] | None:
        return None

    @contextmanager
    def profiled(self, row: str) -> Iterator[None]:
        yield
