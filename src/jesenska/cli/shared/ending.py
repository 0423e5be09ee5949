"""Ends a server: with its parent, and in order. This module imports nothing of the broker, so that a small server
stays small."""

from __future__ import annotations

import asyncio
import os
import signal

from jesenska.cli.shared.stop_signals import STOP_SIGNALS

#: The environment variable for a descriptor that is closed when the parent ends.
PARENT_DESCRIPTOR = "JESENSKA_PARENT_DESCRIPTOR"


def parents_end(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stops the server when its parent has ended in any way. PARENT_DESCRIPTOR must name the reading end of a pipe;
    the parent has the other end."""
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
    """Called last on the loop of a server that has stopped: from then on no signal changes its exit code while the
    interpreter ends.

    A loop that removes a signal's handler, as it does when it closes, restores the signal's default, which would end
    the process as if it had been killed. Any thread may get a signal at such a moment. So the signals are ignored at
    once, and the loop keeps its handlers."""
    loop = asyncio.get_running_loop()
    loop.remove_signal_handler = _gives_up_nothing  # type: ignore[assignment]
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # No signal is to write to the loop's socket, which the loop closes.
    signal.set_wakeup_fd(-1)


def _gives_up_nothing(number: int) -> bool:
    """Replaces `remove_signal_handler`, which a loop calls for each of its signals when it closes."""
    return False
