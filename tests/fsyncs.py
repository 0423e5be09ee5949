"""Counts from outside, with strace, how often a process asks for its files to be made durable."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

_PATIENCE_SECONDS = 30


def can_trace() -> bool:
    return shutil.which("strace") is not None


class Fsyncs:
    """Traces all threads of a process inside `with`; `count` is how many fsyncs and fdatasyncs have begun until
    then."""

    def __init__(self, pid: int, trace: Path) -> None:
        self._pid = pid
        self._trace = trace
        self._tracer: subprocess.Popen[bytes]

    def __enter__(self) -> Fsyncs:
        command = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=fsync,fdatasync",
            "-e",
            "signal=none",
            "-o",
            str(self._trace),
            "-p",
            str(self._pid),
        ]
        self._tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + _PATIENCE_SECONDS
        tasks = Path(f"/proc/{self._pid}/task")
        while any(map(_is_untraced, tasks.iterdir())):
            if self._tracer.poll() is not None or time.monotonic() > ends:
                self._tracer.kill()
                self._tracer.wait()
                raise RuntimeError("strace may not look at the process: run as its owner, or as root")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Ends the tracing; how many there were."""
        if self._tracer.poll() is None:
            self._tracer.send_signal(signal.SIGINT)
            self._tracer.wait(_PATIENCE_SECONDS)
        return self.count()

    def count(self) -> int:
        # A call that another thread's call comes between is told in two lines; the second says "resumed".
        return sum(" fsync(" in line or " fdatasync(" in line for line in self._trace.read_text().splitlines())


def _is_untraced(thread: Path) -> bool:
    """False if it has ended."""
    try:
        return "TracerPid:\t0\n" in (thread / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
