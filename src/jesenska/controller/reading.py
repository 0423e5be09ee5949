"""Reads the content of the metadata tree (ZooKeeper's nodes) through a store: the whole tree, one topic, or the
settings of one entity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from jesenska.controller.context import ConfigView, ControllerContext, PartitionView, TopicView
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    PartitionStateNode,
    TopicNode,
    decode_config,
    decode_controller_epoch,
)
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NoNodeError

T = TypeVar("T")


async def load(store: Store, *, at_once: int = 10) -> ControllerContext:
    """Returns the whole content of the metadata tree, read with `at_once` requests in flight. A node that is deleted
    during the read is left out."""
    view = ControllerContext()
    deleting = set(await _children(store, paths.DELETE_TOPICS))
    names = await _children(store, paths.TOPICS)
    for topic in await in_flight(
        [partial(load_topic, store, name, deleting=name in deleting, at_once=at_once) for name in names], at_once
    ):
        if topic is not None:
            view.topics[topic.name] = topic
    for name in await _children(store, paths.BROKER_IDS):
        found = await _get(store, f"{paths.BROKER_IDS}/{name}")
        if found is not None:
            view.brokers[int(name)] = BrokerRegistration.decode(found[0])
    for entity in await entities(store):
        config = await load_config(store, entity)
        if config is not None:
            view.configs[entity] = config
    epoch = await _get(store, paths.CONTROLLER_EPOCH)
    if epoch is not None:
        view.controller_epoch, view.controller_epoch_version = decode_controller_epoch(epoch[0]), epoch[1]
    return view


async def load_topic(store: Store, name: str, *, deleting: bool = False, at_once: int = 10) -> TopicView | None:
    """Returns one topic, or None if it is deleted."""
    found = await _get(store, paths.topic(name))
    if found is None:
        return None
    numbers = [
        int(number)
        for number in await _children(store, paths.partitions(name))
        if number.isascii() and number.isdigit()
    ]
    states = await in_flight([partial(_get, store, paths.partition_state(name, number)) for number in numbers], at_once)
    partitions = {
        number: PartitionView(PartitionStateNode.decode(state[0]), state[1])
        for number, state in zip(numbers, states, strict=True)
        if state is not None
    }
    return TopicView(name, TopicNode.decode(found[0]), found[1], partitions, deleting)


async def entities(store: Store) -> list[str]:
    """Returns all entities that have settings: `topics/<name>`, `brokers/<id>`, `users/<name>`,
    `users/<name>/clients/<name>`, `clients/<name>`, `ips/<address>`."""
    found = [
        f"{kind}/{name}"
        for kind in (*paths.ENTITY_KINDS, *paths.CLIENT_KINDS)
        for name in await _children(store, f"{paths.CONFIG}/{kind}")
    ]
    for user in [entity for entity in found if entity.startswith("users/")]:
        found += [f"{user}/clients/{name}" for name in await _children(store, f"{paths.CONFIG}/{user}/clients")]
    return found


async def load_config(store: Store, entity: str) -> ConfigView | None:
    """Returns the settings of one entity, or None if the entity has no settings."""
    found = await _get(store, f"{paths.CONFIG}/{entity}")
    return None if found is None else ConfigView(decode_config(found[0]), found[1])


async def in_flight(asked: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Awaits these calls, at most `at_once` at the same time. Returns their results, in order."""
    answers: list[T] = []
    for start in range(0, len(asked), at_once):
        answers += await asyncio.gather(*(ask() for ask in asked[start : start + at_once]))
    return answers


async def _children(store: Store, path: str) -> list[str]:
    try:
        return (await store.children(path))[0]
    except NoNodeError:
        return []


async def _get(store: Store, path: str) -> tuple[bytes, int] | None:
    try:
        data, stat = await store.get(path)
    except NoNodeError:
        return None
    return data, stat.version
