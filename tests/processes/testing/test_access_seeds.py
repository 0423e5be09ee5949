"""No seed of the simulator lets a user do what no ACL allows, while passwords, ACLs and brokers change."""

from __future__ import annotations

import pytest

from tests.processes.testing.many_seeds import TIMEOUT_SECONDS, run_seeds
from tests.profiles import rounds

_SEEDS = rounds(quick=1, ci=40, everything=400)


@pytest.mark.seeds
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_nobody_may_do_what_no_acl_allows_under_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(3, _SEEDS, capsys, "--access") == ""
