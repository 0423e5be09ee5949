"""The command-line tools. After the import of this package Ctrl-C ends a process without a stack trace, even while the
tool's own modules are being imported."""

from __future__ import annotations

import sys
from types import TracebackType


def _quiet_interrupt(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Handles an exception that was not caught. It prints nothing for KeyboardInterrupt, and the usual stack trace for
    every other exception. Python then ends the process."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:  # else another program has set its own hook, which stays
    sys.excepthook = _quiet_interrupt
