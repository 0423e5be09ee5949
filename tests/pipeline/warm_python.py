"""A Python that Spark starts its workers with, in a moment: a program `python` that has them forked by a process which
has imported PySpark and our source already. The look-up of their modules is most of what short queries take.

    with warm_python(directory) as python:
        ...                                 # PYSPARK_PYTHON=python

What is forked has the arguments, variables, directory and standard streams that `python -m` was given, which ends with
its exit code. When `python` is killed, so is it. Anything but a module is run as by any Python.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IMPORTED = (
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
    "jesenska.pipeline.sink",
    "jesenska.pipeline.source",
)
_REQUEST_BYTES_MAX = 1 << 20
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
socket.send_fds(server, [request], [0, 1, 2])
os._exit(int(server.recv(16) or b"1"))
"""


@contextmanager
def warm_python(directory: Path) -> Iterator[Path]:
    """The program; it works until the end of the block."""
    address, program = str(directory / "socket"), directory / "python"
    program.write_text(_PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        command = [sys.executable, "-m", "tests.pipeline.warm_python", str(listener.fileno())]
        forks = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()], cwd=Path(__file__).parents[2])
    try:
        yield program
    finally:
        forks.terminate()
        forks.wait()


def _serve(listener: socket.socket) -> None:
    """Forks one process for each connection, and tells its exit code there."""
    running: dict[int, socket.socket] = {}
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    looks = selectors.DefaultSelector()
    looks.register(listener, selectors.EVENT_READ)
    looks.register(reading, selectors.EVENT_READ)
    while True:
        for key, _ in looks.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                request, descriptors, *_ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    looks.close()
                    for other in (listener, connection, *running.values()):
                        other.close()
                    _become(request, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                running[child] = connection
                looks.register(connection, selectors.EVENT_READ, child)
            elif key.fileobj == reading:
                os.read(reading, 4096)
                _reap(running, looks)
            elif key.data in running:
                # Who asked for it is gone.
                looks.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)


def _reap(running: dict[int, socket.socket], looks: selectors.BaseSelector) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        connection = running.pop(child)
        if connection in (key.fileobj for key in looks.get_map().values()):
            looks.unregister(connection)
        with connection:
            try:
                connection.send(b"%d" % (os.waitstatus_to_exitcode(status) % 256))
            except OSError:
                pass  # nobody waits for it


def _become(request: bytes, descriptors: list[int]) -> None:
    """Runs what was asked for, as Python does; does not return."""
    code = 1
    try:
        (_, module, *rest), variables, directory = json.loads(request)
        for descriptor, place in zip(descriptors, (0, 1, 2), strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(variables)
        sys.path[:0] = [directory, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = [module, *rest]
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


def main() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
