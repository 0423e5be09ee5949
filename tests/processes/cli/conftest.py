"""Tools run inside the test's process, against the session's broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from jesenska.testing import BrokerProcess
from tests.tool_modules import module_of_tool

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
    """Runs a tool. Returns the exit code and the output on stdout and stderr."""

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
    """The fixture `tool` with the address of the session's broker."""

    def run(main: Main, *arguments: str) -> Result:
        return tool(main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run


@pytest.fixture(scope="session")
def fast_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose groups do not wait for further members before their first generation."""
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=settings) as running:
        yield running


def heed_signals() -> None:
    """Restores signals, for `preexec_fn`: a test run in the background starts with SIGINT ignored, and one under nohup
    with SIGHUP ignored, which a child would inherit."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def tool_process(broker: BrokerProcess, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A tool in a process of its own, for a broker."""
    with process_of(name, "--bootstrap-server", broker.bootstrap, *arguments) as process:
        yield process


@contextmanager
def process_of(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A tool in a process of its own, which always ends with the block."""
    command = [sys.executable, "-m", module_of_tool(name), *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_signals
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
