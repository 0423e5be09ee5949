"""The times of a server's garbage collections, and the objects that they check."""

from __future__ import annotations

import asyncio
import gc

import pytest

from jesenska.cli.shared.memory import Memory
from tests.on_a_loop import on_a_loop


@on_a_loop
async def test_many_objects_that_stay_do_not_have_everything_looked_at() -> None:
    looks: list[int] = []

    def heard(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looks.append(about["generation"])

    before, kept = gc.get_threshold(), []
    try:
        Memory().keep_small(asyncio.get_running_loop(), 100)
        gc.callbacks.append(heard)
        kept += [[number] for number in range(200_000)]
    finally:
        if heard in gc.callbacks:
            gc.callbacks.remove(heard)
        gc.set_threshold(*before)
    assert len(kept) == 200_000
    assert 1 in looks
    assert 2 not in looks


@on_a_loop
async def test_cycles_that_are_old_are_found_in_a_server_where_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jesenska.cli.shared.memory._CLEAN_SECONDS", 0.01)
    monkeypatch.setattr("jesenska.cli.shared.memory._CLEAN_SHARE", 1.0)
    looks: list[int] = []

    def heard(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looks.append(about["generation"])

    before = gc.get_threshold()
    try:
        gc.callbacks.append(heard)
        Memory().keep_small(asyncio.get_running_loop(), 1_000_000)
        while looks.count(2) < 3:
            await asyncio.sleep(0.01)
    finally:
        gc.callbacks.remove(heard)
        gc.set_threshold(*before)
