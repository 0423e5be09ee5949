"""The way of a produce and of a fetch through the broker is as described in
docs/design/way-of-a-request.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_HOPS_MAX = 20


def hops(request: str) -> list[tuple[str, str]]:
    """The functions of a table, in order: file (or the beginning of its name) and name."""
    text = (_ROOT / "docs" / "design" / "way-of-a-request.md").read_text()
    table = text[text.index(f"| {request} | |\n") :].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` `([^`]+)` \|", table, re.MULTILINE)


@pytest.fixture(scope="module")
def trace() -> list[list[str]]:
    environment = {**os.environ, "JESENSKA_PURE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.processes.broker.trace_of_requests"],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("request_name", ["produce", "fetch"])
def test_a_request_goes_the_way_that_is_written_down(request_name: str, trace: list[list[str]]) -> None:
    way = hops(request_name)
    assert 10 <= len(way) <= _HOPS_MAX
    calls = iter([(file, function) for name, file, function in trace if name == request_name])
    for file, function in way:
        assert any(called.startswith(file) and name == function for called, name in calls), (
            f"{file} {function} is not next"
        )
