"""How a server ends: with its parent, and in order. Imports nothing of the broker, so that a small server stays
small."""

from __future__ import annotations

import asyncio
import os
import signal

from jesenska.cli.shared.stop_signals import STOP_SIGNALS

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

    A loop that gives up a signal's handler, as it does when it closes, gives the signal back to its default, which
    would end the process as if it had been killed. Any thread may be given a signal in such a moment. So the signals
    are ignored at once, and the loop keeps what it had for them."""
    loop = asyncio.get_running_loop()
    loop.remove_signal_handler = _gives_up_nothing  # type: ignore[assignment]
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Nobody is to be woken by a signal, and the loop closes the socket for that.
    signal.set_wakeup_fd(-1)


def _gives_up_nothing(number: int) -> bool:
    """In the place of `remove_signal_handler`, which a loop calls for each of its signals when it closes."""
    return False
