"""The lateness of the event loop, measured with a loop whose time the test moves, and the figures of a running
broker."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.broker.loop_lag import INTERVAL_SECONDS, LagHistogram, LoopLag
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.raw_connection import RawConnection


class _Loop:
    """Keeps one timer, and calls it with the delay that the test chooses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timer: tuple[float, Callable[..., object], tuple[Any, ...]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Any:
        self.timer = (when, callback, args)
        return self

    def cancel(self) -> None:
        self.timer = None

    def run_late_by(self, seconds: float) -> None:
        assert self.timer is not None
        when, callback, args = self.timer
        self.now = when + seconds
        callback(*args)


def test_the_lag_is_what_the_timer_is_late_by_beyond_the_grain_of_the_systems_timer() -> None:
    loop = _Loop()
    lag = LoopLag(cast(asyncio.AbstractEventLoop, loop))
    for _ in range(98):
        loop.run_late_by(0.0007)
    loop.run_late_by(0.051)
    loop.run_late_by(0.301)
    figures = lag.since_start()
    assert (figures.samples, figures.p50_ms) == (100, 0.1)
    assert figures.p99_ms == pytest.approx(50, rel=0.13)
    assert figures.max_ms == pytest.approx(300)
    assert figures.seconds == pytest.approx(100 * INTERVAL_SECONDS + 98 * 0.0007 + 0.352)


def test_what_was_asked_for_begins_anew() -> None:
    loop = _Loop()
    lag = LoopLag(cast(asyncio.AbstractEventLoop, loop))
    loop.run_late_by(0.5)
    assert lag.since_asked().max_ms == pytest.approx(499)
    loop.run_late_by(0.002)
    assert lag.since_asked().max_ms == pytest.approx(1)
    assert lag.since_start().max_ms == pytest.approx(499)


def test_each_minute_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    loop = _Loop()
    LoopLag(cast(asyncio.AbstractEventLoop, loop))
    with caplog.at_level(logging.DEBUG, "jesenska.broker.loop_lag"):
        loop.run_late_by(0.041)
        while loop.now < 1000 + 60:
            assert not caplog.messages
            loop.run_late_by(0)
        loop.run_late_by(0)
    assert caplog.messages == ["the event loop was late by p50 0.1 ms, p99 0.1 ms, max 40.0 ms in 60 s"]


def test_a_closed_one_measures_no_more() -> None:
    loop = _Loop()
    LoopLag(cast(asyncio.AbstractEventLoop, loop)).close()
    assert loop.timer is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_at_most_a_bucket_above_the_true_one(times: list[float], part: float) -> None:
    histogram = LagHistogram(0.0)
    for seconds in times:
        histogram.add(seconds)
    true = sorted(times)[max(0, -int(-part * len(times) // 1) - 1)]
    found = histogram.quantile(part)
    assert found >= min(true, max(times))
    assert found <= max(true * 2 ** (1 / 6) * 1.0001, 0.0001) or found == max(times) > 26


def test_a_broker_tells_its_figures_on_sigusr1(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, RawConnection(broker.bootstrap) as connection:
        for _ in range(3):
            connection.ask(
                ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, ApiVersionsResponse
            )
        os.kill(broker.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 20
        while "figures {" not in broker.log:
            assert time.monotonic() < deadline, broker.log
            connection.ask(
                ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, ApiVersionsResponse
            )
        line = next(line for line in broker.log.splitlines() if line.startswith("figures {"))
        figures = json.loads(line.removeprefix("figures "))
        assert figures["connections"] == 1
        assert figures["requests"]["ApiVersions"]["count"] >= 3
        assert figures["loop_lag_ms"]["samples"] <= figures["loop_lag_ms_since_start"]["samples"]
        assert 0 <= figures["loop_lag_ms"]["p50"] <= figures["loop_lag_ms"]["p99"] <= figures["loop_lag_ms"]["max"]
        assert broker.stop() == 0
