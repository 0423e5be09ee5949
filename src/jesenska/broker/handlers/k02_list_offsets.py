"""ListOffsets (key 2), versions 0-11. Each line is what a version adds; a negative number is a special time:

  0      old style: at most `max_num_offsets` first offsets of segments before a time, newest first
  1      one offset with its timestamp
  2      isolation level
  4      leader epochs
  6      compact encoding
  7      -3: the offset of the greatest timestamp (KIP-734)
  8      -4: the earliest local offset, which is the log start offset, because there is no tiered storage
  9      -5: the last tiered offset, which does not exist here
  11     -6: the earliest offset that waits for tiering, which does not exist here

Time -1 asks for the end offset: the high watermark or the last stable offset, by isolation level; a follower gets the
log end offset. Time -2 asks for the log start offset. Only leaders answer. The exception is replica id -2, a consumer
that compares replicas (kafka-replica-verification): that consumer gets the offsets of this broker's replica, up to the
log end offset. A new leader that does not know the high watermark yet must not answer an offset that may be truncated
(KIP-207). It answers OFFSET_NOT_AVAILABLE, or LEADER_NOT_AVAILABLE below version 5.

For any other time the answer is the offset of the first record with this timestamp or a later timestamp. The time
index leads to the batch, which the thread pool reads and decompresses. A topic in message format v0 has no timestamps,
so the answer is UNSUPPORTED_FOR_MESSAGE_FORMAT.

From version 1 on, a partition that is named twice is answered once, with INVALID_REQUEST. A topic that is named twice
is answered once, and a topic without partitions is not answered. A special time that the version does not support is
answered UNSUPPORTED_VERSION, even for a partition that does not exist."""

from __future__ import annotations

import logging
from typing import NamedTuple

from jesenska.base.errors import (
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from jesenska.broker.metadata_cache import Topic
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.merged_topics import merged_topics
from jesenska.controller.plans.topics import duplicates
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import lookup_by_time
from jesenska.log.segments.time_lookup import TimeLookup
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

logger = logging.getLogger(__name__)

#: The maximum number of rounds of a search. A further round is needed if segments are deleted during a round. After
#: the last round the client gets an error.
_ROUNDS_MAX = 5

_CONSUMER, _COMPARES = -1, -2
_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_NOT_AVAILABLE = 5
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_NEVER = 2**15
_READ_COMMITTED = 1
#: The first version that supports each special time.
_FIRST_VERSION = {EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest, LogFamily)
def handle(uses: LogFamily, request: ListOffsetsRequest, context: Context) -> Outcome:
    in_pool: list[_Search] = []
    response = ListOffsetsResponse()
    version = context.version
    named_twice = (
        duplicates((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
        if version
        else set()
    )
    refused: set[tuple[str, int]] = set()
    for topic in request.topics:
        known = uses.view.topics.get(topic.name)
        answers: list[ListOffsetsResponsePartition] = []
        if topic.partitions or not version:
            response.topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            answer = ListOffsetsResponsePartition(partition_index=asked.partition_index)
            key = (topic.name, asked.partition_index)
            if key in named_twice:
                if key not in refused:
                    refused.add(key)
                    answer.error_code = InvalidRequestError.code
                    answers.append(answer)
                continue
            answers.append(answer)
            try:
                search = _answered_or_searched(known, asked, answer, request, version)
            except KafkaError as error:
                answer.error_code = error.code
            else:
                if search is not None:
                    in_pool.append(search)
    if version:
        response.topics = merged_topics(response.topics)
    if not in_pool:
        return response
    _Searches(uses, request, context, response, in_pool).submit()
    return LATER


def _answered_or_searched(
    topic: Topic | None,
    asked: ListOffsetsRequestPartition,
    answer: ListOffsetsResponsePartition,
    request: ListOffsetsRequest,
    version: int,
) -> _Search | None:
    """Fills in the answer for a partition if no file must be read. Otherwise returns a search, which fills in the
    answer later."""
    if asked.timestamp < LATEST and version < _FIRST_VERSION.get(asked.timestamp, _NEVER):
        raise UnsupportedVersionError
    if topic is None or not 0 <= asked.partition_index < len(topic.partitions):
        raise UnknownTopicOrPartitionError
    partition = topic.partitions[asked.partition_index]
    log = (
        partition.replica_log(asked.current_leader_epoch)
        if request.replica_id == _COMPARES
        else partition.leader_log(asked.current_leader_epoch)
    )
    if _answer_at_once(partition, log, asked, answer, request, version):
        return None
    return _Search(partition, log, lookup_by_time(log), asked, answer)


class _Search(NamedTuple):
    """The search for one partition's offset in the files of its log."""

    partition: Partition
    log: PartitionLog
    lookup: TimeLookup
    asked: ListOffsetsRequestPartition
    answer: ListOffsetsResponsePartition


class _Searches:
    """The searches of one ListOffsets request. They run in rounds, in the thread pool. If segments that a search needs
    are deleted while it runs, the search is repeated in the next round."""

    __slots__ = ("_context", "_now_ms", "_request", "_response", "_rounds", "_searches", "_uses")

    def __init__(
        self,
        uses: LogFamily,
        request: ListOffsetsRequest,
        context: Context,
        response: ListOffsetsResponse,
        searches: list[_Search],
    ) -> None:
        self._uses = uses
        self._request = request
        self._context = context
        self._response = response
        self._searches = searches
        self._rounds = 1
        self._now_ms = uses.clock.now_ms()

    def submit(self) -> None:
        self._uses.pool.submit(self._look_up, self._finish)

    def _look_up(self) -> None:
        """Carries out the searches of one round. Runs in the thread pool."""
        for partition, log, lookup, asked, answer in self._searches:
            try:
                answer.error_code = ErrorCode.NONE
                is_consumer = self._request.replica_id == _CONSUMER
                end_offset = _end_for(self._request, partition) if is_consumer else log.log_end_offset
                _look_up(partition, lookup, asked, answer, self._context.version, self._now_ms, end_offset)
            except KafkaError as error:
                answer.error_code = error.code
            except FileNotFoundError:
                answer.error_code = KafkaStorageError.code
            except OSError as error:
                logger.error("%s cannot be read: %s", partition.topic_partition, error)
                answer.error_code = KafkaStorageError.code
            except Exception:
                answer.error_code = UnknownServerError.code
                raise
            finally:
                lookup.close()

    def _finish(self) -> None:
        for search in self._searches:
            search.lookup.done()
        again = [
            search._replace(lookup=lookup_by_time(search.log)) for search in self._searches if search.lookup.is_stale
        ]
        if again and self._rounds < _ROUNDS_MAX:
            self._searches = again
            self._rounds += 1
            try:
                self.submit()
                return
            except RequestTimedOutError as error:
                for search in again:
                    search.lookup.close()
                    search.answer.error_code = error.code
        self._context.answer(self._response)


def _answer_at_once(
    partition: Partition,
    log: PartitionLog,
    asked: ListOffsetsRequestPartition,
    answer: ListOffsetsResponsePartition,
    request: ListOffsetsRequest,
    version: int,
) -> bool:
    """Fills in the answer from memory. Returns False if the log's files must be read."""
    time = asked.timestamp
    if time == LATEST:
        if request.replica_id != _CONSUMER:
            offset = log.log_end_offset
        else:
            _require_known(partition, version)
            offset = _end_for(request, partition)
    elif time in (EARLIEST, EARLIEST_LOCAL):
        offset = log.log_start_offset
    elif time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.leader_epoch = -1
        return True
    elif time < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersionError
    else:
        if time >= 0 and version and log.config.message_magic == 0:
            raise UnsupportedForMessageFormatError
        return False
    if version == 0:
        if time == LATEST and asked.max_num_offsets > 1:
            return False
        answer.old_style_offsets = [offset][: max(asked.max_num_offsets, 0)]
    else:
        answer.offset = offset
        if version >= _FIRST_WITH_EPOCHS:
            answer.leader_epoch = (
                partition.leader_epoch if time == LATEST else log.leader_epochs.epoch_for_offset(offset)
            )
    return True


def _end_for(request: ListOffsetsRequest, partition: Partition) -> int:
    """Returns the end offset for a consumer: the last stable offset with read_committed, else the high watermark."""
    return partition.last_stable_offset if request.isolation_level == _READ_COMMITTED else partition.high_watermark


def _require_known(partition: Partition, version: int) -> None:
    """Raises an error if this leader does not know yet which records the previous leader had committed."""
    if not partition.knows_high_watermark:
        raise OffsetNotAvailableError if version >= _FIRST_WITH_NOT_AVAILABLE else LeaderNotAvailableError


def _look_up(
    partition: Partition,
    lookup: TimeLookup,
    asked: ListOffsetsRequestPartition,
    answer: ListOffsetsResponsePartition,
    version: int,
    now_ms: int,
    end_offset: int,
) -> None:
    """Searches the log's files and fills in the answer. Runs in the thread pool. An offset at or after `end_offset` is
    not answered."""
    if version == 0:
        answer.old_style_offsets = lookup.starts_before(asked.timestamp, asked.max_num_offsets, end_offset, now_ms)
        return
    found = lookup.first_of_largest() if asked.timestamp == MAX_TIMESTAMP else lookup.first_at_or_after(asked.timestamp)
    if found is not None and found.offset < end_offset:
        answer.timestamp, answer.offset = found.timestamp_ms, found.offset
        if version >= _FIRST_WITH_EPOCHS:
            answer.leader_epoch = found.leader_epoch
    else:
        _require_known(partition, version)
    answer.error_code = ErrorCode.NONE
