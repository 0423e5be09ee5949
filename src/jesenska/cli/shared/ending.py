"""Ends a server process cleanly. The process also ends when its parent process ends. This module imports nothing of
the broker, so that a small server stays small."""

from __future__ import annotations

import asyncio
import os
import signal

from jesenska.cli.shared.stop_signals import STOP_SIGNALS

#: The environment variable that contains the number of a descriptor: the reading end of a pipe, which is closed when
#: the parent process ends.
PARENT_DESCRIPTOR = "JESENSKA_PARENT_DESCRIPTOR"


def parents_end(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Sets `stopping` when the parent process has ended in any way. PARENT_DESCRIPTOR must name the reading end of a
    pipe whose writing end only the parent has."""
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
    """Makes the process ignore stop signals, so that they cannot change its exit code while the interpreter ends. It
    is called last on the event loop of a server that has stopped.

    An event loop that closes removes its signal handlers, which restores the signals' default action. A signal at that
    moment would end the process as if it had been killed. So the signals are ignored here, and the loop keeps its
    handlers."""
    loop = asyncio.get_running_loop()
    loop.remove_signal_handler = _gives_up_nothing  # type: ignore[assignment]
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # From now on no signal may write to the event loop's socket, because the event loop closes it.
    signal.set_wakeup_fd(-1)


def _gives_up_nothing(number: int) -> bool:
    """Does nothing. It replaces the event loop's `remove_signal_handler`, which the loop calls for each of its signals
    when it closes."""
    return False
