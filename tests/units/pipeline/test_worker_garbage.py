"""A worker's modules are left out of the search for garbage, once."""

from __future__ import annotations

import gc
import os

import pytest

from jesenska.pipeline.spark import worker_garbage


def test_modules_are_left_out_from_the_second_task_on_and_in_each_process_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    process = [1]
    monkeypatch.setattr(worker_garbage, "_seen", {})
    monkeypatch.setattr(os, "getpid", lambda: process[0])
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(process[0]))
    for number in (1, 1, 1, 2, 2, 2):
        process[0] = number
        worker_garbage.leave_modules_out()
    assert frozen == [1, 2]


def test_what_comes_later_is_collected_as_ever() -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    gc.collect()
    gc.freeze()
    try:
        Circle()
        assert gc.collect() > 0
    finally:
        gc.unfreeze()
