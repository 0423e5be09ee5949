"""One test, both twins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.units.records.twins import TWINS, using


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(request.param):
        yield request.param
