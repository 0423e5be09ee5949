"""The signals that end a server or a tool cleanly: SIGINT (Ctrl-C), SIGTERM, and SIGHUP, which a terminal sends when
it is closed.

A program that is started with `nohup` ignores SIGHUP. It must continue to ignore SIGHUP, because it must continue to
run after its terminal is closed."""

from __future__ import annotations

import signal

#: All signals that stop a process cleanly.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded_signals() -> tuple[signal.Signals, ...]:
    """Returns the stop signals that this process handles. SIGHUP is left out if it was ignored when the process
    started."""
    ignores_hang_up = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in STOP_SIGNALS if number != signal.SIGHUP or not ignores_hang_up)
