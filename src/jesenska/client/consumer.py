"""A consumer without a group. The caller names the partitions; the consumer keeps their positions, and fetches records
ahead from each leader.

One fetch per broker is in progress at a time. It asks for all partitions of that broker whose fetched records have
been returned to the caller. `poll` returns records, `poll_raw` the batches as they arrived (for Arrow columns, or for
copying). Batches are decoded only when `poll` returns their records. The consumer has a fetch session with each broker
(client.fetch_session), if the broker grants one.

The loss of a broker does not end the consumer. After errors that may pass it tries again, during and between the calls
of `poll`, until the broker answers. Until then `poll` returns nothing.

If the consumer has a rack, the leader may name a nearer replica (KIP-392). The consumer then fetches from that
replica. The leader is asked again after metadata.max.age.ms, and as soon as the replica returns an error, cannot be
reached, or is missing from the metadata. An offset that is out of range on the replica may be in the leader's log, so
the position does not change.

Each request has the leader epoch of the metadata (KIP-320). A broker that does not lead, or leads in another epoch,
refuses the request, and the metadata is requested again. Under a new leader a position is checked before its records
are fetched (client.positions):

    the metadata has an older epoch     it is requested again, from another broker if there is one; after
    than the position has               request.timeout.ms the leader in the metadata is asked all the same
    the log was truncated               reading goes on where the logs diverge; LogTruncationError if
                                        auto.offset.reset is none
    the leader does not know the epoch, reading goes on at the offset of auto.offset.reset;
    or the topic was created again and  LogTruncationError if that is none
    is shorter

With `isolation_level` 1 (read_committed) the batches of aborted transactions are removed (client.committed). Consumers
with a group are in client.group."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from jesenska.base.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    NetworkException,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_name,
)
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.client.cluster import Cluster, PartitionInfo
from jesenska.client.committed import without_aborted
from jesenska.client.fetch_session import Asked, FetchSessionHandler
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.positions import LogTruncationError, Position, epoch_ends
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.header import NO_LEADER_EPOCH
from jesenska.records.record import Record
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

logger = logging.getLogger(__name__)

_NAMES_NOT_IDS = 12
#: The time in seconds between two look-ups of a partition that no longer exists. Its topic may be created again.
_GONE_SECONDS = 5.0
#: The time in seconds for which all topics may be missing before an error is raised. A broker that has just started
#: does not know the topics yet.
_ALL_GONE_SECONDS = 5.0
#: The shortest time in seconds that a poll waits for a partition's leader to be reported, even if its own timeout is
#: shorter.
_LOOK_UP_SECONDS = 1.0
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches of one partition from `start_offset` on, as they are in the log. The first batch may begin before
    `start_offset`, and the last may be incomplete.

    `next_offset` is the start of the next fetch, `high_watermark` the end of the committed records, `leader_epoch` the
    epoch of the last batch."""

    topic_partition: TopicPartition
    start_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    data: memoryview
    leader_epoch: int = NO_LEADER_EPOCH


class _Led(NamedTuple):
    """The topic id and the leader epoch with which a position was last found to be valid in the log."""

    topic_id: UUID
    leader_epoch: int


class _Wanted(NamedTuple):
    """A partition to be fetched from a broker. If `is_checked` is false, its position must first be checked in the log
    of the present leader."""

    position: Position
    led: _Led
    is_checked: bool


class FetchOptions(TypedDict, total=False):
    """Options of a consumer for its fetches. `Consumer` has their defaults."""

    max_wait_seconds: float
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    isolation_level: int
    check_crcs: bool
    max_poll_records: int
    rack: str


class Consumer:
    """Reads partitions. `auto_offset_reset` is used if a position is outside of the log: earliest, latest or none
    (then OffsetOutOfRangeError is raised). The class is long because positions, fetches in progress and fetched
    records change together: while one method waits, another may change them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_wait_seconds: float = 0.5,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        max_partition_bytes: int = 1024 * 1024,
        auto_offset_reset: str = "earliest",
        isolation_level: int = 0,
        check_crcs: bool = True,
        max_poll_records: int = 500,
        rack: str = "",
    ) -> None:
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise InvalidRequestError(f"auto.offset.reset is {auto_offset_reset!r}: use earliest, latest or none.")
        self.cluster = cluster
        self.max_wait_seconds = max_wait_seconds
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_partition_bytes = max_partition_bytes
        self.auto_offset_reset = auto_offset_reset
        self.isolation_level = isolation_level
        self.check_crcs = check_crcs
        self.max_poll_records = max_poll_records
        self.rack = rack
        self._purpose = f"fetch-{id(self):x}"
        self._positions: dict[TopicPartition, Position] = {}
        self._led: dict[TopicPartition, _Led] = {}
        #: For each partition whose metadata has an older leader epoch than its position: the time when this was first
        #: noticed.
        self._doubted_since: dict[TopicPartition, float] = {}
        #: Fetched batches that have not been returned to the caller yet, in order. While a partition has such batches,
        #: no more are fetched.
        self._fetched: dict[TopicPartition, deque[Fetched]] = {}
        self._paused: set[TopicPartition] = set()
        #: Assigned partitions that no longer exist, and the time at which each partition is looked up again.
        self._gone_until: dict[TopicPartition, float] = {}
        #: The time since which all assigned partitions have been missing; None while at least one of them exists.
        self._all_gone_since: float | None = None
        #: The followers that leaders have named, and the time until which records are fetched from each instead of the
        #: leader.
        self._near: dict[TopicPartition, tuple[int, float]] = {}
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._in_flight: set[TopicPartition] = set()
        #: The number of fetches that have failed in a row, by broker.
        self._failures: dict[int, int] = {}
        #: The number of look-ups of leaders that have failed in a row.
        self._lookups_failed = 0
        #: Partitions whose leader is unknown or outdated, and the time until which each is not looked up again.
        self._unled_until: dict[TopicPartition, float] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._failure: BaseException | None = None
        self._arrived = asyncio.Event()
        self.high_watermarks: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- positions ---------------------------------------------------------------------------------------------------

    async def assign(self, partitions: Mapping[TopicPartition, int | Position] | Iterable[TopicPartition]) -> None:
        """Replaces the assigned partitions. Offsets may be EARLIEST and LATEST. Without offsets reading begins at the
        offset of `auto_offset_reset`. A Position with a leader epoch is checked in the leader's log."""
        start = LATEST if self.auto_offset_reset == "latest" else EARLIEST
        named = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, start)
        wanted = {key: _position(place) for key, place in named.items()}
        special = {key: position.offset for key, position in wanted.items() if position.offset < 0}
        if special:
            found = await list_offsets(self.cluster, special, self.isolation_level)
            wanted.update({key: Position(item.offset, item.leader_epoch) for key, item in found.items()})
        self._led = {
            key: led for key, led in self._led.items() if key in wanted and wanted[key] == self._positions.get(key)
        }
        self._doubted_since = {key: since for key, since in self._doubted_since.items() if key in wanted}
        self._unled_until = {key: until for key, until in self._unled_until.items() if key in wanted}
        self._positions = wanted
        self._fetched.clear()
        self._paused &= set(wanted)
        self._gone_until = {key: until for key, until in self._gone_until.items() if key in wanted}
        self._near = {key: near for key, near in self._near.items() if key in wanted}

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def position(self, topic_partition: TopicPartition) -> int:
        """Returns the offset of the record that `poll` returns next."""
        return self._positions[topic_partition].offset

    def position_with_epoch(self, topic_partition: TopicPartition) -> Position:
        """Returns the position in a partition: the offset of the next record, with the leader epoch of the last record
        read."""
        return self._positions[topic_partition]

    def seek(self, topic_partition: TopicPartition, offset: int | Position) -> None:
        """Moves the position, so that `poll` returns the record at this offset next. A Position with a leader epoch is
        checked in the leader's log."""
        if topic_partition not in self._positions:
            raise InvalidRequestError(f"{topic_partition} is not assigned to this consumer.")
        self._positions[topic_partition] = _position(offset)
        self._led.pop(topic_partition, None)
        self._doubted_since.pop(topic_partition, None)
        self._fetched.pop(topic_partition, None)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stops fetching and returning records of this partition until `resume` is called."""
        self._paused.add(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        self._paused.discard(topic_partition)

    # --- records -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_seconds: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Returns up to `max_records` records (by default `max_poll_records`), by partition. The result is empty if
        none arrived in time. Control records are left out. If records cannot be read, their error is raised when no
        other records are left to return, and in each later call until the position is after them."""
        result: dict[TopicPartition, list[Record]] = {}
        left = self.max_poll_records if max_records is None else max_records
        taken = await self._take(timeout_seconds)
        done = 0
        try:
            for fetched in taken:
                if left <= 0:
                    break
                partition = fetched.topic_partition
                records = []
                for record in decode_batches(fetched.data, self.check_crcs, fetched.start_offset):
                    records.append(record)
                    if len(records) == left:
                        break
                done += 1
                if len(records) == left and records[-1].offset + 1 < fetched.next_offset:
                    rest = records[-1].offset + 1
                    data, epoch = _from_batch_of(fetched.data, rest)
                    self._put_back(
                        Fetched(
                            partition,
                            rest,
                            fetched.next_offset,
                            fetched.high_watermark,
                            fetched.log_start_offset,
                            data,
                            fetched.leader_epoch,
                        )
                    )
                    self._positions[partition] = Position(rest, epoch)
                else:
                    self._positions[partition] = Position(fetched.next_offset, fetched.leader_epoch)
                left -= len(records)
                if records:
                    result[partition] = records
        except KafkaError:
            if not result:
                raise
        finally:
            for fetched in taken[done:]:
                self._put_back(fetched)
        return result

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        """Returns all batches that have arrived, undecoded, and moves the positions after them. The result is empty if
        none arrived in time."""
        taken = await self._take(timeout_seconds)
        for fetched in taken:
            self._positions[fetched.topic_partition] = Position(fetched.next_offset, fetched.leader_epoch)
        return taken

    def _put_back(self, fetched: Fetched) -> None:
        self._fetched.setdefault(fetched.topic_partition, deque()).appendleft(fetched)

    async def _take(self, timeout_seconds: float) -> list[Fetched]:
        deadline = self.cluster.clock.monotonic() + timeout_seconds
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            ready = [
                items.popleft()
                for key, items in self._fetched.items()
                if items and key in self._positions and key not in self._paused
            ]
            try:
                async with asyncio.timeout(max(deadline - self.cluster.clock.monotonic(), _LOOK_UP_SECONDS)):
                    await self._fetch_ahead(
                        {item.topic_partition: Position(item.next_offset, item.leader_epoch) for item in ready}
                    )
            except TimeoutError:
                self._lookups_failed += 1
            except BaseException:
                # Batches that are not returned are put back. Otherwise the next call would skip them.
                for item in ready:
                    position = self._positions.get(item.topic_partition)
                    if position is not None and position.offset == item.start_offset:
                        self._put_back(item)
                raise
            if ready:
                return ready
            left = deadline - self.cluster.clock.monotonic()
            if left <= 0:
                return []
            self._arrived.clear()
            pause = self.cluster.retry_pause_seconds(self._lookups_failed) if self._lookups_failed else left
            try:
                async with asyncio.timeout(min(left, pause)):
                    await self._arrived.wait()
            except TimeoutError:
                if pause >= left:
                    return []

    async def _fetch_ahead(self, taken: Mapping[TopicPartition, Position]) -> None:
        """Sends a fetch to each broker that has none in progress, for its partitions that have no fetched batches. A
        partition without a known leader waits for the next call."""
        wanted: dict[int, dict[TopicPartition, _Wanted]] = {}
        failed = waits = False
        unled: list[TopicPartition] = []
        doubted: set[str] = set()
        now = self.cluster.clock.monotonic()
        for key in list(self._positions):
            if self._fetched.get(key) or key in self._paused or key in self._in_flight:
                continue
            if self._unled_until and now < self._unled_until.get(key, now):
                waits = True
                continue
            try:
                info = await self._leader_of(key)
            except KafkaError as error:
                if not error.retriable or isinstance(error, UnknownTopicOrPartitionError):
                    raise
                failed = True
                if isinstance(error, NetworkException | RequestTimedOutError):
                    break  # no broker answers: the other partitions would only wait as long
                unled.append(key)
                continue
            position = taken.get(key) or self._positions.get(key)
            if info is None or position is None:
                continue
            led = _Led(info.topic_id, info.leader_epoch)
            is_checked = self._led.get(key) == led
            if not is_checked and self._was_replaced(key, position, led):
                unled.append(key)
                doubted.add(key.topic)
                continue
            self._unled_until.pop(key, None)
            if position.leader_epoch < 0 or led.leader_epoch < 0:
                self._led[key], is_checked = led, True
            asked = self._nearest(key, info) if is_checked else info.leader
            if asked not in self._fetching:
                wanted.setdefault(asked, {})[key] = _Wanted(position, led, is_checked)
        for topic in doubted:
            self.cluster.doubt(topic)
        if failed or doubted:
            self._lookups_failed += 1
        elif not waits:
            self._lookups_failed = 0
        if unled:
            # Other partitions may be readable now, and their polls should not look these partitions up each time.
            until = self.cluster.clock.monotonic() + self.cluster.retry_pause_seconds(self._lookups_failed)
            self._unled_until.update(dict.fromkeys(unled, until))
        for broker_id, items in wanted.items():
            if broker_id not in self._fetching:
                self._in_flight.update(items)
                task = asyncio.get_running_loop().create_task(self._fetch(broker_id, items))
                self._fetching[broker_id] = task

    def _was_replaced(self, key: TopicPartition, position: Position, led: _Led) -> bool:
        """Returns true if the metadata has an older leader epoch than the epoch under which records were read: the
        metadata may be outdated. It returns true for at most the request timeout. After that time the topic is assumed
        to have been deleted and created again, so that its epochs have started again."""
        newest = max(position.leader_epoch, self._led.get(key, led).leader_epoch)
        if not 0 <= led.leader_epoch < newest or self._is_of_a_topic_before(key, led):
            self._doubted_since.pop(key, None)
            return False
        now = self.cluster.clock.monotonic()
        if now < self._doubted_since.setdefault(key, now) + self.cluster.request_timeout_seconds:
            return True
        del self._doubted_since[key]
        logger.warning(
            "%s was read under leader epoch %d, but the brokers report the older epoch %d: that leader is asked now.",
            key,
            newest,
            led.leader_epoch,
        )
        return False

    def _nearest(self, key: TopicPartition, info: PartitionInfo) -> int:
        """Returns the id of the broker to fetch from: the follower that the leader has named, while that is valid,
        otherwise the leader."""
        near = self._near.get(key)
        if near is None:
            return info.leader
        broker_id, until = near
        if self.cluster.clock.monotonic() < until and broker_id in self.cluster.nodes:
            return broker_id
        del self._near[key]
        return info.leader

    async def _leader_of(self, key: TopicPartition) -> PartitionInfo | None:
        """Returns the partition with its leader. Returns None if the partition is missing while others can be read; it
        is looked up again later. If all partitions are missing, raises LeaderNotAvailableError at first, and
        UnknownTopicOrPartitionError if they are still missing after some seconds."""
        now = self.cluster.clock.monotonic()
        if now < self._gone_until.get(key, now) and len(self._gone_until) < len(self._positions):
            return None
        try:
            info = await self.cluster.leader_of(key, waits=False)
        except UnknownTopicOrPartitionError as error:
            known = key in self._gone_until
            self._gone_until[key] = self.cluster.clock.monotonic() + _GONE_SECONDS
            if len(self._gone_until) == len(self._positions):
                if self._all_gone_since is None:
                    self._all_gone_since = now
                if now - self._all_gone_since >= _ALL_GONE_SECONDS:
                    raise
                raise LeaderNotAvailableError(f"{key} is not there: {error.message}") from error
            if not known:
                logger.warning("%s is not read any more: %s", key, error)
            return None
        self._gone_until.pop(key, None)
        self._all_gone_since = None
        return info

    async def _fetch(self, broker_id: int, wanted: dict[TopicPartition, _Wanted]) -> None:
        try:
            await self._fetch_once(broker_id, wanted)
            self._failures.pop(broker_id, None)
        except asyncio.CancelledError:
            raise
        except KafkaError as error:
            is_near = [key for key, (number, _) in self._near.items() if number == broker_id]
            for key in is_near:
                del self._near[key]
            if not error.retriable and not is_near:
                self._failure = error
            else:
                for key in wanted:
                    self.cluster.forget_topic(key.topic)
                failures = self._failures[broker_id] = self._failures.get(broker_id, 0) + 1
                await asyncio.sleep(self.cluster.retry_pause_seconds(failures))
        except Exception as error:
            self._failure = error
        finally:
            self._fetching.pop(broker_id, None)
            self._in_flight.difference_update(wanted)
            self._arrived.set()
        if self._positions and self._failure is None and not any(self._fetched.values()):
            await self._look_again()

    async def _look_again(self) -> None:
        try:
            await self._fetch_ahead({})
        except KafkaError as error:
            self._failure = error
            self._arrived.set()

    async def _fetch_once(self, broker_id: int, wanted: dict[TopicPartition, _Wanted]) -> None:
        """Checks the unchecked positions, then fetches the partitions. If several partitions fail, one error is
        raised, preferably one that a retry cannot solve."""
        failures: list[KafkaError] = []
        checked = await self._check(broker_id, wanted, failures)
        if checked:
            session = self._sessions.setdefault(broker_id, FetchSessionHandler())
            try:
                answer = await self._ask(broker_id, session, checked)
                if answer.error_code in _SESSION_ERRORS:
                    # The broker has dropped the session, or has restarted, so a new session is started.
                    session.failed()
                    answer = await self._ask(broker_id, session, checked)
                if answer.error_code != ErrorCode.NONE:
                    raise KafkaError.of(answer.error_code, "The broker refuses a fetch.")
                session.answered(answer.session_id)
                await self._take_in(broker_id, answer, checked, failures)
            except BaseException:
                session.failed()
                raise
        if failures:
            # An error that a retry cannot solve is raised in preference to others.
            raise min(failures, key=lambda error: error.retriable)

    async def _check(
        self, broker_id: int, wanted: dict[TopicPartition, _Wanted], failures: list[KafkaError]
    ) -> dict[TopicPartition, _Wanted]:
        """Checks the positions in the broker's log. Returns the partitions whose log still contains the records that
        were read, as far as the broker can report that. The positions of the other partitions are moved."""
        unchecked = {key: (item.position, item.led.leader_epoch) for key, item in wanted.items() if not item.is_checked}
        found = None
        if unchecked:
            channel = await self.cluster.channel_of(broker_id, self._purpose)
            found = await epoch_ends(channel, unchecked, self.cluster.request_timeout_seconds)
        checked: dict[TopicPartition, _Wanted] = {}
        for key, item in wanted.items():
            if key not in unchecked:
                checked[key] = item
                continue
            if found is not None:
                if key not in found.ends:
                    failures.append(
                        found.errors.get(key)
                        or NetworkException(f"{key}: the broker's answer leaves the partition out.")
                    )
                    continue
                end = found.ends[key]
                if end is None or end.offset < item.position.offset:
                    try:
                        await self._leave(key, item, None if self._is_of_a_topic_before(key, item.led) else end)
                    except KafkaError as error:
                        failures.append(error)
                    continue
            if self._found(key, item):
                checked[key] = item
        return checked

    async def _leave(self, key: TopicPartition, wanted: _Wanted, end: Position | None) -> None:
        """Moves a position that is no longer valid because the log has changed. It moves to the offset where the logs
        diverge or, if that is not known, to the offset of auto.offset.reset."""
        position = wanted.position
        if self._positions.get(key) != position:
            return
        if self.auto_offset_reset == "none":
            raise LogTruncationError(key, position, end)
        if end is None:
            logger.warning(
                "%s was read up to offset %d in leader epoch %d, which its leader does not know: reading continues "
                "at the %s offset.",
                key, position.offset, position.leader_epoch, self.auto_offset_reset,
            )  # fmt: skip
            if await self._reset(key, position.offset):
                # The leader itself has reported the new offset, so it need not be checked.
                self._led[key] = wanted.led
        elif self._found(key, wanted):
            logger.warning(
                "%s was read up to offset %d, but its log was truncated to offset %d: reading continues there.",
                key,
                position.offset,
                end.offset,
            )
            self._positions[key] = end

    def _is_of_a_topic_before(self, key: TopicPartition, led: _Led) -> bool:
        """Returns true if the position was reached in an earlier topic of the same name. That topic's leader epochs do
        not apply to the present one."""
        known = self._led.get(key)
        return known is not None and known.topic_id != led.topic_id and NO_UUID not in (known.topic_id, led.topic_id)

    def _found(self, key: TopicPartition, wanted: _Wanted) -> bool:
        """Records that a position was found to be valid. Returns false if the position was moved during the check."""
        if self._positions.get(key) != wanted.position:
            return False
        self._led[key] = wanted.led
        return True

    async def _ask(
        self, broker_id: int, session: FetchSessionHandler, wanted: Mapping[TopicPartition, _Wanted]
    ) -> FetchResponse:
        plan = session.plan({key: Asked(item.position.offset, item.led.leader_epoch) for key, item in wanted.items()})
        topics: dict[str, FetchRequestTopic] = {}
        for key, asked in plan.wanted.items():
            topic = topics.setdefault(key.topic, FetchRequestTopic(topic=key.topic))
            topic.partitions.append(
                FetchRequestPartition(
                    partition=key.partition,
                    current_leader_epoch=asked.current_leader_epoch,
                    fetch_offset=asked.offset,
                    partition_max_bytes=self.max_partition_bytes,
                )
            )
        forgotten: dict[str, FetchRequestForgottenTopicsData] = {}
        for key in plan.forgotten:
            forgotten.setdefault(key.topic, FetchRequestForgottenTopicsData(topic=key.topic)).partitions.append(
                key.partition
            )
        request = FetchRequest(
            max_wait_ms=int(self.max_wait_seconds * 1000),
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=self.rack,
        )
        channel = await self.cluster.channel_of(broker_id, self._purpose)
        timeout_seconds = self.max_wait_seconds + self.cluster.request_timeout_seconds
        return await channel.request(request, FetchResponse, timeout_seconds=timeout_seconds, at_most=_NAMES_NOT_IDS)

    async def _take_in(
        self,
        broker_id: int,
        answer: FetchResponse,
        wanted: Mapping[TopicPartition, _Wanted],
        failures: list[KafkaError],
    ) -> None:
        misled: list[TopicPartition] = []
        for answered in answer.responses:
            for item in answered.partitions:
                key = TopicPartition(answered.topic, item.partition_index)
                if key not in wanted:
                    continue
                asked = wanted[key].position.offset
                if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    if self._near.get(key, (None,))[0] == broker_id:
                        del self._near[key]
                        misled.append(key)
                    else:
                        await self._reset(key, asked)
                    continue
                if item.error_code != ErrorCode.NONE:
                    failures.append(
                        KafkaError.of(
                            item.error_code,
                            f"{key}: the broker answers {error_name(item.error_code)} to a fetch at offset {asked}.",
                        )
                    )
                    continue
                if item.preferred_read_replica >= 0:
                    self._near[key] = (
                        item.preferred_read_replica,
                        self.cluster.clock.monotonic() + self.cluster.metadata_max_age_seconds,
                    )
                    if item.preferred_read_replica not in self.cluster.nodes:
                        misled.append(key)
                    continue
                self._take_records(key, asked, item)
        if misled:
            # The leader has other replicas than the metadata says. So the metadata is requested again after a pause.
            for key in misled:
                self.cluster.forget_topic(key.topic)
            self._arrived.set()
            await asyncio.sleep(self.cluster.retry_pause_seconds(1))

    def _take_records(self, key: TopicPartition, asked: int, item: FetchResponsePartition) -> None:
        """Stores the records that were fetched at offset `asked`, if that is still the next offset to be fetched of
        the partition. Raises CorruptMessageError if the response has less than one complete batch."""
        self.high_watermarks[key] = item.high_watermark
        if not item.records or asked != self._expected(key):
            return  # nothing, or the position was moved (seek, another assignment) meanwhile
        assert isinstance(item.records, memoryview)
        end = _end_of(item.records, asked)
        if end.offset == asked:
            raise CorruptMessageError(f"{key}: the batch at offset {asked} is cut short in the broker's answer.")
        data = without_aborted(item.records, item.aborted_transactions or ()) if self.isolation_level else item.records
        fetched = Fetched(key, asked, end.offset, item.high_watermark, item.log_start_offset, data, end.leader_epoch)
        self._fetched.setdefault(key, deque()).append(fetched)

    def _expected(self, key: TopicPartition) -> int | None:
        """Returns the offset of the next batch to be fetched of the partition; None if the partition is not
        assigned."""
        waiting = self._fetched.get(key)
        if waiting:
            return waiting[-1].next_offset
        position = self._positions.get(key)
        return None if position is None else position.offset

    async def _reset(self, key: TopicPartition, offset: int) -> bool:
        """Moves a position that is outside of the log to the offset of `auto_offset_reset`. Returns false if the
        position was moved otherwise in the meantime."""
        position = self._positions.get(key)
        if position is None or position.offset != offset:
            return False
        if self.auto_offset_reset == "none":
            raise OffsetOutOfRangeError(f"{key}: offset {offset} is not in the log, and auto.offset.reset is none.")
        where = EARLIEST if self.auto_offset_reset == "earliest" else LATEST
        found = (await list_offsets(self.cluster, {key: where}, self.isolation_level))[key]
        position = self._positions.get(key)
        if position is None or position.offset != offset:
            return False
        self._positions[key] = Position(found.offset, found.leader_epoch)
        return True

    async def close(self) -> None:
        """Cancels fetches in progress and closes the consumer's connections. The cluster object stays open."""
        tasks: list[asyncio.Task[Any]] = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.cluster.close_purpose(self._purpose)
        self._positions = {}
        self._fetched.clear()


def _position(place: int | Position) -> Position:
    return place if isinstance(place, Position) else Position(place)


def _end_of(data: memoryview, asked: int) -> Position:
    """Returns the position after the last complete batch."""
    following, epoch = asked, NO_LEADER_EPOCH
    for _, header in iter_headers(data):
        following, epoch = header.next_offset, header.partition_leader_epoch
    return Position(max(following, asked), epoch)


def _from_batch_of(data: memoryview, offset: int) -> tuple[memoryview, int]:
    """Returns two values: the part of `data` that begins with the batch that contains `offset`, and the leader epoch
    of the record before `offset`."""
    epoch = NO_LEADER_EPOCH
    for position, header in iter_headers(data):
        if header.base_offset < offset:
            epoch = header.partition_leader_epoch
        if header.last_offset >= offset:
            return data[position:], epoch
    return data[len(data) :], epoch
