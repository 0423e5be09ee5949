"""Brokers that are forked from a template process (jesenska.cli.supervision.broker_template), which has imported all
modules. The processes have a part of the interface of `subprocess.Popen`."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO


class WarmProcess:
    """A process that the template has forked. It has the methods `poll`, `wait`, `send_signal` and `kill` and the
    attribute `returncode` of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = threading.Event()

    def ended(self, code: int) -> None:
        """Records the exit code, which the template process has reported."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process, and returns its exit code. Raises subprocess.TimeoutExpired if it has not
        ended after `timeout` seconds."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        # The process may have ended already, although the template has not reported it yet.
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)


class Template:
    """The template process. It is started with the first broker. Several threads may use it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jesenska.cli.supervision.broker_template", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours
        self._lock = threading.Lock()
        self._started: list[int] = []
        self._has_started = threading.Condition()
        self._running: dict[int, WarmProcess] = {}
        #: The exit codes of processes that ended before their `WarmProcess` object was registered.
        self._early: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], parent_descriptor: int) -> WarmProcess:
        """Starts a broker, as the command `jesenska ARGUMENTS` would do. Raises RuntimeError if the template process
        has ended."""
        reading, writing = os.pipe()
        try:
            with self._lock:
                asked = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
                socket.send_fds(self._control, [asked], [writing, parent_descriptor])
                with self._has_started:
                    if not self._has_started.wait_for(lambda: bool(self._started), 60):
                        raise RuntimeError("the template of brokers does not answer")
                    pid = self._started.pop()
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if pid < 0:
            raise RuntimeError("the template of brokers has ended")
        process = WarmProcess(pid, os.fdopen(reading, "rb"))
        with self._has_started:
            self._running[pid] = process
            code = self._early.pop(pid, None)
        if code is not None:
            process.ended(code)
        return process

    def _listen(self) -> None:
        with self._control.makefile("rb") as answers:
            for line in answers:
                message = json.loads(line)
                with self._has_started:
                    if "process" in message:
                        self._started.append(message["process"])
                        self._has_started.notify_all()
                        continue
                    process = self._running.pop(message["ended"], None)
                    if process is None:
                        self._early[message["ended"]] = message["code"]
                if process is not None:
                    process.ended(message["code"])
        with self._has_started:
            self._started.append(-1)
            self._has_started.notify_all()

    def close(self) -> None:
        """Ends the template process. Brokers that still run end together with this process."""
        atexit.unregister(self.close)
        self._control.shutdown(socket.SHUT_RDWR)
        self._process.wait()


_template: Template | None = None
_template_of = -1
_making = threading.Lock()


def template() -> Template:
    """Returns the template of this process. It is made at the first call. A forked process gets a template of its
    own."""
    global _template, _template_of
    with _making:
        if _template is None or _template_of != os.getpid():
            _template, _template_of = Template(), os.getpid()
        return _template
