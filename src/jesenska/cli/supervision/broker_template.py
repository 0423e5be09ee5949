"""A template process: it has imported the broker's modules, and starts brokers by forking. So the brokers of a test
run need not import the modules again.

    python -m jesenska.cli.supervision.broker_template DESCRIPTOR

DESCRIPTOR is a Unix socket. A request is one line of JSON with two descriptors beside it:

    {"arguments": ["up", ...], "environment": {...}}      the arguments of `jesenska`. The first descriptor is for
                                                          stdout and stderr, the second is the pipe of
                                                          PARENT_DESCRIPTOR
    -> {"process": 4711}                                  the new process
    -> {"ended": 4711, "code": 0}                         later; a negative code is the signal that ended it

When the other end of the socket is closed, this process ends its brokers and then itself. It has only one thread, so
that a fork is safe, and opens no file that a broker could share."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from jesenska.broker import handlers
from jesenska.cli.jesenska import main as jesenska
from jesenska.cli.shared.ending import PARENT_DESCRIPTOR
from jesenska.cli.supervision import up_alone

#: This import loads all modules of a broker before any fork.
READ_BEFORE = up_alone
_REQUEST_MAX_BYTES = 1024 * 1024


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    awake, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for key in handlers.all_keys():
        handlers.load(key)
    gc.collect()
    # After this call, garbage collections in a broker do not write to the memory pages that the broker shares with
    # this process.
    gc.freeze()
    while True:
        readable, _, _ = select.select([control.fileno(), awake], [], [])
        if awake in readable:
            os.read(awake, 1024)
            _tell_of_the_ended(control)
        if control.fileno() in readable:
            data, descriptors, _, _ = socket.recv_fds(control, _REQUEST_MAX_BYTES, 2)
            if not data:
                return
            process = os.fork()
            if process == 0:
                _become_a_broker(json.loads(data), descriptors, [control.fileno(), awake, wakes])
            for descriptor in descriptors:
                os.close(descriptor)
            _tell(control, {"process": process})


def _tell_of_the_ended(control: socket.socket) -> None:
    with suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            _tell(control, {"ended": process, "code": os.waitstatus_to_exitcode(status)})


def _tell(control: socket.socket, what: dict[str, int]) -> None:
    control.sendall(json.dumps(what).encode() + b"\n")


def _become_a_broker(asked: dict[str, Any], descriptors: list[int], ours: list[int]) -> None:
    """Runs a broker in the forked process. Does not return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for descriptor in ours:
            os.close(descriptor)
        output, parent = descriptors
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in (nothing, output):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.environ[PARENT_DESCRIPTOR] = str(parent)
        code = jesenska(asked["arguments"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
