"""ListOffsets (key 2), versions 0-11.

    0      old style: at most `max_num_offsets` segment starts before a time, newest first
    1      one offset with its timestamp
    2      isolation level
    4      leader epochs
    6      compact
    7      -3: the offset of the greatest timestamp (KIP-734)
    8      -4: earliest local offset; the same as the earliest, nothing is tiered
    9      -5: last tiered offset: none
    11     -6: earliest offset that waits for tiering: none

-1 is the end of what the isolation level may read, for a follower the end of the log; -2 the log start. Only leaders
answer, except replica -2, a consumer that compares replicas (kafka-replica-verification): it gets the offsets of the
replica here, up to its log end. A leader that does not know yet what was committed under the previous leader answers
no offset that may have to be taken back (KIP-207): OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE below version 5. For a
time the answer is the first record at or after it, found through the time index and then in the batch, which may have
to be decompressed: in the pool. A topic in format v0 has no times: UNSUPPORTED_FOR_MESSAGE_FORMAT. From version 1 on a
partition that is named twice is INVALID_REQUEST, answered once; a topic is answered once, one without partitions not
at all; and a special time that the version lacks is UNSUPPORTED_VERSION, for any partition.
"""

from __future__ import annotations

import logging

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
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
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

#: How often segments may leave a log while it is searched, before the client gets an error.
_ROUNDS_MAX = 5

_CONSUMER, _COMPARES = -1, -2
_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_NOT_AVAILABLE = 5
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_NEVER = 2**15
_READ_COMMITTED = 1
#: The first version that knows each special time.
_FIRST_VERSION = {EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest, LogFamily)
def handle(uses: LogFamily, request: ListOffsetsRequest, context: Context) -> Outcome:
    in_pool = []
    response = ListOffsetsResponse()
    version, compares = context.version, request.replica_id == _COMPARES
    twice = (
        duplicates((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
        if version
        else set()
    )
    told: set[tuple[str, int]] = set()
    by_name: dict[str, list[ListOffsetsResponsePartition]] = {}
    for topic in request.topics:
        known = uses.view.topics.get(topic.name)
        answers = by_name.get(topic.name) if version else None
        if answers is None:
            answers = []
            if topic.partitions or not version:
                by_name[topic.name] = answers
                response.topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            if key in twice:
                if key in told:
                    continue
                told.add(key)
            answer = ListOffsetsResponsePartition(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if key in twice:
                    raise InvalidRequestError
                if asked.timestamp < LATEST and version < _FIRST_VERSION.get(asked.timestamp, _NEVER):
                    raise UnsupportedVersionError
                if known is None or not 0 <= asked.partition_index < len(known.partitions):
                    raise UnknownTopicOrPartitionError
                partition = known.partitions[asked.partition_index]
                log = (
                    partition.replica_log(asked.current_leader_epoch)
                    if compares
                    else partition.leader_log(asked.current_leader_epoch)
                )
                if not _answer_at_once(partition, log, asked, answer, request, version):
                    in_pool.append((partition, log, lookup_by_time(log), asked, answer))
            except KafkaError as error:
                answer.error_code = error.code
    if not in_pool:
        return response

    now_ms = uses.clock.now_ms()
    waiting, rounds = in_pool, 1

    def look_up() -> None:
        for partition, log, lookup, asked, answer in waiting:
            try:
                answer.error_code = ErrorCode.NONE
                end_offset = _end_for(request, partition) if request.replica_id == _CONSUMER else log.log_end_offset
                _look_up(partition, lookup, asked, answer, context.version, now_ms, end_offset)
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

    def finish() -> None:
        nonlocal waiting, rounds
        for _, _, lookup, _, _ in waiting:
            lookup.done()
        again = [
            (partition, log, lookup_by_time(log), asked, answer)
            for partition, log, lookup, asked, answer in waiting
            if lookup.is_stale
        ]
        if again and rounds < _ROUNDS_MAX:
            waiting, rounds = again, rounds + 1
            try:
                uses.pool.submit(look_up, finish)
                return
            except RequestTimedOutError as error:
                for _, _, lookup, _, answer in again:
                    lookup.close()
                    answer.error_code = error.code
        context.answer(response)

    uses.pool.submit(look_up, finish)
    return LATER


def _answer_at_once(
    partition: Partition,
    log: PartitionLog,
    asked: ListOffsetsRequestPartition,
    answer: ListOffsetsResponsePartition,
    request: ListOffsetsRequest,
    version: int,
) -> bool:
    """Fills the answer from what is in memory; False if the log's files must be read."""
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
    """The end of what a consumer reads at its isolation level."""
    return partition.last_stable_offset if request.isolation_level == _READ_COMMITTED else partition.high_watermark


def _require_known(partition: Partition, version: int) -> None:
    """Raises an error if it is not known yet what was committed under the previous leader."""
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
    """Runs in the pool. No offset from `end_offset` on is answered."""
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
