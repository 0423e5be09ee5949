"""Processes that somebody else has started, and whose end a test waits for."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def watched(*processes: int, seconds: float = 50.0) -> Iterator[Callable[[], bool]]:
    """What waits until these have ended, so long for each, and says whether they have; those that have not are ended
    with the block. Their parent is not asked: who reaps orphans is the system's affair."""
    with contextlib.ExitStack() as stack:
        descriptors = [os.pidfd_open(process) for process in processes]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        try:
            yield lambda: all(select.select([descriptor], [], [], seconds)[0] for descriptor in descriptors)
        finally:
            for descriptor in descriptors:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
