"""The tools. Importing this package has Ctrl-C end a process without a stack trace, also while the tool's own modules
are still being read."""

from __future__ import annotations

import sys
from types import TracebackType


def _quiet_interrupt(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Python's hook for what nobody has caught: it ends the process after this, by SIGINT where that was the
    reason."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:  # else another program's, which stays
    sys.excepthook = _quiet_interrupt
