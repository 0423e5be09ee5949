"""The broker that the demo starts for its own use."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jesenska.base.clock import SystemClock
from jesenska.pipeline.demo.broker import find_or_start


def test_settings_in_the_environment_are_not_those_of_the_demos_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BROKER_ID", "77")
    clock, said = SystemClock(), list[str]()
    broker = find_or_start(tmp_path, clock, time.sleep, said.append)
    broker.stop(clock, time.sleep)
    assert not broker.is_alive()
    assert "broker.id=1\n" in (tmp_path / "broker" / "meta.properties").read_text()
