"""Which levels a feature may have. Answers are Apache Kafka 4.3.1's."""

from __future__ import annotations

import pytest

from jesenska.broker.controlling.feature_levels import Update, Way, refusal

_UP, _DOWN, _UNSAFE = Way.UPGRADE, Way.SAFE_DOWNGRADE, Way.UNSAFE_DOWNGRADE
_NO_WAY = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


@pytest.mark.parametrize(
    ("current", "level", "way", "why"),
    [
        (2, 2, _UP, None),
        (1, 2, _UP, None),
        (0, 2, _UP, None),
        (2, 1, _UP, _NO_WAY),
        (2, 0, _UP, _NO_WAY),
        (2, 1, _DOWN, None),
        (2, 0, _UNSAFE, None),
        (1, 1, _DOWN, None),
        (1, 2, _DOWN, "Can't downgrade to a newer version."),
        (0, 1, _UNSAFE, "Can't downgrade to a newer version."),
        (2, 5, _UP, "Broker 1 only supports versions 0-2"),
        (2, -1, _UP, "A feature version cannot be less than 0."),
        (2, -1, _DOWN, "A feature version cannot be less than 0."),
        (2, 1, 0, "The controller does not support the given upgrade type."),
        (2, 1, 7, "The controller does not support the given upgrade type."),
        (2, 2, -3, "The controller does not support the given upgrade type."),
    ],
)
def test_a_level_is_changed_or_refused_as_apache_kafka_does(
    current: int, level: int, way: int, why: str | None
) -> None:
    found = refusal(Update("f", level, way), {"f": current}, {"f": {1: 2}})
    assert found == (None if why is None else f"Invalid update version {level} for feature f. {why}")


def test_a_feature_that_is_not_known_is_refused() -> None:
    assert (
        refusal(Update("nope", 1, _UP), {"f": 2}, {"f": {1: 2}})
        == "Invalid update version 1 for feature nope. The controller does not support this feature."
    )
    assert (
        refusal(Update("nope", 0, _DOWN), {"f": 2}, {"f": {1: 2}})
        == "Invalid update version 0 for feature nope. Feature nope not found."
    )


def test_each_broker_must_offer_the_level() -> None:
    offered = {"f": {1: 2, 2: 1, 3: 0}}
    assert (
        refusal(Update("f", 1, _UP), {"f": 0}, offered)
        == "Invalid update version 1 for feature f. Broker 3 does not support this feature."
    )
    assert (
        refusal(Update("f", 2, _UP), {"f": 0}, {"f": {1: 2, 2: 1}})
        == "Invalid update version 2 for feature f. Broker 2 only supports versions 0-1"
    )
    assert refusal(Update("f", 0, _DOWN), {"f": 0}, offered) is None
