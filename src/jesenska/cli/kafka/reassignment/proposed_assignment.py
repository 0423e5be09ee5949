"""The assignment that kafka-reassign-partitions --generate proposes. The functions are pure; chance comes in as an
argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jesenska.base.errors import InvalidReplicationFactorError, JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.plans.assignment import BrokerPlace, assign_replicas

_DIGITS_MAX = 10


def read_brokers(text: str) -> list[int]:
    """Returns the broker ids of --broker-list. Raises JesenskaError with one sentence for another form, and for a
    broker that is named twice."""
    brokers: list[int] = []
    for item in text.split(","):
        word = item.strip()
        if not (word.isascii() and word.isdigit() and len(word) <= _DIGITS_MAX):
            raise JesenskaError(f"--broker-list {text} has {word!r}, which is not a broker id: write 1,2,3.")
        brokers.append(int(word))
    twice = sorted({broker_id for broker_id in brokers if brokers.count(broker_id) > 1})
    if twice:
        raise JesenskaError(
            f"Broker list contains duplicate entries: {', '.join(map(str, twice))}: name each broker once."
        )
    return brokers


def places_of(brokers: Sequence[int], racks: Mapping[int, str | None], *, ignores_racks: bool) -> list[BrokerPlace]:
    """Returns the places of these brokers. `racks` has all brokers of the cluster. Raises JesenskaError if a broker is
    not in the cluster, or if only some of the brokers have racks."""
    unknown = [broker_id for broker_id in brokers if broker_id not in racks]
    if unknown:
        raise JesenskaError(
            f"Unknown broker id {unknown[0]}: the brokers of the cluster are {', '.join(map(str, sorted(racks)))}."
        )
    if ignores_racks:
        return [BrokerPlace(broker_id) for broker_id in brokers]
    places = [BrokerPlace(broker_id, racks[broker_id]) for broker_id in brokers]
    if len({place.rack is None for place in places}) > 1:
        raise JesenskaError("Not all of these brokers have rack information: add --disable-rack-aware to ignore racks.")
    return places


def proposed(
    current: Mapping[TopicPartition, Sequence[int]], places: Sequence[BrokerPlace], chance: Callable[[int], int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns an assignment of these partitions to the brokers of `places`, topic by topic. Each topic keeps the
    number of replicas of its first partition. `chance(n)` returns a number from 0 to n - 1. Raises
    InvalidReplicationFactorError if there are fewer brokers than replicas."""
    by_topic: dict[str, dict[int, Sequence[int]]] = {}
    for key in sorted(current):
        by_topic.setdefault(key.topic, {})[key.partition] = current[key]
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for name, partitions in by_topic.items():
        factor = len(next(iter(partitions.values())))
        if factor > len(places):
            raise InvalidReplicationFactorError(
                f"Replication factor: {factor} larger than available brokers: {len(places)}: name {factor} brokers for "
                f"topic {name}."
            )
        assigned = assign_replicas(
            places, len(partitions), factor, start_index=chance(len(places)), shift=chance(len(places))
        )
        found |= {
            TopicPartition(name, number): replicas
            for number, replicas in zip(partitions, assigned.values(), strict=True)
        }
    return found
