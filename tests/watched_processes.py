"""Processes that somebody else has started: those of a process, and their end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def watched(*processes: int, seconds: float = 50.0) -> Iterator[Callable[[], bool]]:
    """What waits until these have ended, so long for each, and says whether they have; those that have not are ended
    with the block. Their parent is not asked: who reaps orphans is the system's affair. One that is gone has ended."""
    with contextlib.ExitStack() as stack:
        descriptors = []
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                descriptors.append(os.pidfd_open(process))
                stack.callback(os.close, descriptors[-1])
        try:
            yield lambda: all(select.select([descriptor], [], [], seconds)[0] for descriptor in descriptors)
        finally:
            for descriptor in descriptors:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def children_of(process: int) -> set[int]:
    """Processes that this one has started and not reaped; none where it has ended."""
    tasks = Path(f"/proc/{process}/task")
    while True:
        # A thread that ends leaves its children to another, which may have been looked at already.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return {int(child) for file in tasks.glob("*/children") for child in file.read_text().split()}
