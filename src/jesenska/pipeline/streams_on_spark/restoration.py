"""State that is gone, made anew from changelog topics (changelogs.py).

An application with changelog topics notes so beside its state:

    <state.dir>/<application.id>/changelogs     "begun": the topics were new when the state began
                                                "restored": the state was made of them

Where the note is missing and no query has run, the state is made anew: each store from its changelog topic, and the
queries begin at the offsets of the group. That is done where all topics are there and the group has offsets, and
else the application begins as any new one. The note is written at the end, so what a crash has left is done again.

While Kafka Streams runs with the same application.id, the application is refused: both would count.

Restored are the rows of stores and what follows from them: the time that a store has observed. Not restored is what
has no changelog topic. So an application with a store that has none is refused.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.cluster_thread import ClusterThread
from jesenska.pipeline.options import source_options
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark import application_topics
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import SubTopology, tasks_of
from jesenska.pipeline.streams_on_spark.partition_task import FACTS
from jesenska.pipeline.streams_on_spark.state_file import StateFile

_BEGUN, _RESTORED = "begun", "restored"
#: The version of a state before the first micro-batch.
_BEFORE = -1
_ORDERS = {"key-value": "", "window": "n, a, m", "session": "n, a, m"}


def restore(application: Application, connection: ClusterThread, there: Mapping[str, int], counts: Mapping[str, int]) -> Mapping[TopicPartition, int] | None:
    """Makes the state anew, if it is gone. `there` are the topics before the application made its own, `counts` all of
    them. Gives the offsets at which queries without a checkpoint begin; None if that is for others to say."""
    note = application.directory / "changelogs"
    known = note.read_text() if note.exists() else None
    has_run = any(any(directory.iterdir()) for directory in application.directory.glob("*/checkpoint/commits"))
    if not application.has_changelogs:
        if known is not None:
            raise StreamsError(
                f"the state in {application.directory} is in changelog topics as well, and they would fall behind: run with with_logging=True, "
                "or begin anew with kafka-streams-application-reset."
            )
        return None
    if application_topics.has_members(connection, application.id):
        raise StreamsError(
            f"the group {application.id} has members, so Kafka Streams runs with this application.id: close it, and start again when its members have left, "
            "which may take its session.timeout.ms."
        )
    if known is None and has_run:
        raise StreamsError(
            f"the state in {application.directory} was made without changelog topics, so they would lack what it has: leave with_logging out, "
            "or begin anew with kafka-streams-application-reset."
        )
    offsets = application_topics.offsets_of_group(connection, application.id)
    if known is None:
        logged = [(part, name) for part in application.parts for name in application.logged_stores(part)]
        is_gone = bool(offsets) and all(changelog_topic(application.id, name) in there for _, name in logged)
        if is_gone:
            _check(application)
            for part in application.parts:
                _restore_part(application, part, connection, counts)
        known = _RESTORED if is_gone else _BEGUN
        new = note.with_suffix(".new")
        new.write_text(known)
        new.rename(note)
    return offsets if known == _RESTORED else None


def _check(application: Application) -> None:
    for part in application.parts:
        for name in () if part.is_global else part.stores:
            if name not in application.logged_stores(part):
                raise StreamsError(
                    f"the state of {application.id} is gone and cannot be restored, since the store {name} has no changelog topic: put {application.directory} "
                    "back, or begin anew with kafka-streams-application-reset."
                )


def _restore_part(application: Application, part: SubTopology, connection: ClusterThread, counts: Mapping[str, int]) -> None:
    directory = application.directory / str(part.number) / "stores"
    names = application.logged_stores(part)
    if not names:
        return
    shutil.rmtree(directory, ignore_errors=True)
    topics = {changelog_topic(application.id, name): application.topology.processors.stores[name] for name in names}
    places = application_topics.bounds(connection, topics, {**dict.fromkeys(topics, tasks_of(part, counts))})
    for partition in range(tasks_of(part, counts)):
        mine = {(topic, number): (first, end) for topic, number, first, end in places if number == partition and first < end}
        restore_partition(directory / f"{partition}.state", topics, _records(application, mine))


def _records(application: Application, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Iterator[RawRecord]:
    from jesenska.pipeline.streams_on_spark.spark_task import read_ranges

    if ranges:
        options = {**application.consumer_options(), "subscribe": ",".join(topic for topic, _ in ranges)}
        yield from read_ranges(source_options(options, streaming=False), ranges)


def restore_partition(path: Path, stores: Mapping[str, Store], records: Iterator[RawRecord]) -> None:
    """A state file from the records of its changelogs, in the order of each."""
    with StateFile(path, _BEFORE) as file:
        tables = {topic: file.table(store.name, _ORDERS[store.kind]) for topic, store in stores.items()}
        observed = dict.fromkeys(stores, -1)
        latest = -1
        for record in records:
            store = stores[record.topic]
            key, n, m = _row(store, record)
            observed[record.topic] = max(observed[record.topic], n)
            latest = max(latest, record.timestamp)
            if record.value is None:
                tables[record.topic].remove(key, n, m)
            else:
                tables[record.topic].put(key, n, m, record.value, record.timestamp)
        kept = {}
        for topic, store in stores.items():
            if store.retention_ms is not None:
                tables[topic].remove_below(observed[topic] - store.retention_ms + 1)
                kept[store.name] = [observed[topic], 0] if store.kind == "window" else [observed[topic]]
        file.set_meta(FACTS, json.dumps({"stream_time": latest, "partition_times": {}, "stores": kept, "operators": {}}))


def _row(store: Store, record: RawRecord) -> tuple[bytes, int, int]:
    try:
        if record.key is None:
            raise ValueError
        return row_of(store, record.key)
    except (ValueError, struct.error) as error:
        raise StreamsError(
            f"{record.topic}-{record.partition} has a record at offset {record.offset} that no application of streams has written there: "
            "begin anew with kafka-streams-application-reset, or put the state back."
        ) from error


def row_of(store: Store, key: bytes) -> tuple[bytes, int, int]:
    """The key of a changelog record as the key of a row."""
    match store.kind:
        case "window":
            (start,) = struct.unpack(">q", key[-12:-4])
            return key[:-12], start, 0
        case "session":
            end, start = struct.unpack(">qq", key[-16:])
            return key[:-16], end, start
        case _:
            return key, 0, 0
