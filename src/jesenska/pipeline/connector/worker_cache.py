"""The producers and topic settings that a Spark worker process reuses from one writing task to the next.

A micro-batch consists of a few tasks, and a worker process runs many tasks one after the other. A new producer for
each task would cost a request, and would leave a producer id in the brokers' memory and logs. So a task borrows a
producer from this cache of the process. A producer that had a failure is closed and not reused, since its sequence
numbers cannot be continued.

A topic's settings are fetched again after metadata.max.age.ms, and after a failure."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from jesenska.base.errors import (
    ClusterAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import TOPIC
from jesenska.client.producer import Producer
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import SinkOptions

_LIMIT, _FORMAT = "max.message.bytes", "message.format.version"
#: The first release whose record format has headers and idempotent producers.
_FIRST_WITH_BATCHES = (0, 11)

_kept: weakref.WeakKeyDictionary[ClusterThread, WorkerCache] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The limits of a topic that matter to a writer. `max_message_bytes` is None if the client may not describe the
    topic. `old_format` is the topic's message.format.version if it is older than 0.11, else None."""

    max_message_bytes: int | None = None
    old_format: str | None = None


class WorkerCache:
    """The reusable producers and the known topic settings of one connection. `borrow` and `give_back` are called on
    the thread of the event loop."""

    def __init__(self, connection: ClusterThread) -> None:
        self._cluster = connection.cluster
        self._clock = connection.clock
        self._max_age_seconds = connection.options.connections.metadata_max_age_seconds
        self._producers: dict[tuple[object, ...], list[Producer]] = {}
        self._settings: dict[str, tuple[float, TopicSettings]] = {}

    async def borrow(self, options: SinkOptions, idempotent: bool | None) -> Producer:
        """Returns a producer that only the caller uses until `give_back`."""
        idle = self._producers.get(_kind(options, idempotent))
        if idle:
            return idle.pop()
        return Producer(
            self._cluster,
            acks=options.acks,
            enable_idempotence=idempotent,
            max_request_size=options.max_request_size,
            buffer_memory=options.buffer_memory,
            delivery_timeout_seconds=options.delivery_timeout_ms / 1000,
            max_block_seconds=options.delivery_timeout_ms / 1000,
        )

    def give_back(self, producer: Producer, options: SinkOptions, idempotent: bool | None) -> None:
        """Makes a producer available to later tasks. All records of the producer must be acknowledged. A producer with
        unacknowledged records must be closed instead."""
        self._producers.setdefault(_kind(options, idempotent), []).append(producer)

    async def settings_of(self, topic: str) -> TopicSettings:
        known = self._settings.get(topic)
        now = self._clock.monotonic()
        if known is not None and now - known[0] < self._max_age_seconds:
            return known[1]
        try:
            entries = await Admin(self._cluster).describe_configs(TOPIC, topic, [_LIMIT, _FORMAT])
        except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            entries = []  # not allowed to ask: the defaults suit the defaults
        except UnknownTopicOrPartitionError:
            return TopicSettings()  # created this moment, and not known to every broker
        values = {entry.name: entry.value for entry in entries}
        limit = values.get(_LIMIT)
        found = TopicSettings(None if limit is None else int(limit), _old_format(values.get(_FORMAT)))
        self._settings[topic] = (now, found)
        return found

    def forget_settings(self) -> None:
        self._settings.clear()


def cache_of(connection: ClusterThread) -> WorkerCache:
    """Returns the `WorkerCache` of this process for this connection. It is made at the first call and then reused."""
    found = _kept.get(connection)
    if found is None:
        found = _kept[connection] = WorkerCache(connection)
    return found


def _kind(options: SinkOptions, idempotent: bool | None) -> tuple[object, ...]:
    return (options.acks, idempotent, options.max_request_size, options.buffer_memory, options.delivery_timeout_ms)


def _old_format(release: str | None) -> str | None:
    """Returns the release, such as 0.10.2 or 0.9.0-IV0, if its record format is older than record batches. Otherwise
    returns None."""
    if release is None:
        return None
    numbers = release.partition("-")[0].split(".")[:2]
    if all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) < _FIRST_WITH_BATCHES:
        return release
    return None
