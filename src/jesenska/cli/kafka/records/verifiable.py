"""The common parts of kafka-verifiable-producer and kafka-verifiable-consumer: events as JSON lines, and a clean end
on a signal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jesenska.base.clock import Clock
from jesenska.cli.shared.stop_signals import heeded_signals


class Events:
    """Prints events immediately, one JSON object per line, with `timestamp` in ms and `name` first."""

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
    """A request to end the tool, made by a signal."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        #: The tool's exit code: 128 plus the number of the signal, as in a shell; 0 before a signal.
        self.exit_code = 0

    @property
    def is_set(self) -> bool:
        return self._stopped.is_set()

    def tell(self, number: int) -> None:
        self.exit_code = 128 + number
        self._stopped.set()

    async def stopped(self) -> None:
        """Returns when a signal has requested the end of the tool."""
        await self._stopped.wait()

    async def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns true if a signal has requested the end of the tool."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
        return self.is_set


@contextmanager
def stopping() -> Iterator[Stop]:
    """Makes signals (SIGINT, SIGTERM, SIGHUP) set the yielded `Stop` while the `with` block runs. The signals do not
    end the process, so the tool can end cleanly."""
    stop, loop = Stop(), asyncio.get_running_loop()
    signals = heeded_signals()
    for number in signals:
        loop.add_signal_handler(number, stop.tell, number)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
