"""Carries out fetches, with and without a session. Each fetch goes through the states of `fetch_states`: it reads the
logs, waits, gives work to the thread pool, and makes the answer.

The records of an answer are regions of the log's files. They are not read here: the transport sends them from the page
cache. A fetch holds its regions until they are in the answer. It releases them before it waits, except when it waits
for the thread pool's work on these regions.

The event loop does not wait for the disk. If looking up an offset could wait (the index is not loaded, or pages are
not in memory), the thread pool loads the data, and the fetch reads again. The pages of the records themselves are
loaded when the answer is made. The event loop waits for the disk only if the thread pool is overloaded, or if the
thread pool has loaded the data several times and it was not in memory afterwards.

In a session a fetch reads only the ready partitions, in the session's order. Without a session it reads all
partitions, in the order of the request.

A consumer may also read from this broker if this broker is a follower: the consumer gets the records up to the high
watermark that this broker knows. If this broker is the leader and `replica.selector.class` selects by rack, a consumer
with a nearer replica gets the id of that replica and no records."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from jesenska.base.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import FETCH_WAIT_MAX_MS
from jesenska.base.regions import FileRegion
from jesenska.broker.fetching.down_conversion import DownConversion, magic_for, refuse
from jesenska.broker.fetching.fetch_sessions import NO_SESSION, FetchSession, SessionPartition, WantedPartition
from jesenska.broker.fetching.fetch_states import (
    ANSWERING,
    CLIENT_GONE,
    CONVERTING,
    DONE,
    HAPPENS,
    NEWS,
    POOL_DONE,
    POOL_FULL,
    READING,
    READING_AHEAD,
    STOP,
    TIME_UP,
    WAITING,
    WARMING,
    FetchEvent,
    FetchState,
    after_answer,
    after_read,
    waits_for_disk,
)
from jesenska.broker.requests.connection import Context
from jesenska.broker.requests.families import FetchFamily
from jesenska.log.disk.files import probe_cold, read_ahead
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import ReadResult, aborted_transactions, warm_up_for
from jesenska.log.segments.segment import ColdError
from jesenska.quotas.client_quotas import ClientLimits
from jesenska.records.header import MAGIC_V2
from jesenska.replication.leader.read_replicas import nearest_follower
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseCurrentLeader,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.metadata_cache import MetadataCache
    from jesenska.broker.requests.authorization.access import Access

_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
_READ_COMMITTED = 1
_FIRST_AT_FOLLOWERS = 11
_FIRST_WITH_LEADERS = 16

#: The approximate size in bytes of an answer without its records.
_ANSWER_BYTES = 60

#: The partitions that a request names, by topic.
Plan = list[tuple[FetchRequestTopic, list[WantedPartition]]]


class Fetch:
    """A fetch that is being carried out. It implements `waiting.Waiter`. Subclasses add the partitions and the form of
    the answer."""

    __slots__ = (
        "_access",
        "_cold",
        "_context",
        "_conversions",
        "_is_woken",
        "_leader_only",
        "_magic",
        "_max_wait_ms",
        "_moved",
        "_rack",
        "_read_committed",
        "_regions",
        "_response",
        "_room_bytes",
        "_state",
        "_time_is_up",
        "_until",
        "_uses",
        "_waits_for_disk",
        "_warm_ups",
        "max_bytes",
        "min_bytes",
    )

    def __init__(self, uses: FetchFamily, request: FetchRequest, context: Context) -> None:
        self._uses = uses
        self._context = context
        self._access = context.access
        self.max_bytes = min(request.max_bytes, uses.rules.max_bytes)
        limits = context.limits
        if limits is not None and limits.fetch_max_bytes is not None:
            self.max_bytes = min(self.max_bytes, limits.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        #: The broker ids of the new leaders for which the answer contains addresses; None if it names no new leader.
        self._moved: set[int] | None = None
        self._leader_only = context.version < _FIRST_AT_FOLLOWERS
        #: The consumer's rack; empty if consumers are not sent to followers.
        self._rack = request.rack_id if uses.rules.by_rack else ""
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._state = READING
        self._response: FetchResponse | None = None
        self._regions: list[FileRegion] = []
        #: The number of the message format that the client reads (None: batches), and the conversions for the last
        #: read.
        self._magic = magic_for(context.version)
        self._conversions: list[DownConversion] = []
        #: The logs and offsets that the last read skipped, because looking up the offset could have waited for the
        #: disk.
        self._cold: list[tuple[PartitionLog, int]] = []
        self._warm_ups = 0
        self._waits_for_disk = False
        self._max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        self._time_is_up = self._max_wait_ms <= 0
        #: True if the fetch waited for its first record and was woken. The records were appended a moment ago, so they
        #: are in memory.
        self._is_woken = False
        #: The time at which the wait ends, in seconds of the monotonic clock; None before the wait has begun.
        self._until: float | None = None
        #: The number of bytes that may still be converted for this answer; None before the first region is converted.
        self._room_bytes: int | None = None

    def read(self) -> FetchState:
        """Reads the available records, and returns the next state."""
        raise NotImplementedError

    def watch(self) -> None:
        """Registers the fetch at its partitions, so that their changes wake it. Does nothing by default."""

    def wait(self) -> None:
        """Starts to wait for more records, in the waiting room (`broker.waiting`)."""
        raise NotImplementedError

    def response(self) -> FetchResponse:
        """Returns the answer with the records that were read. Called once, when the answer is about to be sent."""
        raise NotImplementedError

    # --- from state to state -----------------------------------------------------------------------------------------

    def go_on(self, state: FetchState) -> FetchResponse | None:
        """Goes from state to state, beginning with `state`. Returns the answer when it is ready, or None if the fetch
        must wait. A new fetch begins with READING."""
        cold: list[FileRegion] | None = None
        while True:
            self._state = state
            if state is READING:
                if self._until is not None:
                    self._time_is_up = self.seconds_left() <= 0
                state = self.read()
            elif state is ANSWERING:
                if self._context.limits is not None and self._is_throttled(self._context.limits):
                    self.release()
                    return self.throttled_response()
                self._response = self.response()
                if self._regions and not self._conversions and not self._is_woken:
                    cold = [region for region in self._regions if probe_cold(region)]
                state = after_answer(bool(self._conversions), bool(cold))
            elif state is DONE:
                return self._response
            elif state is WAITING:
                self.release()
                self._waits_for_disk, self._warm_ups = False, 0
                self.wait()
                return None
            elif state is WARMING:
                if self._warm_up():
                    return None
                state = HAPPENS[state][POOL_FULL]
            elif state is READING_AHEAD:
                assert cold is not None
                if self._read_ahead(cold):
                    return None
                state = HAPPENS[state][POOL_FULL]
            elif state is CONVERTING:
                if self._convert():
                    return None
                state = HAPPENS[state][POOL_FULL]
            else:
                self.release()
                return None

    def _is_throttled(self, limits: ClientLimits) -> bool:
        """Counts the answer for the client's quotas. Returns True if the client is above a quota; the client then gets
        an answer without records."""
        size_bytes = sum([region.size_bytes for region in self._regions]) + _ANSWER_BYTES
        context, now_ms = self._context, int(self._uses.clock.monotonic() * 1000)
        context.is_counted = True
        context.throttle_ms = limits.fetched(size_bytes, context.seconds_in_work(), now_ms)
        return context.throttle_ms > 0

    def throttled_response(self) -> FetchResponse:
        """Returns the answer to a client that is above its quota. It has no records, and does not change a session."""
        return FetchResponse()

    def _after(self, event: FetchEvent) -> FetchState:
        """Returns the state after an event. If the connection is closed, the event CLIENT_GONE is used instead."""
        return HAPPENS[self._state][CLIENT_GONE if self._context.gone else event]

    def _enter(self, state: FetchState) -> None:
        """Continues in this state after a wait, and sends the answer if it is ready."""
        response = self.go_on(state)
        if response is not None:
            self._context.answer(response)

    def try_complete(self) -> bool:
        state = self._after(NEWS)
        if state is READING:
            state = self.read()
            self._is_woken = state is ANSWERING and self.min_bytes <= 1
            if state is WAITING:
                self.release()
                self.watch()
                return False
        self._enter(state)
        return True

    def expire(self) -> None:
        self._until = 0.0
        self._enter(self._after(TIME_UP))

    def end(self) -> None:
        self._until = 0.0
        self._enter(self._after(STOP))

    def seconds_left(self) -> float:
        """Returns the time in seconds that the fetch may still wait."""
        if self._until is None:
            return self._max_wait_ms / 1000
        return self._until - self._uses.clock.monotonic()

    # --- work for the thread pool ------------------------------------------------------------------------------------

    def _warm_up(self) -> bool:
        """Lets the thread pool load the data that the last read needed and that was not in memory. Returns False if
        the pool is full."""
        self.release()
        cold, self._cold = self._cold, []
        self._warm_ups += 1
        if self._until is None:
            self._until = self._uses.clock.monotonic() + self._max_wait_ms / 1000
        warm_ups = [warm_up_for(log, offset) for log, offset in cold]

        def run() -> None:
            for warm_up in warm_ups:
                warm_up.run()

        def finish() -> None:
            for warm_up in warm_ups:
                warm_up.done()
            self._waits_for_disk = waits_for_disk(self._warm_ups, POOL_DONE)
            self._enter(self._after(POOL_DONE))

        try:
            self._uses.pool.submit(run, finish)
        except RequestTimedOutError:
            self._waits_for_disk = waits_for_disk(self._warm_ups, POOL_FULL)
            return False
        return True

    def _read_ahead(self, cold: list[FileRegion]) -> bool:
        """Lets the thread pool read these regions, so that the event loop does not wait for the disk. Returns False if
        the pool is full."""

        def read_all() -> None:
            for region in cold:
                read_ahead(region)

        def finish() -> None:
            self._enter(self._after(POOL_DONE))

        try:
            self._uses.pool.submit(read_all, finish)
        except RequestTimedOutError:
            return False
        return True

    def _convert(self) -> bool:
        """Lets the thread pool convert batches to the message format of the client or the topic. Returns False if the
        pool is full; the connection is then closed."""
        conversions = self._conversions
        converted = {id(conversion.region) for conversion in conversions}
        others = [region for region in self._regions if id(region) not in converted]
        connection = self._context.connection
        connection.lend(sum(conversion.region.size_bytes for conversion in conversions))

        def run() -> None:
            for conversion in conversions:
                conversion.run()
            for region in others:
                read_ahead(region)

        def finish() -> None:
            if not self._context.gone:
                self._regions, self._conversions = others, []
                for conversion in conversions:
                    conversion.region.release()
                connection.lend(sum(conversion.size_bytes for conversion in conversions))
            self._enter(self._after(POOL_DONE))

        try:
            self._uses.pool.submit(run, finish)
        except RequestTimedOutError as error:
            self._context.close(f"too many answers wait to be converted: {error}")
            return False
        return True

    # --- the answer of a partition -----------------------------------------------------------------------------------

    def refused(self, wanted: WantedPartition, answer: FetchResponsePartition, error: KafkaError) -> bool:
        """Puts an error into a partition's answer. Returns True if the fetch must be answered without waiting because
        of the error."""
        answer.error_code = error.code
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            answer.aborted_transactions = []
            return False
        partition = wanted.partition
        if partition is None:
            if error.code in _UNKNOWN:
                answer.aborted_transactions = []
            return False
        if error.code in _MOVED and self._context.version >= _FIRST_WITH_LEADERS:
            answer.current_leader = FetchResponseCurrentLeader(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            if self._moved is None:
                self._moved = set()
            self._moved.add(partition.leader)
        return True

    def sends_elsewhere(self, wanted: WantedPartition, partition: Partition, answer: FetchResponsePartition) -> bool:
        """Returns True if the consumer must read a partition from a nearer follower. The answer then names this
        follower, and is sent without waiting. Raises the same errors as a read with a wrong leader epoch."""
        if not partition.leads:
            return False
        log = partition.leader_log(max(wanted.current_leader_epoch, -1))
        view, name = self._uses.view, self._context.connection.listener_name
        follower = nearest_follower(
            partition.leader,
            partition.readable_from(wanted.fetch_offset),
            self._rack,
            lambda broker_id: view.rack_of(broker_id, name),
        )
        if follower is None:
            return False
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        answer.preferred_read_replica = follower
        wanted.has_more = False
        return True

    def read_from(
        self, wanted: WantedPartition, partition: Partition, max_bytes: int, minimum_one_batch: bool
    ) -> ReadResult:
        """Reads at most `max_bytes` of a partition for this fetch. Raises the same errors as `Partition.read`."""
        return partition.read(
            wanted.fetch_offset,
            min(wanted.max_bytes, max_bytes),
            wanted.current_leader_epoch,
            minimum_one_batch,
            self._waits_for_disk,
            self._leader_only,
            self._read_committed,
        )

    def found(
        self, wanted: WantedPartition, partition: Partition, result: ReadResult, answer: FetchResponsePartition
    ) -> int:
        """Puts the result of a read into a partition's answer. Returns the size of the records in bytes."""
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = result.log_start_offset
        if self._read_committed:
            answer.aborted_transactions = [
                FetchResponseAbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in aborted_transactions(partition.replica_log(), wanted.fetch_offset, result)
            ]
        wanted.has_more = result.has_more
        region = result.region
        magic = self._magic
        config = partition.replica_log().config
        if config.message_magic < MAGIC_V2 and (magic is None or magic > config.message_magic):
            magic = config.message_magic
        elif magic is not None and magic < config.message_magic and not config.down_converts:
            if region is not None:
                region.release()
            refuse(answer, ErrorCode.UNSUPPORTED_VERSION)
            return 0
        if region is not None and magic is not None:
            region = self._within_room(wanted, partition, region)
        if region is None:
            answer.records = b""
            return 0
        answer.records = region
        self._regions.append(region)
        if magic is not None:
            self._conversions.append(DownConversion(answer, region, wanted.fetch_offset, magic))
        return region.size_bytes

    def _within_room(self, wanted: WantedPartition, partition: Partition, region: FileRegion) -> FileRegion | None:
        """Returns the part of a region that may be converted, or None if no part may be converted. The size is limited
        because a converted answer is in memory until the client has read it. The first batch of the answer may always
        be converted."""
        room = self._room_bytes
        if room is None:
            room = self._context.connection.answer_room_bytes()
        if region.size_bytes > room:
            region.release()
            wanted.has_more = True
            if self._conversions:
                return None
            smaller = partition.read(
                wanted.fetch_offset, room, -1, True, True, self._leader_only, self._read_committed
            ).region
            assert smaller is not None
            region = smaller
        self._room_bytes = max(0, room - region.size_bytes)
        return region

    def cold(self, wanted: WantedPartition) -> None:
        """Records that reading a partition could wait for the disk, so that the thread pool loads its data."""
        assert wanted.partition is not None
        self._cold.append((wanted.partition.replica_log(), wanted.fetch_offset))

    def release(self) -> None:
        """Releases the regions that were read, because they will not be sent."""
        for region in self._regions:
            region.release()
        self._regions = []
        self._conversions = []
        self._room_bytes = None

    def tell_endpoints(self, response: FetchResponse) -> None:
        """Adds to an answer the addresses of the new leaders that it names."""
        response.node_endpoints = [
            FetchResponseNodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in self._uses.view.endpoints_for(self._context.connection.listener_name)
            if self._moved is not None and node.broker_id in self._moved
        ]


class FullFetch(Fetch):
    """A fetch that names all its partitions: it has no session, or is the first of its session."""

    __slots__ = ("_begins_session", "_by_id", "_knows_none", "_plan", "_responses")

    def __init__(
        self,
        uses: FetchFamily,
        request: FetchRequest,
        context: Context,
        plan: Plan,
        knows_none: bool,
        by_id: bool,
        begins_session: bool,
    ) -> None:
        super().__init__(uses, request, context)
        self._plan = plan
        #: True if the request names no known partition, so that there is nothing to wait for.
        self._knows_none = knows_none
        self._by_id = by_id
        #: True if a session begins with this fetch. The session is created when the answer is made.
        self._begins_session = begins_session
        self._responses: list[FetchResponseTopic] = []

    def read(self) -> FetchState:
        left, total, ends = self.max_bytes, 0, self._knows_none
        rack, access, may_read_any = self._rack, self._access, False
        self._moved = None
        self._regions = []
        self._responses = responses = []
        for asked, items in self._plan:
            partitions = []
            for wanted in items:
                answer = FetchResponsePartition(
                    partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b""
                )
                partitions.append(answer)
                partition = wanted.partition
                try:
                    if access is not None:
                        name = asked.topic if partition is None else partition.topic_partition.topic
                        require_read(access, name)
                        may_read_any = may_read_any or partition is not None
                    if partition is None:
                        assert wanted.error is not None
                        raise wanted.error
                    if rack and self.sends_elsewhere(wanted, partition, answer):
                        ends = True
                        continue
                    result = self.read_from(wanted, partition, left, total == 0)
                except KafkaError as error:
                    ends = self.refused(wanted, answer, error) or ends
                    continue
                except ColdError:
                    self.cold(wanted)
                    continue
                ends = ends or result.is_final
                size_bytes = self.found(wanted, partition, result, answer)
                total += size_bytes
                left -= size_bytes
            responses.append(FetchResponseTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions))
        if access is not None and not may_read_any:
            ends = True
        return after_read(bool(self._cold), total, self.min_bytes, ends, self._time_is_up)

    def response(self) -> FetchResponse:
        response = FetchResponse(responses=self._responses)
        if self._moved:
            self.tell_endpoints(response)
        if self._begins_session:
            response.session_id = self._begin_session()
        return response

    def _watched(self) -> list[TopicPartition]:
        return [
            wanted.partition.topic_partition
            for _, items in self._plan
            for wanted in items
            if wanted.partition is not None
        ]

    def wait(self) -> None:
        self._context.on_abandoned = self._uses.waiting.add(self, self._watched(), self.seconds_left())

    def _begin_session(self) -> int:
        """Creates a session from the request and the answer. Returns its session id, or 0 if there is no room."""
        by_id, view = self._by_id, self._uses.view
        parts: list[tuple[str, uuid.UUID, SessionPartition]] = []
        for asked, items in self._plan:
            topic = view.by_id.get(asked.topic_id) if by_id else None
            name = asked.topic if topic is None else topic.name
            parts.extend((name, asked.topic_id, wanted) for wanted in items if isinstance(wanted, SessionPartition))
        uses = self._uses
        session = uses.sessions.create(parts, False, by_id, int(uses.clock.monotonic() * 1000))
        if session is None:
            return NO_SESSION
        answers = (answer for answered in self._responses for answer in answered.partitions)
        for (name, topic_id, wanted), answer in zip(parts, answers, strict=True):
            session.note_answer(session.held(name, topic_id, wanted.index), answer)
        return session.session_id


class SessionFetch(Fetch):
    """A fetch that continues a session: it reads only the session's ready partitions."""

    __slots__ = ("_epoch", "_found", "_session")

    def __init__(self, uses: FetchFamily, request: FetchRequest, context: Context, session: FetchSession) -> None:
        super().__init__(uses, request, context)
        self._session = session
        self._epoch = session.epoch
        self._max_wait_ms = session.patience_ms(self._max_wait_ms, session.used_ms)
        self._found: list[tuple[SessionPartition, FetchResponsePartition]] = []

    def read(self) -> FetchState:
        session, view = self._session, self._uses.view
        left, total, ends = self.max_bytes, 0, session.closed or session.epoch != self._epoch
        rack, access = self._rack, self._access
        self._moved = None
        self._regions = []
        self._found = []
        unknown = []
        for wanted in session.ready():
            answer = FetchResponsePartition(
                partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b""
            )
            partition = wanted.partition
            try:
                if partition is None or not partition.has_log:
                    resolve(view, wanted, session.uses_topic_ids)
                    partition = wanted.partition
                if access is not None:
                    require_read(access, wanted.topic)
                if partition is None:
                    assert wanted.error is not None
                    raise wanted.error
                self._found.append((wanted, answer))
                if rack and self.sends_elsewhere(wanted, partition, answer):
                    ends = True
                    continue
                result = self.read_from(wanted, partition, left, total == 0)
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
            size_bytes = self.found(wanted, partition, result, answer)
            total += size_bytes
            left -= size_bytes
        # As in Kafka, unknown partitions come last. They end the wait only if all partitions are unknown.
        self._found += unknown
        must_end = ends or len(unknown) == session.size
        return after_read(bool(self._cold), total, self.min_bytes, must_end, self._time_is_up)

    def response(self) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            # Another request of this session came while this request waited. An answer to this request would
            # contradict the answer to the other request.
            self.release()
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
        responses: list[FetchResponseTopic] = []
        for wanted, answer in self._found:
            if not session.must_tell(wanted, answer):
                continue
            last = responses[-1] if responses else None
            if last is None or (
                last.topic_id != wanted.topic_id if session.uses_topic_ids else last.topic != wanted.topic
            ):
                last = FetchResponseTopic(topic=wanted.topic, topic_id=wanted.topic_id)
                responses.append(last)
            last.partitions.append(answer)
        response = FetchResponse(session_id=session.session_id, responses=responses)
        if self._moved:
            self.tell_endpoints(response)
        return response

    def throttled_response(self) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
        return FetchResponse(session_id=session.session_id)

    def wait(self) -> None:
        self.watch()
        self._context.on_abandoned = self._uses.waiting.add(self, (self._session,), self.seconds_left())

    def watch(self) -> None:
        """Registers the session's ready partitions at their `Partition` objects, so that this fetch is woken when a
        partition gets more records."""
        for wanted in self._session.ready():
            if wanted.partition is not None:
                wanted.partition.watch(wanted)


def require_read(access: Access, topic: str) -> None:
    """Raises TopicAuthorizationFailedError if the user may not read the topic. An empty name is allowed: it means a
    topic whose id is unknown."""
    if topic and not access.may_read(topic):
        raise TopicAuthorizationFailedError(f"{access.principal} may not read the topic")


def resolve(view: MetadataCache, wanted: SessionPartition, by_id: bool) -> None:
    """Finds the `Partition` object for a session's entry, if the entry has no object or the object no longer has a
    log. Sets the entry's error if this broker has no such partition."""
    wanted.unwatch()
    wanted.partition = None
    if by_id and not wanted.topic:
        found = view.by_id.get(wanted.topic_id)
        if found is None:
            wanted.error = UnknownTopicIdError
            return
        wanted.topic = found.name
    topic = view.topics.get(wanted.topic)
    if topic is None or not 0 <= wanted.index < len(topic.partitions):
        wanted.error = UnknownTopicOrPartitionError
    elif by_id and wanted.topic_id != topic.topic_id:
        wanted.error = InconsistentTopicIdError
    else:
        wanted.partition = topic.partitions[wanted.index]
