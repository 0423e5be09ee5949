"""The fork server of Spark's Python workers, started by ready_python.py: `python -m
jesenska.pipeline.spark.python_forks LISTENER DIRECTORY`. LISTENER is the descriptor of a listening Unix socket.

The server imports the modules that workers need. Then it forks a worker for each connection, and sends the worker's
exit code on the connection. When its standard input ends, the server removes DIRECTORY and ends.

A request has three descriptors attached: the worker's standard streams. Its text has these fields, separated by zero
bytes: the working directory, the number of arguments, the arguments, and the environment variables. The arguments are
a module's name and the arguments of the module."""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Final

from jesenska.pipeline.spark.ready_python import REQUEST_BYTES_MAX

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
    "jesenska.pipeline.connector.sink",
    "jesenska.pipeline.connector.source",
    "jesenska.pipeline.streams_on_spark.queries.spark_task",
)


class _Forks:
    """The forked worker processes and the connection of each worker, on which the client awaits the worker's exit
    code."""

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
        """Serves requests until the process that started this server ends."""
        while not self._is_over:
            for key, _ in self._looks.select():
                if callable(key.data):
                    key.data()
                elif key.data in self._running:  # the program that asked for it is gone
                    self._looks.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _end(self) -> None:
        if not os.read(0, 1):
            self._is_over = True

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        descriptors: list[int] = []
        try:
            request, descriptors, *_ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
            child = os.fork() if len(descriptors) == 3 else None  # else it was killed before it asked
        except OSError:  # no more processes, say; the program sees that there is no answer
            child = None
        if child == 0:
            self._leave()
            connection.close()
            _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if child is None:
            connection.close()
            return
        self._running[child] = connection
        self._looks.register(connection, selectors.EVENT_READ, child)

    def _leave(self) -> None:
        """Closes, in a newly forked worker, all sockets and pipes of the server, and resets the signal handlers."""
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
                    with suppress(OSError):  # the program is gone
                        connection.send(b"%d" % (os.waitstatus_to_exitcode(status) % 256))


def _become(request: bytes, descriptors: list[int]) -> None:
    """Turns the forked process into the requested worker: runs the module as `python -m` does. Does not return."""
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
    """Reseeds numpy's random numbers in a forked process. Without this, all workers would draw the same numbers.
    Python's own generator reseeds itself."""
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
