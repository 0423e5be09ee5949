"""The thread pool for work that would block the event loop: checks of large or compressed batches, reads from the
disk, recovery. Python code that holds Python's global lock (GIL) for long does not belong here. A task is refused if
`POOL_QUEUE_MAX` tasks are waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from jesenska.base.errors import RequestTimedOutError
from jesenska.base.limits import POOL_QUEUE_MAX

logger = logging.getLogger(__name__)


class Pool:
    """Runs blocking work in threads, and reports its end on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self.executor = executor
        self._waiting = 0

    def submit(self, work: Callable[[], object], finished: Callable[[], None]) -> None:
        """Calls `work` in a thread, then `finished` on the event loop. Raises RequestTimedOutError if too many tasks
        are waiting. An exception of `work` is a defect: the exception is logged, and `finished` is still called so
        that no request hangs."""
        if self._waiting >= POOL_QUEUE_MAX:
            raise RequestTimedOutError("the broker is overloaded: too many requests wait for a thread")
        self._waiting += 1

        def run() -> None:
            try:
                work()
            except BaseException:
                logger.exception("work in the thread pool failed")
            finally:
                self._loop.call_soon_threadsafe(done)

        def done() -> None:
            self._waiting -= 1
            finished()

        self.executor.submit(run)

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)
