"""Tests below this directory start no process: `script/test quick` runs them in seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"))


class _Guard:
    """A hook that checks each call that starts a process. Python keeps such a hook until it ends."""

    def __init__(self) -> None:
        self.is_on = False
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event in _STARTS:
            raise RuntimeError(f"a test below tests/units starts a process ({event}): it belongs below tests/processes")


_guard = _Guard()


@pytest.fixture(autouse=True)
def _no_process() -> Iterator[None]:
    _guard.is_on = True
    yield
    _guard.is_on = False


@pytest.fixture(scope="session")
def broker() -> None:
    """Raises an error: there is no broker for unit tests."""
    raise RuntimeError("a test below tests/units needs a broker's process: it belongs below tests/processes")
