"""The peers: in CI (JESENSKA_PEERS=required) a missing one fails the run, elsewhere it is skipped and listed at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.peers.judge import Judge

RELEASES = ("3.9.1", "4.3.1")


def need(*programs: str) -> None:
    """Skips, or fails in CI, unless every program is there."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        sentence = f"{', '.join(missing)} not installed"
        if os.environ.get("JESENSKA_PEERS") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence)


@pytest.fixture(scope="session")
def judge_3() -> Iterator[Judge]:
    need("java", "mvn")
    with Judge("3.9.1") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_4() -> Iterator[Judge]:
    need("java", "mvn")
    with Judge("4.3.1") as judge:
        yield judge


@pytest.fixture(scope="session", params=RELEASES)
def judge(request: pytest.FixtureRequest) -> Judge:
    """Each release's classes in turn."""
    found: Judge = request.getfixturevalue("judge_3" if request.param == "3.9.1" else "judge_4")
    return found
