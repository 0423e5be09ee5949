"""The owner of the offsets of an application's group: the state that they belong to.

Each offset is committed with a text:

    read by a query of Spark, state <id>, topology <digest>    records before the offset are counted in this state, and
                                                               in no other
    read by a query of Spark                                   the same, without the name of the state
    another text                                               Apache Kafka Streams has counted up to there
    no text                                                    a tool has set it: an application without state begins
                                                               there

So an application that finds the name of another state knows that another process has gone on, with another state.dir:
it ends, or both would count the same records. Two applications with one id are distinguished by their topologies. An
application that begins with offsets of the group and without a state has lost it: it restores the state, or is
refused.

A process that restores a state first names it in the offsets (`claim`). Exactly once, this is a transaction of each
query: the other process's open transaction is aborted, and its later ones find the new name before they are committed.
At least once, the other process looks at the beginning of each micro-batch.
"""

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
    """Returns the text for committed offsets of this state of an application with this topology."""
    digest = hashlib.sha256(topology.encode()).hexdigest()[:16]
    return f"{READ_BY_A_QUERY}, state {state_id}, topology {digest}"


def application_text(application: Application) -> str:
    """Returns the text of this application's offsets."""
    return text_of(application.state_id, application.topology.describe())


def read_by_anybody(offsets: GroupOffsets) -> bool:
    """True if records before some offset are counted in any state."""
    return any(item.metadata for item in offsets.values())


def belongs_to_others(offsets: GroupOffsets, text: str) -> bool:
    """True if an offset is of another state than the one with this text, or of Kafka Streams."""
    return any(item.metadata not in ("", READ_BY_A_QUERY, text) for item in offsets.values())


def is_of_another_topology(offsets: GroupOffsets, text: str) -> bool:
    """True if an application with another topology has committed an offset."""
    mine = _NAMED.fullmatch(text)
    named = [found for item in offsets.values() if (found := _NAMED.fullmatch(item.metadata))]
    return mine is not None and any(found[2] != mine[2] for found in named)


def set_by_a_tool(offsets: GroupOffsets) -> dict[TopicPartition, int]:
    """Returns the offsets at which an application without state is to begin."""
    return {key: item.offset for key, item in offsets.items() if not item.metadata}


def committed(connection: ClusterThread, application: Application) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets of the group. An offset below the log's first one is replaced by that."""

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
    """StreamsError if another process has gone on, with its own state. `text` is that of this process."""

    async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
        return await Admin(connection.cluster).list_group_offsets(application.id)

    if belongs_to_others(connection.persist(ask), text):
        raise StreamsError(
            f"another process has gone on with the application {application.id}, with a state that is not the one in "
            f"{application.directory}, so this one "
            "has ended: one application.id is for one process at a time."
        )


def claim(connection: ClusterThread, application: Application) -> dict[TopicPartition, int]:
    """Names this state in the offsets of the group, so that no other state goes on; returns the offsets."""
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
        # It begins after the end of another process's transaction, so these are the last offsets.
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
