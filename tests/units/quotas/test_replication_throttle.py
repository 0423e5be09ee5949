"""The limit of the traffic between brokers: its replicas, its rate, and its wait."""

from __future__ import annotations

import pytest

from jesenska.quotas.rate import Windows
from jesenska.quotas.replication_throttle import UNLIMITED, ReplicationThrottle, throttled_partitions

_WINDOWS = Windows(11, 1000)


def _throttle(bytes_per_second: int) -> ReplicationThrottle:
    throttle = ReplicationThrottle(_WINDOWS, {"slow": frozenset((1, 2))}.__getitem__)
    throttle.limit(bytes_per_second)
    return throttle


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        ((), []),
        (("*",), [0, 1, 2, 3]),
        (("0:7", "2:7", "3:8"), [0, 2]),
        (("0:70", "1:17"), []),
        (("",), []),
        (("x:7", "1:x", "1", "-1:7"), []),
    ],
)
def test_a_topic_names_its_throttled_replicas(replicas: tuple[str, ...], throttled: list[int]) -> None:
    found = throttled_partitions(replicas, 7)
    assert [partition for partition in range(4) if partition in found] == throttled


def test_a_throttle_without_a_limit_holds_nothing() -> None:
    throttle = _throttle(UNLIMITED)
    throttle.record(10**12, 0)
    assert not throttle.is_active
    assert not throttle.applies_to("slow", 1)
    assert not throttle.is_exceeded(0)
    assert throttle.wait_ms(0) == 0


def test_only_named_replicas_are_throttled() -> None:
    throttle = _throttle(1000)
    assert [throttle.applies_to("slow", number) for number in range(4)] == [False, True, True, False]


def test_the_limit_is_exceeded_until_the_rate_is_at_the_limit() -> None:
    """As in Kafka the divisor is the time since the oldest sample, and at least one window."""
    throttle = _throttle(1000)
    throttle.record(1000, 0)
    assert not throttle.is_exceeded(0)
    throttle.record(3000, 500)
    assert throttle.is_exceeded(500)
    assert throttle.is_exceeded(3999)
    assert not throttle.is_exceeded(4000)
    assert throttle.wait_ms(2000) == 2000
    assert throttle.wait_ms(4000) == 0


def test_a_limit_of_zero_waits_for_all_samples() -> None:
    throttle = _throttle(0)
    assert not throttle.is_exceeded(0)
    throttle.record(1, 0)
    assert throttle.wait_ms(0) == 11_000
    assert not throttle.is_exceeded(11_000)


def test_a_new_limit_counts_the_bytes_from_before() -> None:
    throttle = _throttle(1000)
    throttle.record(5000, 0)
    throttle.limit(10_000)
    assert not throttle.is_exceeded(0)
    throttle.limit(1000)
    assert throttle.is_exceeded(0)
    throttle.limit(UNLIMITED)
    assert not throttle.is_exceeded(0)
