"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from jesenska.base.source_only import source_is_asked_for
from jesenska.testing import BrokerProcess
from tests.compiled_modules import changed_after_it_was_compiled
from tests.peers.apache_kafka import SHORT_RUN
from tests.profiles import EVERYTHING, EXAMPLES, profile
from tests.tiers import select

#: How long a test may take that says nothing of its own, where each does as much as it can.
_LONG_SECONDS = 4 * 3600.0

# How long an example takes says nothing on a busy machine. What is not said here is as Hypothesis has it, in CI or for
# a person.
for _name, _count in EXAMPLES.items():
    settings.register_profile(_name, settings.default, deadline=None, max_examples=_count)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that neither stop it nor change its settings; each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    """Tests of a module that was changed after it was compiled would test what it was before. No JVM of the tests runs
    long enough for Java's second compiler to pay."""
    try:
        asked = profile()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    settings.load_profile(asked)
    if asked == EVERYTHING and config.getoption("timeout", None) is None:
        config.option.timeout = _LONG_SECONDS
    os.environ.setdefault("PEERS_JAVA_OPTIONS", SHORT_RUN)
    os.environ.setdefault("PEERS_CLASS_ARCHIVE", "1")
    if source_is_asked_for():
        return
    source = changed_after_it_was_compiled()
    if source is not None:
        raise pytest.UsageError(
            f"{source} was changed after it was compiled: run script/setup test, or work on the source with "
            f"JESENSKA_PURE=1."
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    select(config, items)
