"""How a server ends: with its parent, and in order. Imports nothing of the broker, so that a small server stays
small."""

from __future__ import annotations

import asyncio
import os
import signal

from jesenska.cli.stop_signals import STOP_SIGNALS

#: The environment's name for a descriptor that says when the parent has ended.
PARENT_DESCRIPTOR = "JESENSKA_PARENT_DESCRIPTOR"


def parents_end(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Where PARENT_DESCRIPTOR names the reading end of a pipe whose other end a parent holds: stops the server when
    that parent has ended, however it did."""
    number = os.environ.pop(PARENT_DESCRIPTOR, "")
    if not number.isdigit():
        return
    descriptor = int(number)
    os.set_inheritable(descriptor, False)

    def ended() -> None:
        loop.remove_reader(descriptor)
        stopping.set()

    loop.add_reader(descriptor, ended)


def stopped_in_order() -> None:
    """Called last on the loop of a server that has stopped: from here on no signal changes its exit code, whoever
    sends one while the interpreter winds up.

    A loop that closes gives the signals back to their default, which would end the process as if it had been killed;
    so the loop is left none. The mask is this thread's: another one that is about to end may still be given a signal,
    which is ignored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
