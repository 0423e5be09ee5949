"""Fetches of followers: brokers that replicate the partitions that this broker leads.

A follower gets all records up to the log end offset, committed or not, as they are in the log. Its fetch offset is its
own log end offset. Each request reports this offset for the partitions that it names, which may raise the high
watermark or bring the follower into the ISR. The offset of a partition that the request does not name is unchanged.

If the leader epoch of the follower's last batch ended at a smaller offset in this log, the two logs diverge after that
offset. The follower then gets this epoch and offset (the diverging epoch) and no records, and its fetch offset is
ignored. A diverging epoch is answered without waiting, like an error.

A follower learns the high watermark from the answers to its fetches, and so knows it one answer late. If consumers may
read from followers (`replica.selector.class`), a follower's fetch is answered as soon as the leader's high watermark
is higher than the high watermark that the follower knows. With Apache Kafka, consumers of a follower wait for up to
`replica.fetch.wait.max.ms` for the last records.

A broker that fetches a partition of which it has no replica gets NOT_LEADER_OR_FOLLOWER. If it sends the current
leader epoch, it gets UNKNOWN_LEADER_EPOCH: it then knows a new assignment of replicas that this broker does not know
yet. Sources: KIP-101, KIP-227, KIP-279, KIP-595."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from jesenska.broker.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from jesenska.broker.fetching.fetch_states import READING, FetchState, after_read
from jesenska.broker.fetching.fetches import SessionFetch, resolve
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import FetchFamily
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import ReadResult, read_log
from jesenska.log.segments.segment import ColdError
from jesenska.quotas.replication_throttle import Throttle
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
)

_FIRST_WITH_IDS = 13
_NO_EPOCH = -1
#: A value for the stored high watermark of a session's partition. It differs from every real high watermark, so that
#: the partition is in the next answer.
_NOT_SENT = -1


def replica_of(request: FetchRequest) -> int:
    """Returns the broker id of the follower that sent the request; a negative number for a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


def handle_follower(uses: FetchFamily, request: FetchRequest, context: Context) -> Outcome:
    """Handles a follower's fetch: answers it at once, or lets it wait for records. Client quotas do not apply to
    followers."""
    context.limits = None
    by_id = context.version >= _FIRST_WITH_IDS
    sessions, now_ms = uses.sessions, int(uses.clock.monotonic() * 1000)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.end(request.session_id)
        session = _begun(uses, request, by_id, now_ms)
    else:
        found = sessions.proceed(
            request.session_id, request.session_epoch, by_id, request.topics, request.forgotten_topics_data, now_ms
        )
        if isinstance(found, ErrorCode):
            return FetchResponse(error_code=found)
        if found.closed:
            return FetchResponse()  # the session has no partitions any more
        session = found
    answer = FollowerFetch(uses, request, context, session).go_on(READING)
    return LATER if answer is None else answer


def _begun(uses: FetchFamily, request: FetchRequest, by_id: bool, now_ms: int) -> FetchSession:
    """Begins a session with the partitions of a request. If the request wants no session, or there is no room for a
    new session, the returned session is used for this request only."""
    parts = [
        (
            asked.topic,
            asked.topic_id,
            SessionPartition(part.partition, part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes),
        )
        for asked in request.topics
        for part in asked.partitions
    ]
    session = uses.sessions.create(parts, True, by_id, now_ms) if request.session_epoch == INITIAL_EPOCH else None
    if session is None:
        session = FetchSession(NO_SESSION, True, by_id, now_ms, uses.waiting.notify)
        for topic, topic_id, part in parts:
            session.add(topic, topic_id, part)
    return session


def _without_records(log: PartitionLog) -> ReadResult:
    """Returns the offsets of a log without records."""
    end_offset = log.log_end_offset
    return ReadResult(None, end_offset, 0, 0, log.log_start_offset, end_offset)


class FollowerFetch(SessionFetch):
    """A fetch of a follower. It always has a session, which may exist for this request only."""

    __slots__ = ("_diverging", "_hurries", "_replica_id", "_unnoted")

    def __init__(self, uses: FetchFamily, request: FetchRequest, context: Context, session: FetchSession) -> None:
        super().__init__(uses, request, context, session)
        self._replica_id = replica_of(request)
        self._hurries = uses.rules.by_rack
        #: The epoch and end offset after which the follower's log diverges, by partition. The value is None if this
        #: log does not know the follower's last epoch.
        self._diverging: dict[SessionPartition, tuple[int, int] | None] = {}
        #: The follower's last epoch and log start offset for each partition that this broker does not lead yet. Both
        #: are used as soon as this broker leads the partition, so that the follower need not send them again.
        self._unnoted: dict[SessionPartition, tuple[int, int]] = {}
        self._note(request)
        if uses.joining:
            self._join(uses.joining)

    # --- the state of the follower's logs ----------------------------------------------------------------------------

    def _note(self, request: FetchRequest) -> None:
        """Processes the state of the follower's logs that the request reports."""
        session = self._session
        for asked in request.topics:
            for part in asked.partitions:
                wanted = session.find(asked.topic, asked.topic_id, part.partition)
                if wanted is not None:
                    self._note_partition(wanted, part.last_fetched_epoch, part.log_start_offset)

    def _join(self, joining: set[Partition]) -> None:
        """Asks for an ISR change that adds this follower, for each partition in `joining` whose ISR it may now join.
        For a partition that the request does not name, the fetch offset of the session is used."""
        if self._replica_id not in self._uses.view.brokers:
            return
        for partition in list(joining):
            key = partition.topic_partition
            wanted = self._session.find(key.topic, partition.topic_id, key.partition)
            if wanted is not None and partition.join(self._replica_id, wanted.fetch_offset):
                self._uses.isr_changes.propose(partition)
            if not partition.has_candidates:
                joining.discard(partition)

    def _note_partition(self, wanted: SessionPartition, last_epoch: int, log_start_offset: int) -> None:
        partition = self._found_partition(wanted)
        if partition is None:
            self._unnoted[wanted] = last_epoch, log_start_offset
            return
        try:
            log = partition.log_for(self._replica_id, wanted.current_leader_epoch)
            if last_epoch != _NO_EPOCH:
                epoch, end_offset = log.end_offset_for_epoch(last_epoch)
                if epoch == _NO_EPOCH:
                    self._diverging[wanted] = None
                    return
                if wanted.fetch_offset >= log.log_start_offset and (
                    epoch < last_epoch or end_offset < wanted.fetch_offset
                ):
                    self._diverging[wanted] = epoch, end_offset
                    return
            if log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset and partition.follower_fetched(
                self._replica_id,
                wanted.fetch_offset,
                log.log_end_offset,
                max(wanted.current_leader_epoch, _NO_EPOCH),
                may_join=self._replica_id in self._uses.view.brokers,
                log_start_offset=log_start_offset,
            ):
                self._uses.isr_changes.propose(partition)
        except KafkaError:
            # This broker does not lead the partition. The read that follows raises the same error, or succeeds if this
            # broker has become the leader.
            self._unnoted[wanted] = last_epoch, log_start_offset

    def _found_partition(self, wanted: SessionPartition) -> Partition | None:
        if wanted.partition is None or not wanted.partition.is_served:
            resolve(self._uses.view, wanted, self._session.uses_topic_ids)
        return wanted.partition

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self) -> FetchState:
        if self._unnoted:
            unnoted, self._unnoted = self._unnoted, {}
            for wanted, (last_epoch, log_start_offset) in unnoted.items():
                self._note_partition(wanted, last_epoch, log_start_offset)
        session = self._session
        left, total, ends = self.max_bytes, 0, session.closed or session.epoch != self._epoch
        self._moved = None
        self._regions = []
        self._found = []
        unknown = []
        throttle = self._uses.rules.throttle
        is_exceeded = throttle.is_active and throttle.is_exceeded(self._now_ms())
        for wanted in session.ready():
            answer = FetchResponsePartition(
                partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b""
            )
            try:
                partition = self._found_partition(wanted)
                if partition is None:
                    assert wanted.error is not None
                    raise wanted.error
                self._found.append((wanted, answer))
                diverging = self._diverging.get(wanted)
                if is_exceeded and diverging is None and self._must_wait(partition, wanted):
                    result = _without_records(partition.log_for(self._replica_id, wanted.current_leader_epoch))
                else:
                    limit = 0 if diverging is not None else min(wanted.max_bytes, left)
                    result = self._read(partition, wanted, limit, total == 0 and diverging is None)
            except KafkaError as error:
                if self.refused(wanted, answer, error):
                    ends = True
                else:
                    unknown.append((wanted, answer))
                continue
            except ColdError:
                self.cold(wanted)
                continue
            ends = ends or result.is_final
            size_bytes = self._tell(wanted, partition, result, answer)
            if self._hurries and wanted.high_watermark < answer.high_watermark:
                ends = True
            if diverging is not None:
                wanted.high_watermark = _NOT_SENT
                answer.diverging_epoch = FetchResponseDivergingEpoch(epoch=diverging[0], end_offset=diverging[1])
                ends = True
            total += size_bytes
            left -= size_bytes
        self._found += unknown
        must_end = ends or len(unknown) == session.size
        return after_read(bool(self._cold), total, self.min_bytes, must_end, self._time_is_up)

    def _read(
        self, partition: Partition, wanted: SessionPartition, max_bytes: int, minimum_one_batch: bool
    ) -> ReadResult:
        log = partition.log_for(self._replica_id, wanted.current_leader_epoch)
        if wanted in self._diverging:
            if self._diverging[wanted] is None:
                raise OffsetOutOfRangeError(
                    f"{log.topic_partition} does not know the epoch of the follower's last batch."
                )
            return _without_records(log)
        return read_log(log, wanted.fetch_offset, max_bytes, None, minimum_one_batch, self._waits_for_disk)

    def _must_wait(self, partition: Partition, wanted: SessionPartition) -> bool:
        """Returns True if the follower gets no records now, because the leader sends more to throttled replicas than
        leader.replication.throttled.rate. A follower in the ISR need not wait. Neither does an offset that is not in
        the log: the answer is then an error."""
        key = partition.topic_partition
        if self._replica_id in partition.isr or not self._uses.rules.throttle.applies_to(key.topic, key.partition):
            return False
        log = partition.log_for(self._replica_id, wanted.current_leader_epoch)
        return log.log_start_offset <= wanted.fetch_offset < log.log_end_offset

    def _tell(
        self, wanted: SessionPartition, partition: Partition, result: ReadResult, answer: FetchResponsePartition
    ) -> int:
        """Puts the result of a read into a partition's answer, without conversion. Returns the size of the records in
        bytes."""
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = result.log_start_offset
        region = result.region
        wanted.has_more = result.has_more or (region is None and wanted.fetch_offset < result.log_end_offset)
        if region is None:
            return 0
        answer.records = region
        self._regions.append(region)
        return region.size_bytes

    # --- answering ---------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._uses.clock.monotonic() * 1000)

    def _count(self, throttle: Throttle) -> None:
        """Counts the bytes of throttled replicas in the answer."""
        size_bytes = 0
        for wanted, answer in self._found:
            if answer.records and wanted.partition is not None:
                key = wanted.partition.topic_partition
                if throttle.applies_to(key.topic, key.partition):
                    size_bytes += len(answer.records)
        if size_bytes:
            throttle.record(size_bytes, self._now_ms())

    def response(self) -> FetchResponse:
        response = super().response()
        if self._uses.rules.throttle.is_active and response.error_code == ErrorCode.NONE:
            self._count(self._uses.rules.throttle)
        if self._session.session_id == NO_SESSION:
            self._session.close()
        return response
