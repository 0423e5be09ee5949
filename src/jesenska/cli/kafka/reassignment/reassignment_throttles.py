"""The replication throttles that kafka-reassign-partitions sets for a reassignment and removes after it (KIP-73).

leader.replication.throttled.rate, follower.replication.throttled.rate     bytes/s, of each broker in the move
leader.replication.throttled.replicas                                      topic: the replicas before the move
follower.replication.throttled.replicas                                    topic: the replicas that are new
replica.alter.log.dirs.io.max.bytes.per.second                             bytes/s between directories of a broker"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, DELETE, TOPIC, ConfigChange
from jesenska.client.administration.reassignment_administration import OngoingReassignment

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class Move(NamedTuple):
    """The brokers that send a partition's records, and the brokers that get them."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_of(
    current: Mapping[TopicPartition, Sequence[int]],
    targets: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, OngoingReassignment],
) -> dict[TopicPartition, Move]:
    """Returns the moves of the ongoing reassignments and of the new targets. `current` has the present replicas of the
    partitions with a new target."""
    found = {
        key: Move(frozenset(item.replicas) - frozenset(item.adding), frozenset(item.adding))
        for key, item in ongoing.items()
    }
    for key, target in targets.items():
        sources = found[key].sources if key in found else frozenset(current[key])
        found[key] = Move(sources, frozenset(target) - sources)
    return found


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Returns the settings of each topic that name the throttled replicas of these moves. Empty lists are left out."""
    by_topic: dict[str, dict[int, Move]] = {}
    for key, move in moves.items():
        by_topic.setdefault(key.topic, {})[key.partition] = move
    found: dict[str, dict[str, str]] = {}
    for name, of_topic in sorted(by_topic.items()):
        leaders = _listed((number, broker_id) for number, move in of_topic.items() for broker_id in move.sources)
        followers = _listed((number, broker_id) for number, move in of_topic.items() for broker_id in move.destinations)
        found[name] = {setting: value for setting, value in ((LEADERS, leaders), (FOLLOWERS, followers)) if value}
    return found


def brokers_in(moves: Mapping[TopicPartition, Move]) -> list[int]:
    """Returns the brokers that send or get records in these moves."""
    return sorted({broker_id for move in moves.values() for broker_id in move.sources | move.destinations})


def _listed(replicas: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{number}:{broker_id}" for number, broker_id in sorted(replicas))


async def throttle(admin: Admin, moves: Mapping[TopicPartition, Move], bytes_per_second: int) -> list[int]:
    """Sets the throttle of these moves at their topics and brokers. Returns the brokers that are not up, which are
    left out."""
    for name, settings in throttled_replicas(moves).items():
        if settings:
            await admin.alter_configs(TOPIC, name, [ConfigChange(*item) for item in settings.items()])
    rate = str(bytes_per_second)
    away: list[int] = []
    for broker_id in brokers_in(moves):
        if broker_id not in admin.cluster.nodes:
            away.append(broker_id)
            continue
        changes = [ConfigChange(name, rate) for name in (LEADER_RATE, FOLLOWER_RATE)]
        await admin.alter_configs(BROKER, str(broker_id), changes)
    return away


async def throttle_directories(admin: Admin, brokers: Collection[int], bytes_per_second: int) -> None:
    """Sets the throttle of moves between the log directories of these brokers."""
    for broker_id in sorted(brokers):
        await admin.alter_configs(BROKER, str(broker_id), [ConfigChange(_DIRECTORY_RATE, str(bytes_per_second))])


async def clear_brokers(admin: Admin, brokers: Collection[int]) -> None:
    """Removes the throttles of these brokers."""
    for broker_id in sorted(brokers):
        changes = [ConfigChange(name, None, DELETE) for name in (LEADER_RATE, FOLLOWER_RATE, _DIRECTORY_RATE)]
        await admin.alter_configs(BROKER, str(broker_id), changes)


async def clear_topics(admin: Admin, topics: Collection[str]) -> None:
    """Removes the throttles of these topics."""
    for name in sorted(topics):
        await admin.alter_configs(TOPIC, name, [ConfigChange(item, None, DELETE) for item in (LEADERS, FOLLOWERS)])
