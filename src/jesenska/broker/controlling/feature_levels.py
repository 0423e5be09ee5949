"""Decides if the level of a feature (such as transaction.version) may be changed by UpdateFeatures. The error messages
are the messages of Apache Kafka 4.3.1.

A feature that is not in use has level 0. A broker offers all levels from 0 up to its highest level. A broker that does
not name a feature offers only level 0. An upgrade raises the level, a downgrade lowers it. Safe and unsafe downgrades
are treated alike, because no feature of this software loses data when its level is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Way(IntEnum):
    """The kind of a change to a feature's level, by its number in the UpdateFeatures request."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Update:
    feature: str
    level: int
    #: The kind of the change: a number of `Way`, or an unknown number.
    way: int


def refusal(update: Update, current: Mapping[str, int], offered: Mapping[str, Mapping[int, int]]) -> str | None:
    """Returns the reason why the update is refused, or None if it is accepted. `current` has the level of each feature
    that this software knows. `offered` has the highest level of each of these features that each broker offers."""
    why = _why(update, current.get(update.feature), offered.get(update.feature, {}))
    if why is None:
        return None
    return f"Invalid update version {update.level} for feature {update.feature}. {why}"


def _why(update: Update, level: int | None, offered: Mapping[int, int]) -> str | None:
    if update.way not in list(Way):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if level is None:
        return (
            "The controller does not support this feature." if update.level else f"Feature {update.feature} not found."
        )
    for broker_id, highest in sorted(offered.items()):
        if update.level > highest:
            return (
                f"Broker {broker_id} only supports versions 0-{highest}"
                if highest
                else f"Broker {broker_id} does not support this feature."
            )
    if update.level < level and update.way == Way.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.level > level and update.way != Way.UPGRADE:
        return "Can't downgrade to a newer version."
    return None
