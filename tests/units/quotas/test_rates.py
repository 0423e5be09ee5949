"""The arithmetic of quotas. The figures are those of Apache Kafka's own tests and of its formula (KIP-219,
KIP-599)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.quotas.rate import Rate, Windows
from jesenska.quotas.token_bucket import TokenBucket

_WINDOWS = Windows(11, 1000)


def test_a_client_waits_until_its_rate_is_the_quota() -> None:
    """Ten windows of 400, half a window later a burst of 2300: 6300 in 10.5 s are 600 a second, a fifth of 500 above
    it."""
    rate = Rate(_WINDOWS)
    for second in range(10):
        rate.record(400, second * 1000)
        assert rate.throttle_ms(500, second * 1000) == 0
    rate.record(2300, 10_500)
    assert rate.value(10_500) == 600.0
    assert rate.throttle_ms(500, 10_500) == 2100
    # It is still above the quota: the next record begins a window, from which the rate is measured again.
    rate.record(0, 11_500)
    assert 0 < rate.throttle_ms(500, 11_500) < 2100


def test_a_first_burst_counts_as_if_it_were_over_ten_windows() -> None:
    rate = Rate(_WINDOWS)
    rate.record(10_000, 0)
    assert rate.value(0) == 1000.0
    assert rate.throttle_ms(1000, 0) == 0
    assert rate.throttle_ms(500, 0) == 10_000


def test_old_samples_are_dropped() -> None:
    rate = Rate(_WINDOWS)
    rate.record(1000, 0)
    assert rate.value(10_999) > 0
    assert rate.value(11_000) == 0.0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(_WINDOWS)
    rate.record(5000, 0)
    rate.record(-5000, 0)
    assert rate.throttle_ms(1, 0) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 100_000)), min_size=1, max_size=60))
def test_a_client_that_waits_stays_at_its_quota(steps: list[tuple[int, int]]) -> None:
    """After each record it waits as told, and then a bit: over the whole time it is not above the quota by more than
    one record and what ten windows allow."""
    quota, now, total = 1000.0, 0, 0
    rate = Rate(_WINDOWS)
    for pause, amount in steps:
        now += pause
        rate.record(amount, now)
        total += amount
        now += rate.throttle_ms(quota, now)
        assert total <= quota * now / 1000 + 100_000 + quota * 11


def test_a_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, _WINDOWS, 0)
    bucket.take(110, 0)
    assert bucket.throttle_ms(0) == 0
    bucket.take(30, 0)
    assert bucket.throttle_ms(0) == 3000
    assert bucket.throttle_ms(2999) == 0 or bucket.throttle_ms(2999) == 1
    assert bucket.throttle_ms(3000) == 0
    assert not bucket.is_full(3000)
    assert bucket.is_full(3000 + 11_000)


def test_a_smaller_quota_takes_the_tokens_above_its_burst() -> None:
    bucket = TokenBucket(10.0, _WINDOWS, 0)
    bucket.change(1.0, 0)
    bucket.take(12, 0)
    assert bucket.throttle_ms(0) == pytest.approx(1000)
