"""Fetch (key 1), versions 0-18.

    0      message sets: format v0, from 2 on v1 (`broker.down_conversion`)
    4      record batches v2, isolation level
    5      log start offset
    7      sessions (KIP-227), the rules of which are in `broker.fetch_sessions`
    9      leader epochs
    10     zstd
    12     compact; diverging epochs (followers)
    13     topic ids instead of names
    16     hints of a new leader

The answer's records are pieces of the log's files, never read here: the transport sends them from the page cache. The batch that holds the
offset comes whole, the first of the answer even if it exceeds the limits; in every later partition one that does exceed them is left for the next answer.
Until `min_bytes` have gathered the request waits, at most `max_wait_ms`; an error of a partition that is here ends the wait, and so does a request of which
no partition is known here.

Without a session, and in the first request of one, partitions are read in the order of the request, which clients turn themselves. In a session only
those are read that have something new, in the session's order.

A topic that is not known: by name UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID. A session remembers the name of an id; if that name belongs to another
topic now, INCONSISTENT_TOPIC_ID.

A topic whose `message.format.version` is older gives every consumer that format. With `message.downconversion.enable=false` a consumer that would need
its records made over is told UNSUPPORTED_VERSION.

Nothing here waits for the disk: where finding an offset could (its index is not loaded, pages are not in memory) the pool gets what it takes, and the fetch is
tried again; the pages of the records themselves are looked after when the answer is known.

A partition that is named twice is read once, from where it is named last. A request with a replica id comes from a broker that follows nothing here:
NOT_LEADER_OR_FOLLOWER, or UNKNOWN_LEADER_EPOCH where it tells the current epoch.

Left out: followers, preferred read replicas.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from jesenska.base.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import FETCH_WAIT_MAX_MS
from jesenska.base.regions import FileRegion
from jesenska.broker.dispatch import LATER, Context, Outcome
from jesenska.broker.down_conversion import DownConversion, magic_for, refuse
from jesenska.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, SessionPartition, WantedPartition
from jesenska.broker.gate import handles
from jesenska.log.files import probe_cold, read_ahead
from jesenska.log.partition_log import PartitionLog
from jesenska.log.reading import ReadResult, warm_up_for
from jesenska.log.segment import ColdError
from jesenska.records.header import MAGIC_V2
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseCurrentLeader,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.metadata_cache import MetadataCache
    from jesenska.broker.services import Services

_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
_READ_COMMITTED = 1
_FIRST_WITH_LEADERS = 12
_FIRST_WITH_IDS = 13
_FIRST_WITH_ENDPOINTS = 16
#: How often the pool may bring into memory what one fetch needs before the fetch waits for the disk.
_WARM_UPS_MAX = 3


class _Fetch:
    """A fetch in work: reads what there is, or waits for more (a `waiting.Waiter`). Subclasses know which partitions, and what the answer looks like."""

    __slots__ = (
        "_broker",
        "_cold",
        "_context",
        "_conversions",
        "_magic",
        "_max_wait_ms",
        "_moved",
        "_read_committed",
        "_regions",
        "_room_bytes",
        "_until",
        "_waits",
        "_warmed",
        "max_bytes",
        "min_bytes",
    )

    def __init__(self, broker: Services, request: FetchRequest, context: Context) -> None:
        self._broker = broker
        self._context = context
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self._moved = False
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._regions: list[FileRegion] = []
        #: The format of message sets that the client wants, and what the last read found for it.
        self._magic = magic_for(context.version)
        self._conversions: list[DownConversion] = []
        #: What the last read could not find without perhaps waiting for the disk.
        self._cold: list[tuple[PartitionLog, int]] = []
        self._warmed = 0
        self._waits = False
        self._max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        #: Bytes that may still be converted for this answer, once the first have been.
        self._room_bytes: int | None = None
        self._until: float | None = None

    def read(self) -> tuple[int, bool]:
        """Reads what there is now: its bytes of records, and whether it must be answered whatever else comes."""
        raise NotImplementedError

    def wait(self) -> None:
        """Waits for more than there is, in the waiting room."""
        raise NotImplementedError

    def response(self) -> FetchResponse:
        """What was read, as the answer; once, and then it is sent."""
        raise NotImplementedError

    def refused(self, wanted: WantedPartition, answer: FetchResponsePartition, error: KafkaError) -> bool:
        """Puts an error into a partition's answer; True if it ends the wait."""
        answer.error_code = error.code
        partition = wanted.partition
        if partition is None:
            if error.code in _UNKNOWN:
                answer.aborted_transactions = []
            return False
        if error.code in _MOVED and self._context.version >= _FIRST_WITH_LEADERS:
            answer.current_leader = FetchResponseCurrentLeader(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
            self._moved = True
        return True

    def found(self, wanted: WantedPartition, partition: Partition, result: ReadResult, answer: FetchResponsePartition) -> int:
        """Puts what was read into a partition's answer; its bytes of records."""
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = result.log_start_offset
        if self._read_committed:
            answer.aborted_transactions = []
        wanted.has_more = result.has_more
        region = result.region
        magic = self._magic
        config = partition.leader_log().config
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
        """What of a region may be converted: a converted answer is in memory until the client has taken it. The first batch of the answer always may."""
        room = self._room_bytes
        if room is None:
            room = self._context.connection.answer_room_bytes()
        if region.size_bytes > room:
            region.release()
            wanted.has_more = True
            if self._conversions:
                return None
            smaller = partition.read(wanted.fetch_offset, room, -1, True).region
            assert smaller is not None
            region = smaller
        self._room_bytes = max(0, room - region.size_bytes)
        return region

    def completed(self, response: FetchResponse) -> FetchResponse:
        """The answer with where the leaders are that it names."""
        if self._moved and self._context.version >= _FIRST_WITH_ENDPOINTS:
            response.node_endpoints = [
                FetchResponseNodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in self._broker.endpoints_for(self._context.connection.listener_name)
            ]
        return response

    def release(self) -> None:
        """Lets go of what was read and is not sent."""
        for region in self._regions:
            region.release()
        self._regions = []
        self._conversions = []
        self._room_bytes = None

    def warm(self, response: FetchResponse, send: Callable[[FetchResponse], None]) -> bool:
        """Pages that are not in memory are read in the pool first, so that the loop does not wait for the disk; so is what must be converted. True if
        there is something to do."""
        if self._conversions:
            self._convert(response, send)
            return True
        cold = [region for region in self._regions if probe_cold(region)]
        if not cold:
            return False

        def finish() -> None:
            if self._context.gone:
                self.release()
            else:
                send(response)

        def read_all() -> None:
            for region in cold:
                read_ahead(region)

        try:
            self._broker.pool.submit(read_all, finish)
        except RequestTimedOutError:
            return False  # too much waits for the pool already: this answer waits for the disk itself
        return True

    def _convert(self, response: FetchResponse, send: Callable[[FetchResponse], None]) -> None:
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
            if self._context.gone:
                self.release()
                return
            self._regions, self._conversions = others, []
            for conversion in conversions:
                conversion.region.release()
            connection.lend(sum(conversion.size_bytes for conversion in conversions))
            send(response)

        try:
            self._broker.pool.submit(run, finish)
        except RequestTimedOutError as error:
            self.release()
            self._context.close(f"too many answers wait to be converted: {error}")

    def cold(self, wanted: WantedPartition) -> None:
        """The read of a partition could wait for the disk."""
        assert wanted.partition is not None
        self._cold.append((wanted.partition.leader_log(), wanted.fetch_offset))

    def begin(self) -> Outcome:
        """Answers, or sees to it that there is an answer later."""
        total, ends = self.read()
        if self._cold:
            self._warm_up()
            return LATER
        if total >= self.min_bytes or ends or self._max_wait_ms <= 0 or not self.can_wait():
            response = self.response()
            if total and self.warm(response, self._context.answer):
                return LATER
            return response
        self.release()
        self.wait()
        return LATER

    def can_wait(self) -> bool:
        """True if there is anything to wait for."""
        return True

    def _warm_up(self) -> None:
        """Has what the last read needs brought into memory, then reads again. After a few rounds, or if the pool is overloaded, it waits for the disk."""
        self.release()
        cold, self._cold = self._cold, []
        self._warmed += 1
        self._waits = self._warmed >= _WARM_UPS_MAX
        if self._until is None:
            self._until = self._broker.clock.monotonic() + self._max_wait_ms / 1000
        warm_ups = [warm_up_for(log, offset) for log, offset in cold]

        def run() -> None:
            for warm_up in warm_ups:
                warm_up.run()

        def finish() -> None:
            for warm_up in warm_ups:
                warm_up.done()
            if not self._context.gone:
                self._again()

        try:
            self._broker.pool.submit(run, finish)
        except RequestTimedOutError:
            self._waits = True
            self._again()

    def _again(self) -> None:
        total, ends = self.read()
        if self._cold:
            self._warm_up()
        elif total >= self.min_bytes or ends or self.seconds_left() <= 0 or not self.can_wait():
            self._answer()
        else:
            self._waits, self._warmed = False, 0
            self.release()
            self.wait()

    def seconds_left(self) -> float:
        """How much longer it may wait."""
        if self._until is None:
            return self._max_wait_ms / 1000
        return self._until - self._broker.clock.monotonic()

    # --- waiting ------------------------------------------------------------------------------------------------------------------------

    def try_complete(self) -> bool:
        total, ends = self.read()
        if self._cold:
            self._warm_up()
            return True
        if total < self.min_bytes and not ends:
            self.release()
            return False
        self._answer()
        return True

    def end(self) -> None:
        self.expire()

    def expire(self) -> None:
        self._until = 0.0
        self.read()
        if self._cold:
            self._warm_up()
        else:
            self._answer()

    def _answer(self) -> None:
        if self._context.gone:
            self.release()
            return
        response = self.response()
        if not self.warm(response, self._context.answer):
            self._context.answer(response)


class _FullFetch(_Fetch):
    """A fetch that names all its partitions: without a session, or the first of one."""

    __slots__ = ("_begins", "_plan", "_responses")

    def __init__(self, broker: Services, request: FetchRequest, context: Context, begins: Callable[[_FullFetch], int] | None) -> None:
        super().__init__(broker, request, context)
        #: Opens a session when the answer is known, and gives its id.
        self._begins = begins
        make = WantedPartition if begins is None else SessionPartition
        view, by_id = broker.view, context.version >= _FIRST_WITH_IDS
        follows = _is_follower(request)
        named: dict[tuple[str | uuid.UUID, int], WantedPartition] | None = {} if _names_twice(request, by_id) else None
        self._plan: list[tuple[FetchRequestTopic, list[WantedPartition]]] = []
        self._responses: list[FetchResponseTopic] = []
        for asked in request.topics:
            topic = view.by_id.get(asked.topic_id) if by_id else view.topics.get(asked.topic)
            items = []
            key = asked.topic_id if by_id else asked.topic
            for part in asked.partitions:
                wanted = make(part.partition, part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes)
                if named is not None and (first := named.setdefault((key, part.partition), wanted)) is not wanted:
                    first.fetch_offset, first.current_leader_epoch, first.max_bytes = part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes
                    if follows and topic is not None and 0 <= part.partition < len(topic.partitions):
                        first.error = _refuse_follower(topic.partitions[part.partition], part.current_leader_epoch)
                    continue
                if topic is None:
                    wanted.error = UnknownTopicIdError if by_id else UnknownTopicOrPartitionError
                elif not 0 <= part.partition < len(topic.partitions):
                    wanted.error = UnknownTopicOrPartitionError
                elif follows:
                    wanted.error = _refuse_follower(topic.partitions[part.partition], part.current_leader_epoch)
                else:
                    wanted.partition = topic.partitions[part.partition]
                items.append(wanted)
            if items:
                self._plan.append((asked, items))

    def read(self) -> tuple[int, bool]:
        left, total, ends = self.max_bytes, 0, False
        self._moved = False
        self._regions = []
        self._responses = responses = []
        for asked, items in self._plan:
            partitions = []
            for wanted in items:
                answer = FetchResponsePartition(partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b"")
                partitions.append(answer)
                partition = wanted.partition
                try:
                    if partition is None:
                        assert wanted.error is not None
                        raise wanted.error
                    result = partition.read(wanted.fetch_offset, min(wanted.max_bytes, left), wanted.current_leader_epoch, total == 0, self._waits)
                except KafkaError as error:
                    ends = self.refused(wanted, answer, error) or ends
                    continue
                except ColdError:
                    self.cold(wanted)
                    continue
                size_bytes = self.found(wanted, partition, result, answer)
                total += size_bytes
                left -= size_bytes
            responses.append(FetchResponseTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions))
        return total, ends

    def response(self) -> FetchResponse:
        response = self.completed(FetchResponse(responses=self._responses))
        if self._begins is not None:
            response.session_id = self._begins(self)
        return response

    def _watched(self) -> list[TopicPartition]:
        return [wanted.partition.topic_partition for _, items in self._plan for wanted in items if wanted.partition is not None]

    def can_wait(self) -> bool:
        return any(wanted.partition is not None for _, items in self._plan for wanted in items)

    def wait(self) -> None:
        self._context.connection.on_abandoned = self._broker.waiting.add(self, self._watched(), self.seconds_left())

    def begin_session(self, is_privileged: bool) -> int:
        """Remembers what was asked and what is answered; the session's id, 0 if there is no room for one."""
        by_id, view = self._context.version >= _FIRST_WITH_IDS, self._broker.view
        parts: list[tuple[str, uuid.UUID, SessionPartition]] = []
        for asked, items in self._plan:
            topic = view.by_id.get(asked.topic_id) if by_id else None
            name = asked.topic if topic is None else topic.name
            parts.extend((name, asked.topic_id, wanted) for wanted in items if isinstance(wanted, SessionPartition))
        broker = self._broker
        session = broker.fetch_sessions.create(parts, is_privileged, by_id, _now_ms(broker))
        if session is None:
            return NO_SESSION
        answers = (answer for answered in self._responses for answer in answered.partitions)
        for (name, topic_id, wanted), answer in zip(parts, answers, strict=True):
            session.told(session.held(name, topic_id, wanted.index), answer)
        return session.session_id


class _SessionFetch(_Fetch):
    """A fetch that goes on in a session: looks only at what is ready there."""

    __slots__ = ("_epoch", "_found", "_session")

    def __init__(self, broker: Services, request: FetchRequest, context: Context, session: FetchSession) -> None:
        super().__init__(broker, request, context)
        self._session = session
        self._epoch = session.epoch
        self._max_wait_ms = session.patience_ms(self._max_wait_ms, session.used_ms)
        self._found: list[tuple[SessionPartition, FetchResponsePartition]] = []

    def read(self) -> tuple[int, bool]:
        session, view = self._session, self._broker.view
        left, total, ends = self.max_bytes, 0, session.closed or session.epoch != self._epoch
        self._moved = False
        self._regions = []
        self._found = []
        unknown = []
        for wanted in session.ready():
            answer = FetchResponsePartition(partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b"")
            partition = wanted.partition
            try:
                if partition is None or not partition.is_served:
                    _resolve(view, wanted, session.uses_topic_ids)
                    partition = wanted.partition
                    if partition is None:
                        assert wanted.error is not None
                        raise wanted.error
                self._found.append((wanted, answer))
                result = partition.read(wanted.fetch_offset, min(wanted.max_bytes, left), wanted.current_leader_epoch, total == 0, self._waits)
            except KafkaError as error:
                if self.refused(wanted, answer, error):
                    ends = True
                else:
                    unknown.append((wanted, answer))
                continue
            except ColdError:
                self.cold(wanted)
                continue
            size_bytes = self.found(wanted, partition, result, answer)
            total += size_bytes
            left -= size_bytes
        # As Kafka has it, the unknown ones come last, and end the wait only if there is nothing else to wait for.
        self._found += unknown
        return total, ends or len(unknown) == session.size

    def response(self) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            # Another request of this session came meanwhile: what is answered now would contradict what that one is told.
            self.release()
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
        responses: list[FetchResponseTopic] = []
        for wanted, answer in self._found:
            if not session.must_tell(wanted, answer):
                continue
            last = responses[-1] if responses else None
            if last is None or (last.topic_id != wanted.topic_id if session.uses_topic_ids else last.topic != wanted.topic):
                last = FetchResponseTopic(topic=wanted.topic, topic_id=wanted.topic_id)
                responses.append(last)
            last.partitions.append(answer)
        return self.completed(FetchResponse(session_id=session.session_id, responses=responses))

    def wait(self) -> None:
        self._watch()
        self._context.connection.on_abandoned = self._broker.waiting.add(self, (self._session,), self.seconds_left())

    def _watch(self) -> None:
        """What is ready, and has less than was asked for, wakes this fetch when there is more of it."""
        for wanted in self._session.ready():
            if wanted.partition is not None:
                wanted.partition.watch(wanted)

    def try_complete(self) -> bool:
        if super().try_complete():
            return True
        self._watch()
        return False


def _resolve(view: MetadataCache, wanted: SessionPartition, by_id: bool) -> None:
    """Finds a session's partition, which was not known before or is gone."""
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


def _now_ms(broker: Services) -> int:
    return int(broker.clock.monotonic() * 1000)


def _names_twice(request: FetchRequest, by_id: bool) -> bool:
    """True if a partition may stand in the request more than once."""
    topics: set[str | uuid.UUID] = set()
    for asked in request.topics:
        topics.add(asked.topic_id if by_id else asked.topic)
        if len({part.partition for part in asked.partitions}) != len(asked.partitions):
            return True
    return len(topics) != len(request.topics)


def _is_follower(request: FetchRequest) -> bool:
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def _refuse_follower(partition: Partition, current_leader_epoch: int) -> type[KafkaError]:
    """What a broker that follows nothing here is told: its epoch is looked at first, and who knows the epoch is to come again."""
    try:
        partition.leader_log(max(current_leader_epoch, -1))
    except KafkaError as error:
        return type(error)
    return NotLeaderOrFollowerError if current_leader_epoch < 0 else UnknownLeaderEpochError


@handles(FetchRequest, 0, 18)
def handle(broker: Services, request: FetchRequest, context: Context) -> Outcome:
    epoch, session_id = request.session_epoch, request.session_id
    if epoch == FINAL_EPOCH and session_id == NO_SESSION:
        return _FullFetch(broker, request, context, None).begin()
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        broker.fetch_sessions.end(session_id)
        if epoch == FINAL_EPOCH:
            return _FullFetch(broker, request, context, None).begin()
        is_follower = _is_follower(request)
        return _FullFetch(broker, request, context, lambda fetch: fetch.begin_session(is_follower)).begin()
    session = broker.fetch_sessions.proceed(
        session_id, epoch, context.version >= _FIRST_WITH_IDS, request.topics, request.forgotten_topics_data, _now_ms(broker)
    )
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    if session.closed:
        return _FullFetch(broker, request, context, None).begin()
    return _SessionFetch(broker, request, context, session).begin()
