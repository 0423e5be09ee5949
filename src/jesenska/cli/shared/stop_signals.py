"""The signals that end a server or a tool in order: Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it is
closed.

A program that is started with `nohup` ignores SIGHUP, and that stays so: the program is to outlive its terminal.
"""

from __future__ import annotations

import signal

#: All signals that stop a process in order.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that end this process: all of them, but SIGHUP only if it was not ignored from the start."""
    ignores_hang_up = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in STOP_SIGNALS if number != signal.SIGHUP or not ignores_hang_up)
