"""The end of a server: from the moment in which it has stopped no signal has its default action."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from jesenska.cli.shared.ending import stopped_in_order
from jesenska.cli.shared.stop_signals import STOP_SIGNALS

HANDLED = (*STOP_SIGNALS, signal.SIGUSR1)


@pytest.fixture
def given_back() -> Iterator[None]:
    """Restores the signals after the test."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_at_any_moment_of_the_end_is_ignored(
    given_back: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After each change of a signal's handling all signals are sent."""
    change, changed = signal.signal, []

    def changes(number: int, handler: object) -> object:
        before = change(number, handler)  # type: ignore[arg-type]
        changed.append((number, handler))
        for other in HANDLED if signal.SIG_DFL not in (handler, *map(signal.getsignal, HANDLED)) else ():
            os.kill(os.getpid(), other)
        return before

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for number in HANDLED:
            loop.add_signal_handler(number, lambda: None)
        monkeypatch.setattr(signal, "signal", changes)
        stopped_in_order()

    with asyncio.Runner() as runner:
        runner.run(serve())
    assert [number for number, handler in changed if handler == signal.SIG_DFL] == []
    for number in HANDLED:
        os.kill(os.getpid(), number)
    assert {number for number, handler in changed if handler == signal.SIG_IGN} == set(STOP_SIGNALS)
    assert capfd.readouterr().err == ""
