"""Starts Spark's Python workers fast. Spark runs a small program in place of Python. This program asks a fork server,
which has already imported PySpark and jesenska's source, to fork a worker.

    ready = ready_python()                  # None if workers cannot be forked on this machine
    os.environ["PYSPARK_PYTHON"] = ready.program
    ready.close()

A streaming query starts five Python processes, one after the other, before its first record is read. Each process
would find and load the same modules. Here the fork server (python_forks.py) loads them once, while the JVM starts.

A worker gets the arguments, environment variables, directory and standard streams of the program that asked for it.
The program waits and ends with the worker's exit code; if the program is killed, its worker is also killed. Calls
other than `-m MODULE` are run by the usual Python, and so are all calls when the fork server has ended. The fork
server ends with the process that started it.

All workers have the same string hashes, as Spark requires (PYTHONHASHSEED).
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

#: The prefix is short, since the directory also contains sockets, whose paths must be short.
_PREFIX: Final = "jesenska-py-"
_LEFT_SECONDS: Final = 60.0
_FORKS: Final = "jesenska.pipeline.spark.python_forks"
REQUEST_BYTES_MAX: Final = 1 << 20
#: Old Linux releases read no more than this many characters of a program's first line.
_INTERPRETER_CHARACTERS_MAX: Final = 120
_PROGRAM: Final = """#!{python} -IS
import os, socket, sys
arguments = [os.fsencode(one) for one in sys.argv[1:]]
def as_any_python():
    os.execv({python!r}, [{python!r}, *arguments])
if arguments[:1] != [b"-m"] or len(arguments) < 2:
    as_any_python()
fields = [os.getcwdb(), b"%d" % (len(arguments) - 1), *arguments[1:]]
fields += [name + b"=" + value for name, value in os.environb.items()]
request = b"\\0".join(fields)
if len(request) > {size}:
    as_any_python()
forks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    forks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {size})
    forks.connect({address!r})
    socket.send_fds(forks, [request], [0, 1, 2])
except OSError:
    as_any_python()
os._exit(int(forks.recv(16) or b"1"))
"""


class ReadyPython:
    """A running fork server. `program` is the path of the program that Spark starts in place of Python. It is in
    `directory`, which only this user may enter. The directory is locked, so that systemd-tmpfiles does not remove it
    as an old temporary file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._owner = os.getpid()
        self.program = str(directory / "python")
        self._lock = _locked(directory)
        try:
            self._process = self._started()
        except OSError:
            os.close(self._lock)
            raise
        atexit.register(self.close)

    def _started(self) -> subprocess.Popen[bytes]:
        """Writes the program that Spark starts and starts the fork server. Returns the server's process."""
        path, address = Path(self.program), str(self.directory / "socket")
        path.write_text(
            _PROGRAM.format(python=sys.executable, address=address, size=REQUEST_BYTES_MAX), encoding="utf-8"
        )
        path.chmod(0o700)
        if not os.access(path, os.X_OK):
            raise PermissionError(f"programs in {self.directory} cannot be run")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen(64)
            command = [sys.executable, "-m", _FORKS, str(listener.fileno()), str(self.directory)]
            variables = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
            # The pipe closes when this process ends, even if it is killed; then the fork server ends.
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=variables
            )

    def close(self) -> None:
        """Ends the fork server. Workers that were forked continue. The fork server also ends when this Python program
        ends."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner:  # a process forked by the program ends
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def _locked(directory: Path) -> int:
    """Returns a descriptor that holds a shared lock on the directory, if the file system has locks."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_left() -> None:
    """Removes the directories of earlier programs of this user that were killed. Such directories are not locked. A
    directory younger than a minute is kept, since its program may be about to lock it."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _LEFT_SECONDS:
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(descriptor)


def ready_python() -> ReadyPython | None:
    """Returns a `ReadyPython` whose fork server runs. Returns None if workers cannot be forked on this machine; then
    Spark starts every worker itself, which takes longer."""
    if sys.platform != "linux" or not sys.executable:
        return None
    if len(sys.executable) > _INTERPRETER_CHARACTERS_MAX or any(character.isspace() for character in sys.executable):
        return None
    _remove_left()
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        return ReadyPython(directory)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        logger.info(
            "Spark's Python workers start more slowly, since they cannot be forked from a prepared process: %s", error
        )
        return None
