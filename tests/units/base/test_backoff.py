"""Pauses that grow."""

from __future__ import annotations

import pytest

from jesenska.base.backoff import Backoff


def _varied(failures: int, *, is_shortened: bool = False, is_first_at_once: bool = False) -> list[float]:
    chances = iter((0.0, 0.5, 1.0))
    backoff = Backoff(0.1, 1.0, chances.__next__, is_shortened=is_shortened, is_first_at_once=is_first_at_once)
    return [backoff.seconds(failures) for _ in range(3)]


def test_each_failure_doubles_the_time_give_or_take_a_fifth_up_to_the_limit() -> None:
    for failures, plain in ((0, 0.1), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8)):
        assert _varied(failures) == pytest.approx([plain * 0.8, plain, min(plain * 1.2, 1.0)])
    assert {Backoff(0.1, 1.0, lambda: 0.0).seconds(failures) for failures in (6, 60, 10**9)} == {1.0}


def test_a_shortened_time_is_at_least_half_of_itself_at_the_limit_too() -> None:
    for failures, plain in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10**9, 1.0)):
        assert _varied(failures, is_shortened=True) == pytest.approx([plain / 2, plain * 0.75, plain])


def test_the_first_failure_may_have_no_pause() -> None:
    for failures, plain in ((0, 0.0), (1, 0.0), (2, 0.1), (3, 0.2)):
        assert _varied(failures, is_first_at_once=True)[1] == pytest.approx(plain)


def test_a_number_is_drawn_for_each_pause_even_for_none() -> None:
    drawn: list[float] = []

    def chance() -> float:
        drawn.append(0.5)
        return 0.5

    backoff = Backoff(0.1, 1.0, chance, is_first_at_once=True)
    for failures in (1, 2, 50):
        backoff.seconds(failures)
    assert len(drawn) == 3


def test_without_chance_the_time_is_the_same_each_time() -> None:
    backoff = Backoff(0.02, 0.3)
    assert [backoff.milliseconds(failures) for failures in range(1, 7)] == [20, 40, 80, 160, 300, 300]


def test_a_first_time_above_the_limit_is_the_limit() -> None:
    assert Backoff(5.0, 0.5, lambda: 0.5).seconds(1) == 0.5
    assert Backoff(0.0, 0.5, lambda: 0.5).seconds(9) == 0.0
