"""Reads and writes the committed offsets of an application's consumer group. The metadata of an offset says to which
state of the application the offset belongs.

Each offset is committed with a metadata text:

    read by a query of Spark, state <id>, topology <digest>    records before the offset are counted in this state only
    read by a query of Spark                                   records before the offset are counted in a state
    another text                                               Apache Kafka Streams has counted up to this offset
    no text                                                    a tool has set the offset: an application without state
                                                               begins there

So if an application finds the id of another state, another process has continued with another state.dir. Then the
application ends, since otherwise both processes would count the same records. Two applications with the same id are
distinguished by their topologies. If the group has such offsets and the application has no state, the state was lost:
it is restored, or the application is refused.

A process that restores a state first commits the offsets with the new state's id (`claim`). With exactly_once_v2, this
is done in a transaction of each query. The transaction aborts the other process's open transaction. Later transactions
of the other process find the new id before they commit, and end. With at_least_once, the other process checks the id
at the beginning of each micro-batch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import OffsetAndMetadata
from jesenska.client.offsets import EARLIEST, list_offsets
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import READ_BY_A_QUERY
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.application_topics import tell_group

GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata]
_NAMED = re.compile(re.escape(READ_BY_A_QUERY) + r", state (\w+), topology (\w+)")
_CLAIM_TIMEOUT_MS = 60_000


def text_of(state_id: str, topology: str) -> str:
    """Returns the metadata text for offsets that this state commits. It contains a digest of the topology."""
    digest = hashlib.sha256(topology.encode()).hexdigest()[:16]
    return f"{READ_BY_A_QUERY}, state {state_id}, topology {digest}"


def application_text(application: Application) -> str:
    """Returns the metadata text for offsets that this application commits."""
    return text_of(application.state_id, application.topology.describe())


def read_by_anybody(offsets: GroupOffsets) -> bool:
    """Returns True if an offset was committed together with a state, so that records before the offset are counted in
    that state."""
    return any(item.metadata for item in offsets.values())


def belongs_to_others(offsets: GroupOffsets, text: str) -> bool:
    """Returns True if an offset was committed by a state with another metadata text than `text`, or by Kafka
    Streams."""
    return any(item.metadata not in ("", READ_BY_A_QUERY, text) for item in offsets.values())


def is_of_another_topology(offsets: GroupOffsets, text: str) -> bool:
    """Returns True if an application with another topology has committed any offset."""
    mine = _NAMED.fullmatch(text)
    named = [found for item in offsets.values() if (found := _NAMED.fullmatch(item.metadata))]
    return mine is not None and any(found[2] != mine[2] for found in named)


def set_by_a_tool(offsets: GroupOffsets) -> dict[TopicPartition, int]:
    """Returns the offsets that a tool has set: an application without state begins at them."""
    return {key: item.offset for key, item in offsets.items() if not item.metadata}


def committed(connection: ClusterThread, application: Application) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the committed offsets of the consumer group. An offset below the first offset of the log is replaced by
    the log's first offset."""

    async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
        found = await Admin(connection.cluster).list_group_offsets(application.id)
        topics = await connection.cluster.topics()
        there = {
            key: item
            for key, item in found.items()
            if key.topic in topics and key.partition < len(topics[key.topic].partitions)
        }
        first = await list_offsets(connection.cluster, dict.fromkeys(there, EARLIEST)) if there else {}
        return {key: item._replace(offset=max(item.offset, first[key].offset)) for key, item in there.items()}

    return connection.persist(ask)


def refuse_another_state(connection: ClusterThread, application: Application, text: str) -> None:
    """Raises StreamsError if another process has continued the application with its own state. `text` is the metadata
    text of this process's state."""

    async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
        return await Admin(connection.cluster).list_group_offsets(application.id)

    if belongs_to_others(connection.persist(ask), text):
        raise StreamsError(
            f"another process has continued the application {application.id} with a state outside "
            f"{application.directory}, so this process has ended: run only one process with an application.id at "
            "a time."
        )


def claim(connection: ClusterThread, application: Application) -> dict[TopicPartition, int]:
    """Commits the group's present offsets with this state's id, so that processes with another state end. Returns the
    offsets."""
    text = application_text(application)
    if not application.is_exactly_once:
        offsets = {key: item.offset for key, item in committed(connection, application).items()}
        tell_group(connection, application.id, offsets, text)
        return offsets
    from jesenska.pipeline.micro_batches import MicroBatchTransaction, Query

    claimed: dict[TopicPartition, int] = {}
    for part in application.parts:
        if part.is_global:
            continue
        query = Query(application.name_of_query(part), "", _CLAIM_TIMEOUT_MS)
        # `begin` waits until another process's transaction has ended. So the offsets that are read after it can no
        # longer change.
        writing = connection.run(MicroBatchTransaction.begin(connection.cluster, query))
        is_committed = False
        try:
            offsets = {
                key: item.offset for key, item in committed(connection, application).items() if part.takes(key.topic)
            }
            connection.run(writing.send_offsets(application.id, offsets, text))
            connection.run(writing.commit())
            is_committed = True
        finally:
            connection.run(writing.close(is_committed))
        claimed |= offsets
    return claimed
