"""A Python with which Spark's workers start fast: a program that has them forked by a process that has imported
PySpark and the source already.

    ready = ready_python()                  # None where the machine has no means for it
    os.environ["PYSPARK_PYTHON"] = ready.program
    ready.close()

A streaming query starts five processes of Python, one after the other, before its first record is read. Each looks up
and loads the same modules. Here one process does that while the JVM starts, and forks them on request.

A forked process has the arguments, variables, directory and standard streams of the program. The program ends with its
exit code, and it ends with the program. Anything but `-m MODULE` is run as by any Python, and so is everything when
the forking process is gone. That process ends with the one that started it.

Strings have the same hashes in all workers, as Spark needs it (PYTHONHASHSEED).
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

#: Short, as the directory is for sockets, too.
_PREFIX: Final = "jesenska-py-"
_LEFT_SECONDS: Final = 60.0
_FORKS: Final = "jesenska.pipeline.spark.python_forks"
REQUEST_BYTES_MAX: Final = 1 << 20
#: Linux reads no more of a program's first line, in old releases.
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
    """`program` is the path of the program that Spark starts as Python. It is in `directory`, which only this user may
    enter. The directory is locked, so that tmpfiles.d(5) does not remove it as an old temporary file."""

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
        """Returns the forking process."""
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
            # The pipe closes when this process ends, however it ends.
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=variables
            )

    def close(self) -> None:
        """Ends the forking process; forked processes go on. The end of the program does this as well."""
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
    """Returns a descriptor that holds a lock on it, where files can be locked."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_left() -> None:
    """Removes directories of this user's programs that were killed together with the forking process: they are not
    locked. A directory younger than a minute may be about to be locked."""
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
    """Returns a started `ReadyPython`. None where processes cannot be forked this way; then Spark starts every worker
    itself, which only takes longer."""
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
        logger.info("Spark's workers are not forked from a Python that is ready: %s", error)
        return None
