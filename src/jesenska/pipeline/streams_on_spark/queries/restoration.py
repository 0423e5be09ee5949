"""Restores lost state from changelog topics (changelogs.py).

Two files in the state directory record whether and from which offsets the state was restored:

    <state.dir>/<application.id>/changelogs     "begun": the changelog topics were new when the state began
                                                "restored": the state was restored from the changelog topics
                                                "none": the application has no changelog topics
                                 begin          the offsets at which queries without a checkpoint begin, if the state
                                                was lost before: {"topic": {"partition": offset}}

If no query has run with the state directory, and the consumer group has offsets that belong to a state
(group_offsets.py), that state is lost:

    all stores have changelog topics that exist         the state is restored; the queries begin at the group's offsets
    there are no stores                                 nothing is restored; the queries begin at the group's offsets
    otherwise                                           the application is refused: if it began at the earliest
                                                        offsets, it would count records twice

If the group has no such offsets, the application begins as a new application. But if its internal topics have records,
it is refused: then the group was deleted, or its offsets have expired, and nothing tells which records were counted.
The file `changelogs` is written at the end, so after a crash the restoration is repeated.

The application is refused while Kafka Streams runs with the same application.id, since both would count records. It is
also refused if another state has continued since, or if a checkpoint does not belong to the state (checkpoints.py).

The rows of stores are restored, and each store's largest window start or session end, which follows from the rows.
Stores without a changelog topic are not restored."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.connector.planning import from_tree, to_tree
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark import application_topics
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import SubTopology, tasks_of
from jesenska.pipeline.streams_on_spark.queries import checkpoints, group_offsets
from jesenska.pipeline.streams_on_spark.queries.group_offsets import GroupOffsets
from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile
from jesenska.pipeline.streams_on_spark.tasks.partition_task import FACTS

_BEGUN, _RESTORED, _NONE = "begun", "restored", "none"
#: The version of a state file before the first micro-batch.
_BEFORE = -1
_ORDERS = {"key-value": "", "window": "n, a, m", "session": "n, a, m"}


def has_run(directory: Path) -> bool:
    """Returns True if Spark has planned a micro-batch with the state in this directory."""
    return any(any(planned.iterdir()) for planned in directory.glob("*/checkpoint/offsets"))


def was_begun_without_changelogs(directory: Path) -> bool:
    """Returns True if the state was made without changelog topics. New changelog topics would lack the earlier changes
    of the stores."""
    return has_run(directory) and _note_in(directory) in (None, _NONE)


def _note_in(directory: Path) -> str | None:
    note = directory / "changelogs"
    return note.read_text() if note.exists() else None


def restore(
    application: Application, connection: ClusterThread, there: Mapping[str, int], counts: Mapping[str, int]
) -> Mapping[TopicPartition, int] | None:
    """Restores the state from changelog topics if it is lost. `there` contains the topics that existed before the
    application created its internal topics; `counts` contains all topics. Returns the offsets at which queries without
    a checkpoint begin. Returns None if no state was lost, so each query chooses its own offsets."""
    directory = application.directory
    note, begin = directory / "changelogs", directory / "begin"
    known = _note_in(directory)
    if application_topics.has_members(connection, application.id):
        raise StreamsError(
            f"the group {application.id} has members, so Kafka Streams runs with this application.id: close Kafka "
            "Streams, and start again when the members have left the group, which may take their "
            "session.timeout.ms."
        )
    if known is None and has_run(directory) and application.is_bound:
        raise StreamsError(
            f"the file {note}, which says how the state is kept, is missing: put the file back, or remove "
            f"{directory}, so that the state is restored."
        )
    if known not in (None, _NONE) and not application.has_changelogs:
        raise StreamsError(
            f"the state in {directory} was made with changelog topics, which would no longer be written: leave "
            "with_logging=False out, or start again with kafka-streams-application-reset."
        )
    if application.has_changelogs and was_begun_without_changelogs(directory):
        raise StreamsError(
            f"the state in {directory} was made without changelog topics, so new changelog topics would be "
            "incomplete: leave with_logging=True out, or start again with kafka-streams-application-reset."
        )
    offsets = group_offsets.committed(connection, application)
    text = group_offsets.application_text(application)
    if group_offsets.is_of_another_topology(offsets, text):
        raise StreamsError(
            f"the application.id {application.id} was used by another topology, whose state is not in "
            f"{directory}: give this topology another application.id, or start again with "
            "kafka-streams-application-reset."
        )
    others = group_offsets.belongs_to_others(offsets, text)
    starts = from_tree(json.loads(begin.read_text())).offsets if begin.exists() else {}
    if others and has_run(directory):
        raise StreamsError(checkpoints.gone_on(application))
    for part in application.parts:
        if not part.is_global:
            checkpoints.check(application, part, offsets, text, starts)
    if has_run(directory):
        if known == _RESTORED and not begin.exists():
            return {key: item.offset for key, item in offsets.items()}
    elif known in (None, _NONE) or others:
        if is_gone(application, offsets, there):
            claimed = group_offsets.claim(connection, application)
            for part in application.parts:
                _restore_part(application, part, connection, counts)
            _write(begin, json.dumps(to_tree(claimed)))
        elif not offsets:
            _refuse_what_is_left(application, connection, there)
        _write(note, (_RESTORED if begin.exists() else _BEGUN) if application.has_changelogs else _NONE)
    return from_tree(json.loads(begin.read_text())).offsets if begin.exists() else None


def is_gone(application: Application, offsets: GroupOffsets, there: Mapping[str, int]) -> bool:
    """Returns True if the state must be restored. Must be called only if no query has run with the present state.
    `offsets` are the committed offsets of the group, and `there` contains the existing topics. Raises StreamsError if
    the state is lost and cannot be restored."""
    topics = [
        changelog_topic(application.id, name) for part in application.parts for name in application.logged_stores(part)
    ]
    missing = [topic for topic in topics if topic not in there]
    if not group_offsets.read_by_anybody(offsets):
        return bool(offsets) and bool(topics) and not missing
    lacking = application.stores_without_changelog
    if lacking or missing:
        reason = (
            f"the store {lacking[0]} has no changelog topic" if lacking else f"the topic {missing[0]} does not exist"
        )
        raise StreamsError(
            f"the application {application.id} has run before, but its state is not in {application.directory} and "
            f"cannot be restored, since {reason}: "
            "set state.dir to where the state is, or start again with kafka-streams-application-reset."
        )
    return True


def _refuse_what_is_left(application: Application, connection: ClusterThread, there: Mapping[str, int]) -> None:
    """Raises StreamsError if internal topics have records that a new application would count again."""
    changelogs = [
        changelog_topic(application.id, name) for part in application.parts for name in application.logged_stores(part)
    ]
    internal = [
        *changelogs,
        *(f"{application.id}-{topic}" for topic in application.topology.processors.internal_topics),
    ]
    for topic, _, first, end in application_topics.bounds(
        connection, [topic for topic in internal if topic in there], there
    ):
        if end > first:
            raise StreamsError(
                f"the topic {topic} has records of an earlier run of the application {application.id}, but its "
                "consumer group has no committed offsets, so it is not known up to where that run has read: "
                "start again with kafka-streams-application-reset, which deletes the topic."
            )


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def _restore_part(
    application: Application, part: SubTopology, connection: ClusterThread, counts: Mapping[str, int]
) -> None:
    directory = application.directory / str(part.number) / "stores"
    names = application.logged_stores(part)
    if not names:
        return
    shutil.rmtree(directory, ignore_errors=True)
    topics = {changelog_topic(application.id, name): application.topology.processors.stores[name] for name in names}
    places = application_topics.bounds(connection, topics, {**dict.fromkeys(topics, tasks_of(part, counts))})
    for partition in range(tasks_of(part, counts)):
        mine = {
            (topic, number): (first, end) for topic, number, first, end in places if number == partition and first < end
        }
        restore_partition(directory / f"{partition}.state", topics, _records(application, mine))


def _records(application: Application, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Iterator[RawRecord]:
    from jesenska.pipeline.streams_on_spark.queries.spark_task import read_ranges

    if ranges:
        options = {**application.consumer_options(), "subscribe": ",".join(topic for topic, _ in ranges)}
        yield from read_ranges(source_options(options, streaming=False), ranges)


def restore_partition(path: Path, stores: Mapping[str, Store], records: Iterator[RawRecord]) -> None:
    """Makes a state file from the records of its changelog topics. The records of each topic must be in order."""
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
        file.set_meta(
            FACTS, json.dumps({"stream_time": latest, "partition_times": {}, "stores": kept, "operators": {}})
        )


def _row(store: Store, record: RawRecord) -> tuple[bytes, int, int]:
    try:
        if record.key is None:
            raise ValueError
        return row_of(store, record.key)
    except (ValueError, struct.error) as error:
        raise StreamsError(
            f"{record.topic}-{record.partition} has a record at offset {record.offset} that no streams "
            "application has written, so the state cannot be restored from this topic: start again with "
            "kafka-streams-application-reset, or put the state back."
        ) from error


def row_of(store: Store, key: bytes) -> tuple[bytes, int, int]:
    """Returns the columns a, n and m of a store's row for the key of a changelog record."""
    match store.kind:
        case "window":
            (start,) = struct.unpack(">q", key[-12:-4])
            return key[:-12], start, 0
        case "session":
            end, start = struct.unpack(">qq", key[-16:])
            return key[:-16], end, start
        case _:
            return key, 0, 0
