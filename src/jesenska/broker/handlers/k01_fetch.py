"""Fetch (key 1), versions 0-18. Each line is what a version adds:

    0      message sets: format v0, from 2 on v1 (`broker.fetching.down_conversion`)
    4      record batches v2, isolation level
    5      log start offset
    7      sessions (KIP-227): `uses.sessions`
    9      leader epochs
    10     zstd
    11     the consumer's rack; followers answer consumers (KIP-392)
    12     compact encoding; diverging epochs (for followers)
    13     topic ids instead of names
    16     id and address of a partition's new leader in the answer

This file finds the fetch session and the partitions of a request. `broker.fetching.fetches` then reads the partitions,
waits, and answers. Its states are in the table of `broker.fetching.fetch_states`.

Complete batches are answered, beginning with the batch that contains the fetch offset. The first batch of an answer is
sent even if it exceeds the limits of bytes; a later batch that exceeds them is not. The request waits until there are
`min_bytes`, for at most `max_wait_ms`. It does not wait if one of its partitions has an error, or if this broker knows
none of its partitions.

Without a session, and in the first request of a session, partitions are read in the order of the request; clients
rotate this order themselves. Later requests of a session read only partitions with something new, in the session's
order.

With an authorizer, a consumer that may not read a topic gets TOPIC_AUTHORIZATION_FAILED. This is checked at each read
of a partition, also in a session and after a wait. A topic that does not exist is answered in the same way.

An unknown topic is answered UNKNOWN_TOPIC_OR_PARTITION if the request has names, and UNKNOWN_TOPIC_ID if it has ids. A
session remembers the name of each id: if another topic has this name now, the error is INCONSISTENT_TOPIC_ID.

If a topic's `message.format.version` is an old format, every consumer gets records in this format. With
`message.downconversion.enable=false`, a consumer that needs converted records gets UNSUPPORTED_VERSION.

A partition that is named twice is read once, from the last of its offsets. A request with a replica id of 0 or more
comes from a follower (`broker.fetching.follower_fetches`). A replica id of -2 means a consumer that compares replicas
(kafka-replica-verification).

From version 11 on a consumer may read from a follower, up to the follower's high watermark. If
`replica.selector.class` selects by rack, the leader sends the consumer to a follower
(`replication.leader.read_replicas`): the answer names the follower, contains no records, and is sent without
waiting."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode, UnknownTopicIdError, UnknownTopicOrPartitionError
from jesenska.broker.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    SessionPartition,
    WantedPartition,
)
from jesenska.broker.fetching.fetch_states import READING
from jesenska.broker.fetching.fetches import FullFetch, Plan, SessionFetch
from jesenska.broker.fetching.follower_fetches import handle_follower, replica_of
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import FetchFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from jesenska.broker.metadata_cache import MetadataCache

_FIRST_WITH_IDS = 13


@handles(FetchRequest, FetchFamily)
def handle(uses: FetchFamily, request: FetchRequest, context: Context) -> Outcome:
    if replica_of(request) >= 0:
        return handle_follower(uses, request, context)
    epoch, by_id = request.session_epoch, context.version >= _FIRST_WITH_IDS
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            uses.sessions.end(request.session_id)
    else:
        now_ms = int(uses.clock.monotonic() * 1000)
        session = uses.sessions.proceed(
            request.session_id, epoch, by_id, request.topics, request.forgotten_topics_data, now_ms
        )
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        if not session.closed:
            if context.access is not None:
                session.look_again(context.access.rules_version)
            answer = SessionFetch(uses, request, context, session).go_on(READING)
            return LATER if answer is None else answer
    plan, knows_none = _named(uses.view, request, by_id, epoch == INITIAL_EPOCH)
    answer = FullFetch(uses, request, context, plan, knows_none, by_id, epoch == INITIAL_EPOCH).go_on(READING)
    return LATER if answer is None else answer


def _named(view: MetadataCache, request: FetchRequest, by_id: bool, begins_session: bool) -> tuple[Plan, bool]:
    """Returns the partitions that a request names, each once, and a flag. The flag is True if this broker knows none
    of the partitions."""
    make = SessionPartition if begins_session else WantedPartition
    named: dict[tuple[str | uuid.UUID, int], WantedPartition] | None = {} if _names_twice(request, by_id) else None
    plan: Plan = []
    knows_none = True
    for asked in request.topics:
        topic = view.by_id.get(asked.topic_id) if by_id else view.topics.get(asked.topic)
        items = []
        key = asked.topic_id if by_id else asked.topic
        for part in asked.partitions:
            wanted = make(part.partition, part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes)
            if named is not None and (first := named.setdefault((key, part.partition), wanted)) is not wanted:
                first.fetch_offset, first.current_leader_epoch, first.max_bytes = (
                    part.fetch_offset,
                    part.current_leader_epoch,
                    part.partition_max_bytes,
                )
                continue
            if topic is None:
                wanted.error = UnknownTopicIdError if by_id else UnknownTopicOrPartitionError
            elif not 0 <= part.partition < len(topic.partitions):
                wanted.error = UnknownTopicOrPartitionError
            else:
                wanted.partition = topic.partitions[part.partition]
                knows_none = False
            items.append(wanted)
        if items:
            plan.append((asked, items))
    return plan, knows_none


def _names_twice(request: FetchRequest, by_id: bool) -> bool:
    """Returns True if a partition may be in the request more than once."""
    topics: set[str | uuid.UUID] = set()
    for asked in request.topics:
        topics.add(asked.topic_id if by_id else asked.topic)
        if len({part.partition for part in asked.partitions}) != len(asked.partitions):
            return True
    return len(topics) != len(request.topics)
