"""A Python that Spark starts its workers with, in a moment: a program that has them forked by a process which has
imported PySpark and the source already.

    ready = ready_python()                  # None where the machine has no means for it
    os.environ["PYSPARK_PYTHON"] = ready.program
    ready.close()

A streaming query starts five processes of Python, one after the other, before its first record is read. Each looks up
and loads the same modules. Here one process does that while the JVM starts, and forks them when they are asked for.

What is forked has the arguments, variables, directory and standard streams that the program was given. The program
ends with its exit code, and it with the program. Anything but `-m MODULE` is run as by any Python, and so is
everything when the process that forks is gone. That process ends with the one that has started it.

Strings have the same hashes in all workers, as Spark wants it (PYTHONHASHSEED); random numbers are different ones.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_IMPORTED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "jesenska.pipeline.exactly_once",
    "jesenska.pipeline.sink",
    "jesenska.pipeline.source",
    "jesenska.pipeline.streams_on_spark.spark_task",
)
_REQUEST_BYTES_MAX: Final = 1 << 20
#: Linux reads no more of a program's first line, in old releases.
_INTERPRETER_CHARACTERS_MAX: Final = 120
#: A request is the directory, the number of arguments, the arguments and the variables, with a zero byte between them.
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
    """`program` is the path of what takes a Python's place."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        path, address = directory / "python", str(directory / "socket")
        self.program = str(path)
        path.write_text(_PROGRAM.format(python=sys.executable, address=address, size=_REQUEST_BYTES_MAX), encoding="utf-8")
        path.chmod(0o700)
        if not os.access(path, os.X_OK):
            raise PermissionError(f"programs in {directory} cannot be run")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen(64)
            command = [sys.executable, "-m", __name__, str(listener.fileno()), str(directory)]
            variables = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
            # The pipe closes when this process ends, however it ends.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=variables)
        atexit.register(self.close)

    def close(self) -> None:
        """What was forked goes on; nothing more is. A program's end does it as well."""
        atexit.unregister(self.close)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def ready_python() -> ReadyPython | None:
    """None where a process cannot be forked this way; then Spark starts every worker anew, which only takes longer."""
    if sys.platform != "linux" or not sys.executable:
        return None
    if len(sys.executable) > _INTERPRETER_CHARACTERS_MAX or any(character.isspace() for character in sys.executable):
        return None
    directory = Path(tempfile.mkdtemp(prefix="jesenska-python-"))
    try:
        return ReadyPython(directory)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        logger.info("Spark's workers are not forked from a Python that is ready: %s", error)
        return None


# The process that forks


class _Forks:
    """What was forked, and who waits for its end."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, socket.socket] = {}
        self._looks = selectors.DefaultSelector()
        ended, self._wakes = os.pipe()
        for descriptor in (ended, self._wakes):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for file, what in ((listener, self._fork), (ended, self._reap), (0, self._end)):
            self._looks.register(file, selectors.EVENT_READ, what)
        self._ended = ended
        self._is_over = False

    def serve(self) -> None:
        """Until the process that has started this one ends."""
        while not self._is_over:
            for key, _ in self._looks.select():
                if callable(key.data):
                    key.data()
                elif key.data in self._running:  # who asked for it is gone
                    self._looks.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _end(self) -> None:
        if not os.read(0, 1):
            self._is_over = True

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        request, descriptors, *_ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
        if len(descriptors) != 3:  # it was killed before it asked
            connection.close()
            return
        child = os.fork()
        if child == 0:
            self._leave()
            connection.close()
            _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._running[child] = connection
        self._looks.register(connection, selectors.EVENT_READ, child)

    def _leave(self) -> None:
        """In what was forked: nothing of this is left."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._looks.close()
        for descriptor in (self._ended, self._wakes):
            os.close(descriptor)
        for other in (self._listener, *self._running.values()):
            other.close()

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ended, 4096)
        watched = {key.fileobj for key in self._looks.get_map().values()}
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = found
                with self._running.pop(child) as connection:
                    if connection in watched:
                        self._looks.unregister(connection)
                    with suppress(OSError):  # nobody waits for it
                        connection.send(b"%d" % (os.waitstatus_to_exitcode(status) % 256))


def _become(request: bytes, descriptors: list[int]) -> None:
    """Runs what was asked for, as Python does; does not return."""
    code = 1
    try:
        directory, count, *fields = request.split(b"\0")
        module, *rest = (os.fsdecode(one) for one in fields[: int(count)])
        for descriptor, place in zip(descriptors, (0, 1, 2), strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        os.chdir(directory)
        os.environb.clear()
        for one in fields[int(count) :]:
            name, _, value = one.partition(b"=")
            os.environb[name] = value
        sys.path[:0] = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = [module, *rest]
        sys.modules.pop(module, None)  # it is imported as __main__
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _have_other_random_numbers() -> None:
    """In every process that is forked from this one, and from those. Python's own generator does so by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def main() -> None:
    descriptor, directory = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the JVM that PySpark starts, and all below it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _IMPORTED:
            with suppress(Exception):  # it fails where it is needed, and says so there
                importlib.import_module(name)
    os.register_at_fork(after_in_child=_have_other_random_numbers)
    gc.freeze()
    _Forks(socket.socket(fileno=int(descriptor))).serve()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
