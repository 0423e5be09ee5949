"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

_P = ParamSpec("_P")


def on_a_loop(scenario: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """A test that runs a scenario on an event loop of its own."""

    @wraps(scenario)
    def test(*arguments: _P.args, **named: _P.kwargs) -> None:
        asyncio.run(scenario(*arguments, **named))

    return test
