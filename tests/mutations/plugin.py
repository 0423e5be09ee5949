"""What pytest does otherwise where a mutation is tried: tests that take the least time come first, and a test of
Hypothesis stops at the first example that fails. Without a file of times it writes one.

Memory is limited: a loop without an end must not take all that the machine has.
"""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from hypothesis import Phase, settings

_MEMORY_MAX_BYTES = 4 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, required=True, help="A file with the seconds that each test takes.")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Where a child process of a test has a lower limit, it stays.
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY and soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))
    settings.register_profile(
        "mutations", settings.default, database=None, phases=(Phase.explicit, Phase.generate), print_blob=False
    )
    settings.load_profile("mutations")
    config.pluginmanager.register(_Times(config.getoption("--times")))


class _Times:
    """The seconds of each test, read or written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, float] | None = json.loads(path.read_text()) if path.exists() else None
        self._taken: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = self._known
        if known is not None:
            items.sort(key=lambda item: known.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[report.nodeid] = self._taken.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        if self._known is None:
            self._path.write_text(json.dumps(self._taken))
