"""Tools run inside the test's process, against the session's broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest

from jesenska.testing import BrokerProcess

Main = Callable[[Sequence[str] | None], int]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Tool(Protocol):
    def __call__(self, main: Main, *arguments: str) -> Result: ...


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs a tool; the exit code, and what it wrote on stdout and stderr."""

    def run(main: Main, *arguments: str) -> Result:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def at(tool: Tool, broker: BrokerProcess) -> Tool:
    """As `tool`, with the session's broker named."""

    def run(main: Main, *arguments: str) -> Result:
        return tool(main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run
