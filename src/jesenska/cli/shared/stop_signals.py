"""The signals that end a server or a tool cleanly: SIGINT (Ctrl-C), SIGTERM, and SIGHUP, which a terminal sends when
it is closed.

A program that is started with `nohup` ignores SIGHUP and continues to ignore it, because it must run on after its
terminal is closed."""

from __future__ import annotations

import signal

#: All signals that stop a process cleanly.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that this process handles. SIGHUP is included only if it was not ignored from the start."""
    ignores_hang_up = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in STOP_SIGNALS if number != signal.SIGHUP or not ignores_hang_up)
