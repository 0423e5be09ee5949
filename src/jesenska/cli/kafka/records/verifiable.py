"""Shared by kafka-verifiable-producer and kafka-verifiable-consumer: events as JSON lines, and an orderly end on a
signal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jesenska.base.clock import Clock
from jesenska.cli.shared.stop_signals import heeded_signals


class Events:
    """Prints events at once, one JSON object per line: `timestamp` in ms and `name` first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def say(self, name: str, **fields: Any) -> None:
        print(
            json.dumps(
                {"timestamp": self._clock.now_ms(), "name": name} | fields, ensure_ascii=False, separators=(",", ":")
            ),
            flush=True,
        )


class Stop:
    """The request to end the tool, and the signal that made it."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        #: 128 plus the number of the signal, as in a shell; 0 before a signal.
        self.exit_code = 0

    @property
    def is_set(self) -> bool:
        return self._stopped.is_set()

    def tell(self, number: int) -> None:
        self.exit_code = 128 + number
        self._stopped.set()

    async def stopped(self) -> None:
        """Returns when the tool is told to end."""
        await self._stopped.wait()

    async def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`; True if the tool was told to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
        return self.is_set


@contextmanager
def stopping() -> Iterator[Stop]:
    """A signal to stop (SIGINT, SIGTERM, SIGHUP) ends the work inside in order instead of ending the process."""
    stop, loop = Stop(), asyncio.get_running_loop()
    signals = heeded_signals()
    for number in signals:
        loop.add_signal_handler(number, stop.tell, number)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
