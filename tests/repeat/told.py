"""A plugin of pytest that writes down what comes of each test, a JSON object a line, in the file that
JESENSKA_REPEAT_TOLD names:

    {"begun": "tests/units/log/test_files.py::test_a"}
    {"test": "tests/units/log/test_files.py::test_a", "outcome": "passed"}        or "skipped"
    {"test": ..., "outcome": "failed", "text": ...}                         what pytest says of the failure

A test that has begun and of which nothing more is told was under way when the process ended. Where the process is held
back, its plan begins anew with each test, so that a test is disturbed in the same way when it runs alone.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.repeat import hold_back

TOLD = "JESENSKA_REPEAT_TOLD"
_failed: dict[str, str] = {}
_skipped: set[str] = set()


def _tell(**what: str) -> None:
    with open(os.environ[TOLD], "a") as file:
        file.write(json.dumps(what) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(begun=nodeid)
    if hold_back.plan is not None:
        hold_back.plan.begin(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = _failed.get(report.nodeid, "") + _text(report)
    elif report.skipped:
        _skipped.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    if nodeid in _failed:
        _tell(test=nodeid, outcome="failed", text=_failed[nodeid])
    else:
        _tell(test=nodeid, outcome="skipped" if nodeid in _skipped else "passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _tell(test=report.nodeid, outcome="failed", text=_text(report))


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    captured = "".join(f"\n----- {name}\n{text}" for name, text in report.sections)
    return f"{report.longreprtext}{captured}\n"
