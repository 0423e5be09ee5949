"""Fixtures that several rooms' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.testing import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that neither stop it nor change its settings; each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
