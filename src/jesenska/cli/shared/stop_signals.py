"""The signals that end a server or a tool in order: Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it is
closed.

Who starts a program with `nohup` has it ignore SIGHUP, and it stays ignored: the program is to outlive its terminal.
"""

from __future__ import annotations

import signal

#: All of them.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded_signals() -> tuple[signal.Signals, ...]:
    """Those that end this process: all of them, but SIGHUP only where it was not ignored from the start."""
    ignores_hang_up = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in STOP_SIGNALS if number != signal.SIGHUP or not ignores_hang_up)
