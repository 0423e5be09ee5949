"""Finds or starts the demo's broker, which runs in its own process.

    demo-data/broker/        the broker's data
    demo-data/broker.json    {"pid": ..., "address": "127.0.0.1:9092"}, written when it was ready
    demo-data/broker.log     the broker's output
    demo-data/broker.lock    locked by the program that keeps the broker running and stops it at its end

After a crash of the demo the broker still runs. The next run finds its address in broker.json, checks that the
broker's cluster id is the cluster id in the data, and takes the lock. After a crash of the broker, broker.json names
no running process, and a new broker is started on the same data."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from jesenska.base.clock import Clock
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.client.client_config import ClientConfig
from jesenska.config.variables import without_settings
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.demo.state import write_json

_READY = re.compile(r"jesenska is up at (\S+:\d+) ")
_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0


@dataclass(slots=True)
class DemoBroker:
    """A running broker. `lock` is the locked file broker.lock if this program started the broker, or took it over, and
    stops it at its end. Otherwise `lock` is None."""

    address: str
    pid: int
    started_here: bool
    lock: TextIOWrapper | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def kept_here(self) -> bool:
        return self.lock is not None

    def is_alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _is_alive(self.pid)

    def stop(self, clock: Clock, pause: Callable[[float], None]) -> None:
        """Stops the broker with SIGTERM, if this program holds the lock. If the broker has not ended after 30 s, it is
        killed."""
        if self.lock is None:
            return
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)
        deadline = clock.monotonic() + _STOP_SECONDS
        while self.is_alive() and clock.monotonic() < deadline:
            pause(0.05)
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
        self.lock.close()


def find_or_start(folder: Path, clock: Clock, pause: Callable[[float], None], say: Callable[[str], None]) -> DemoBroker:
    """Returns a running broker for the demo. Starts a broker if none is running. If the broker cannot be started,
    raises JesenskaError with the last line of the broker's log."""
    lock = try_lock(folder / "broker.lock")
    found = _running(folder)
    if found is not None:
        address, pid = found
        say(f"Using the demo's broker that runs at {address} (process {pid}).")
        return DemoBroker(address, pid, False, lock)
    if lock is None:
        raise JesenskaError(f"Another demo is starting or ending its broker in {folder}: try again in a moment.")
    log = folder / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jesenska", "up", "--any-port", "--data", str(folder / "broker")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**without_settings(os.environ), "PYTHONUNBUFFERED": "1"},  # its own broker, in no other cluster
            start_new_session=True,  # Ctrl-C reaches the demo, which ends the broker in order
        )
    deadline = clock.monotonic() + _READY_SECONDS
    while clock.monotonic() < deadline:
        text = log.read_text(encoding="utf-8", errors="replace")
        ready = _READY.search(text)
        if ready is not None:
            if "is taken" in text:
                say("Port 9092 is held by another program.")
            say(f"The broker is up at {ready[1]} (process {process.pid}).")
            write_json(folder / "broker.json", {"pid": process.pid, "address": ready[1]})
            return DemoBroker(ready[1], process.pid, True, lock, process)
        if process.poll() is not None:
            break
        pause(0.02)
    if process.poll() is None:
        process.kill()
        process.wait()
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    raise JesenskaError(f"The broker could not be started: {text.splitlines()[-1] if text else 'it said nothing'}")


def _running(folder: Path) -> tuple[str, int] | None:
    """Returns the address and process id of the demo's broker. Returns None if no broker answers there, or if its
    cluster id differs from the cluster id in the demo's data."""
    try:
        note = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
        address, pid = str(note["address"]), int(note["pid"])
        properties = (folder / "broker" / "meta.properties").read_text(encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not _is_alive(pid):
        return None
    identifier = re.search(r"^cluster\.id=(.*)$", properties, re.MULTILINE)
    connection = ClusterThread(
        ClientOptions(address, ClientConfig(connect_timeout_seconds=3.0, request_timeout_seconds=5.0))
    )
    try:
        connection.run(connection.cluster.refresh([]))
        same = identifier is not None and connection.cluster.cluster_id == identifier[1].strip()
    except KafkaError:
        return None
    finally:
        connection.close()
    return (address, pid) if same else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def try_lock(path: Path) -> TextIOWrapper | None:
    """Returns the open, locked file. Returns None if another program has locked it."""
    file = path.open("a", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
