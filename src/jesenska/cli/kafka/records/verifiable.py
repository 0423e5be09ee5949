"""What kafka-verifiable-producer and -consumer share: events as JSON lines, and an orderly end when they are told to
stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jesenska.base.clock import Clock
from jesenska.cli.shared.stop_signals import heeded_signals


class Events:
    """Prints what happens, a JSON object a line, as soon as it does: `timestamp` in ms and `name` first."""

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
    """Whether and by which signal the tool was told to end."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        #: 128 and the signal's number once there was one, as a shell gives it; else 0.
        self.exit_code = 0

    @property
    def is_set(self) -> bool:
        return self._told.is_set()

    def tell(self, number: int) -> None:
        self.exit_code = 128 + number
        self._told.set()

    async def told(self) -> None:
        """Returns once the tool was told to end."""
        await self._told.wait()

    async def wait(self, seconds: float) -> bool:
        """Waits so long at most; True once the tool was told to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), seconds)
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
