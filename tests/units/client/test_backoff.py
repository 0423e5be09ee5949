"""Pauses that grow."""

from __future__ import annotations

import pytest

from jesenska.client.backoff import Backoff


def test_each_failure_doubles_the_time_give_or_take_a_fifth_up_to_the_limit() -> None:
    backoff = Backoff(0.1, 1.0)
    for failures, plain in ((0, 0.1), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8)):
        assert [backoff.seconds(failures, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx(
            [plain * 0.8, plain, min(plain * 1.2, 1.0)]
        )
    assert {backoff.seconds(failures, 0.0) for failures in (6, 60, 10**9)} == {1.0}


def test_a_first_time_above_the_limit_is_the_limit() -> None:
    assert Backoff(5.0, 0.5).seconds(1, 0.5) == 0.5
    assert Backoff(0.0, 0.5).seconds(9, 0.5) == 0.0
