"""Changelog topics: they contain the changes of a store, in the format from which Apache Kafka Streams can restore it.

    topic       <application.id>-<store>-changelog, compacted, with a partition for each task of the sub-topology
    record      key and value as Kafka Streams writes them, with the value's timestamp; a null value removes the key

    store       key of the record                                          value
    key-value   the key                                                    the value
    window      the key, the window's start (8 bytes), 0 (4 bytes)         the value
    session     the key, the session's end and start (8 bytes each)        the value

A micro-batch writes each changed key once, with its last value, as Kafka Streams does with a record cache. The changes
are read from the state file, which records the changes of the last micro-batch so that they can be undone. So the
records are the same on every path (engine, direct path, columns path), and in a repeated micro-batch. With
exactly_once_v2 they are written in the transaction of the output. A window that is older than the retention of its
store is not written: the topic deletes it by the topic's own retention.

The stores of `suppress`, of joins of streams and of foreign-key joins have no changelog topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.processor_topology import ProcessorTopology
from jesenska.pipeline.streams.records import SessionWindow
from jesenska.pipeline.streams.serdes.windowed_keys import session_store_key, window_store_key
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark.stores.state_file import ReadOnlyStateFile
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Output, Work, facts_in

_KINDS = ("key-value", "window", "session")
_LONGER = "windowstore.changelog.additional.retention.ms"


def logged_stores(processors: ProcessorTopology, names: Iterable[str], with_logging: bool) -> tuple[str, ...]:
    """Returns the names of the stores that get a changelog topic. With `with_logging`, these are all stores except
    those with logging=False. Without it, only stores with settings for the changelog topic get one."""
    return tuple(name for name in names if _is_logged(processors, processors.stores[name], with_logging))


def _is_logged(processors: ProcessorTopology, store: Store, with_logging: bool) -> bool:
    has_topic = store.kind in _KINDS and not store.retain_duplicates and store.name not in processors.global_stores
    return has_topic and store.logging and (with_logging or bool(store.changelog_config))


def settings_of_topic(store: Store, config: StreamsConfig) -> dict[str, str]:
    """Returns the settings of a store's changelog topic, as in Kafka Streams. The topic keeps windows longer than the
    store, by default one day longer."""
    if store.retention_ms is None:
        settings = {"cleanup.policy": "compact"}
    else:
        settings = {"cleanup.policy": "compact,delete", "retention.ms": str(store.retention_ms + config[_LONGER])}
    return settings | {"message.timestamp.type": "CreateTime"} | dict(store.changelog_config)


def changes(work: Work, names: Iterable[str], directory: Path, partition: int) -> list[Output]:
    """Returns the changes that the last micro-batch made to these stores of a partition, as records of changelog
    topics."""
    path = directory / f"{partition}.state"
    if not path.exists():
        return []
    file = ReadOnlyStateFile(path)
    try:
        facts = facts_in(file)
        found: list[Output] = []
        for name in names:
            store = work.processors.stores[name]
            topic = changelog_topic(work.config.application_id, name)
            observed = facts.get("stores", {}).get(name, (-1,))[0]
            for key, n, m, value, at in file.changed(name):
                # A removed row has no timestamp of its own.
                time = facts.get("stream_time", -1) if value is None else at
                if value is not None or not _is_over(store, n, observed):
                    found.append(Output(topic, partition, key_of(store, key, n, m), value, max(time, 0), ()))
        return found
    finally:
        file.close()


def _is_over(store: Store, n: int, observed_ms: int) -> bool:
    return store.retention_ms is not None and n <= observed_ms - store.retention_ms


def key_of(store: Store, key: bytes, n: int, m: int) -> bytes:
    """Returns the key of the changelog record for a row of the store."""
    match store.kind:
        case "window":
            return window_store_key(key, n)
        case "session":
            return session_store_key(key, SessionWindow(m, n))
        case _:
            return key


def topics_of(
    processors: ProcessorTopology, config: StreamsConfig, names: Iterable[str]
) -> Mapping[str, dict[str, str]]:
    """Returns the names of the changelog topics of these stores, each with the topic's settings."""
    return {
        changelog_topic(config.application_id, name): settings_of_topic(processors.stores[name], config)
        for name in names
    }
