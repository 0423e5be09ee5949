"""The connection over which a follower fetches from one other broker: many partitions in one request, and one pending
request at a time. `replication.follower.fetcher` decides the requests and the work after the answers.
`replication.follower.replica_log` changes the logs. This module does input and output.

  follow, leave     change the followed logs. A log is requested when its queued changes have ended
  connected         requests are sent, one after the other. The next request waits until the records of the last answer
                    are in the logs, but at most _SLOW_LOG_SECONDS. Logs that need longer are left out of the request
  not connected     the link connects again after replica.fetch.backoff.ms
  look              is called periodically. Closes the connection to a leader that does not answer for
                    replica.socket.timeout.ms, and reads the log start offsets

No asyncio task waits for a request; the answer calls back. Topic ids are sent if the leader supports them (Fetch
version 13). Leaders that support only versions below 12 cannot be followed, because these versions do not report where
logs diverge."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from jesenska.base.clock import Clock
from jesenska.base.errors import KafkaError, NotLeaderOrFollowerError, UnsupportedVersionError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.quotas.replication_throttle import NO_THROTTLE, Throttle
from jesenska.replication.follower.fetch_session import SessionRequest
from jesenska.replication.follower.fetcher import (
    AskWhere,
    Cut,
    Fetcher,
    FollowerState,
    PartitionAnswer,
    Received,
    Work,
    go_on_at,
)
from jesenska.replication.follower.replica_log import cut, go_on, position_of, receive, settle
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)

logger = logging.getLogger(__name__)

_FIRST_VERSION: Final = 12
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
#: Time in seconds for which the next request waits for slow logs.
_SLOW_LOG_SECONDS: Final = 0.05
_LATEST, _EARLIEST = -1, -2


class LeaderChannel(Protocol):
    """A connection to a leader: the part of `net.channel.Channel` that a link uses."""

    @property
    def closed(self) -> bool: ...

    def version_for(self, request: type[Message], at_most: int | None = None) -> int: ...

    def send(self, request: Message, version: int) -> asyncio.Future[Any]: ...

    async def request(
        self, request: Message, response: type[Any], *, timeout_seconds: float = 30.0, at_most: int | None = None
    ) -> Any: ...

    def close(self, reason: str = "") -> None: ...


class LinkSettings(NamedTuple):
    """Settings of fetching, from Kafka's replica.fetch.* and replica.socket.timeout.ms. `broker_epoch` is the epoch of
    this broker's registration, which requests contain; -1 if the broker is not registered."""

    replica_id: int
    broker_epoch: int = -1
    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1000
    timeout_ms: int = 30_000


class _FollowedLog:
    __slots__ = ("leader_epoch", "log", "topic_id")

    def __init__(self, log: PartitionLog, topic_id: uuid.UUID, leader_epoch: int) -> None:
        self.log = log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch


class FollowerLink:
    """The link from this broker to one leader, on the running event loop. `connect` opens a connection to the leader.
    `changed` is called for each partition whose log has new records, or whose offsets have moved. `throttle` limits
    the bytes per second that this broker fetches from all leaders together."""

    def __init__(
        self,
        leader_id: int,
        connect: Callable[[], Awaitable[LeaderChannel]],
        clock: Clock,
        settings: LinkSettings,
        changed: Callable[[TopicPartition], None],
        throttle: Throttle = NO_THROTTLE,
    ) -> None:
        self.leader_id = leader_id
        self._connect = connect
        self._clock = clock
        self._settings = settings
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._following = Fetcher(settings.backoff_ms, throttle)
        self._followed: dict[TopicPartition, _FollowedLog] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._channel: LeaderChannel | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: True if the last attempt to reach the leader has failed. The failure is logged only once.
        self._is_out_of_reach = False
        self._asking_where: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: The time at which the pending request was sent, in seconds of the monotonic clock; None if no request is
        #: pending.
        self._asked_at: float | None = None
        self._version = _FIRST_VERSION
        #: True while an answer is being handled. The next request is sent only after all work of the answer has begun.
        self._is_dealing = False
        self._closed = False

    # --- followed logs -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def state(self, topic_partition: TopicPartition) -> FollowerState | None:
        """Returns the state of a partition. Returns None if the partition is not followed, or if its log still has
        queued changes from the time before."""
        return self._following.state(topic_partition)

    def follow(
        self, topic_partition: TopicPartition, log: PartitionLog, topic_id: uuid.UUID, leader_epoch: int
    ) -> None:
        """Begins to follow the leader of a partition in this leader epoch. Ends following the partition in an older
        epoch."""
        self._following.leave(topic_partition)
        followed = self._followed[topic_partition] = _FollowedLog(log, topic_id, leader_epoch)
        self._names[topic_id] = topic_partition.topic
        self._settle(topic_partition, followed)

    def _settle(self, topic_partition: TopicPartition, followed: _FollowedLog) -> None:
        if self._followed.get(topic_partition) is followed:
            settle(followed.log, self._clock.now_ms(), partial(self._settled, topic_partition, followed))

    def _settled(self, topic_partition: TopicPartition, followed: _FollowedLog, failure: KafkaError | None) -> None:
        if self._followed.get(topic_partition) is not followed or self._closed:
            return
        if failure is not None:
            self._say(topic_partition, failure)
            self._loop.call_later(self._settings.backoff_ms / 1000, self._settle, topic_partition, followed)
            return
        self._following.follow(topic_partition, followed.topic_id, followed.leader_epoch, position_of(followed.log))
        self._wake(0.0)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stops following a partition. Results of work that is still running are ignored."""
        self._followed.pop(topic_partition, None)
        self._following.leave(topic_partition)

    def close(self) -> None:
        """Ends the link. No more records are appended."""
        self._closed = True
        self._followed.clear()
        for ends in (self._timer, self._connecting, *self._asking_where):
            if ends is not None:
                ends.cancel()
        if self._channel is not None:
            self._channel.close("the follower stops")

    def look(self) -> None:
        """Closes the connection if the leader has not answered within the time limit. Also passes the current log
        start offsets to the fetcher."""
        for topic_partition, followed in self._followed.items():
            self._following.log_starts_at(topic_partition, followed.log.log_start_offset)
        if (
            self._asked_at is not None
            and self._channel is not None
            and self._clock.monotonic() - self._asked_at > self._settings.timeout_ms / 1000
        ):
            self._channel.close(f"broker {self.leader_id} has not answered a fetch for {self._settings.timeout_ms} ms")

    # --- requests ----------------------------------------------------------------------------------------------------

    def _wake(self, seconds: float) -> None:
        """Schedules the next request after this time in seconds. Does nothing if the next request is already scheduled
        for an earlier time."""
        if self._closed:
            return
        when = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._due)

    def _due(self) -> None:
        self._timer = None
        self._ask()

    def _ask(self) -> None:
        """Sends the next request, if there are partitions to request and no request is pending. Connects first if
        there is no connection."""
        if self._closed or self._asked_at is not None or self._connecting is not None or not self._following:
            return
        channel = self._channel
        if channel is None or channel.closed:
            self._connecting = self._loop.create_task(self._open())
            return
        now = self._clock.monotonic()
        request = self._following.next_request(int(now * 1000))
        if request is None:
            resumes_at_ms = self._following.resumes_at_ms
            if resumes_at_ms is not None:
                self._wake(max(0.0, resumes_at_ms / 1000 - now) + 0.001)
            return
        self._asked_at = now
        channel.send(self._message(request), self._version).add_done_callback(self._answered)

    async def _open(self) -> None:
        try:
            channel = await self._connect()
            version = channel.version_for(FetchRequest)
            if version < _FIRST_VERSION:
                channel.close()
                if not self._is_out_of_reach:
                    logger.error(
                        "broker %d supports Fetch only up to version %d, so it cannot be followed, which needs "
                        "version %d: upgrade that broker",
                        self.leader_id,
                        version,
                        _FIRST_VERSION,
                    )
                raise UnsupportedVersionError("It is too old to be followed.")
        except KafkaError as error:
            if not self._is_out_of_reach:
                self._is_out_of_reach = True
                logger.info("broker %d cannot be followed now, and is tried again: %s", self.leader_id, error)
            self._connecting = None
            self._wake(self._settings.backoff_ms / 1000)
            return
        self._connecting = None
        if self._closed:
            channel.close()
            return
        if self._is_out_of_reach:
            self._is_out_of_reach = False
            logger.info("broker %d can be followed again", self.leader_id)
        self._channel, self._version = channel, version
        self._ask()

    def _message(self, request: SessionRequest) -> FetchRequest:
        settings = self._settings
        message = FetchRequest(
            replica_id=settings.replica_id if self._version < _FIRST_WITH_REPLICA_STATE else -1,
            replica_state=FetchRequestReplicaState(replica_id=settings.replica_id, replica_epoch=settings.broker_epoch)
            if self._version >= _FIRST_WITH_REPLICA_STATE
            else FetchRequestReplicaState(),
            max_wait_ms=0 if request.has_more else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
        )
        topics: dict[uuid.UUID, FetchRequestTopic] = {}
        for wanted in request.wanted:
            topic = topics.get(wanted.topic_id)
            if topic is None:
                topic = topics[wanted.topic_id] = FetchRequestTopic(
                    topic=wanted.topic_partition.topic, topic_id=wanted.topic_id
                )
            topic.partitions.append(
                FetchRequestPartition(
                    partition=wanted.topic_partition.partition,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    last_fetched_epoch=wanted.last_epoch,
                    log_start_offset=wanted.log_start_offset,
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        message.topics = list(topics.values())
        forgotten: dict[uuid.UUID, FetchRequestForgottenTopicsData] = {}
        for topic_partition, topic_id in request.forgotten:
            gone = forgotten.get(topic_id)
            if gone is None:
                gone = forgotten[topic_id] = FetchRequestForgottenTopicsData(
                    topic=topic_partition.topic, topic_id=topic_id
                )
            gone.partitions.append(topic_partition.partition)
        message.forgotten_topics_data = list(forgotten.values())
        return message

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answered(self, answered: asyncio.Future[Any]) -> None:
        self._asked_at = None
        if self._closed:
            return
        if answered.cancelled() or answered.exception() is not None:
            self._following.lost()
            self._wake(self._settings.backoff_ms / 1000)
            return
        response: FetchResponse = answered.result()
        now_ms = int(self._clock.monotonic() * 1000)
        found = self._following.answered(response.error_code, response.session_id, self._answers(response), now_ms)
        self._is_dealing = True
        for work in found:
            self._do(work)
        self._is_dealing = False
        self._go_on()

    def _answers(self, response: FetchResponse) -> list[PartitionAnswer]:
        found = []
        for topic in response.responses:
            name = topic.topic if self._version < _FIRST_WITH_IDS else self._names.get(topic.topic_id)
            if name is None:
                continue
            for part in topic.partitions:
                diverging = part.diverging_epoch
                found.append(
                    PartitionAnswer(
                        TopicPartition(name, part.partition_index),
                        part.error_code,
                        part.high_watermark,
                        part.log_start_offset,
                        (diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
                        part.records,
                    )
                )
        return found

    def _go_on(self) -> None:
        """Continues after work on a log: sends the next request at once if all work has ended, and otherwise after a
        short wait."""
        if not self._is_dealing:
            if self._following.is_at_work:
                self._wake(_SLOW_LOG_SECONDS)
            else:
                self._ask()

    def _do(self, work: Work) -> None:
        followed = self._followed[work.topic_partition]
        done = partial(self._done, work.topic_partition, followed)
        if isinstance(work, Received):
            receive(followed.log, work, self._clock.now_ms(), done)
        elif isinstance(work, Cut):
            cut(followed.log, work, self._clock.now_ms(), done)
        else:
            task = self._loop.create_task(self._ask_where(work, followed, done))
            self._asking_where.add(task)
            task.add_done_callback(self._asking_where.discard)

    def _done(self, topic_partition: TopicPartition, followed: _FollowedLog, failure: KafkaError | None) -> None:
        """Handles the outcome of the work on a log: None, or the failure."""
        if self._closed or self._followed.get(topic_partition) is not followed:
            return
        position = position_of(followed.log)
        if failure is None:
            self._following.done(topic_partition, followed.leader_epoch, position)
            self._changed(topic_partition)
        else:
            self._say(topic_partition, failure)
            self._following.failed(
                topic_partition, followed.leader_epoch, position, int(self._clock.monotonic() * 1000)
            )
        self._go_on()

    async def _ask_where(
        self, asked: AskWhere, followed: _FollowedLog, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Asks the leader for its log start and end offsets. Then cuts or restarts the log at an offset that the
        leader has."""
        try:
            start, end = [await self._offset_at(asked, timestamp) for timestamp in (_EARLIEST, _LATEST)]
        except KafkaError as error:
            done(error)
            return
        if self._followed.get(asked.topic_partition) is not followed:
            return
        where = go_on_at(followed.log.log_end_offset, start, end)
        if where is None:
            done(None)
            return
        logger.warning(
            "the log of %s continues at offset %d: it ended at offset %d, but its leader has offsets %d to %d",
            asked.topic_partition,
            where.offset,
            followed.log.log_end_offset,
            start,
            end,
        )
        go_on(followed.log, where, self._clock.now_ms(), done)

    async def _offset_at(self, asked: AskWhere, timestamp: int) -> int:
        assert self._channel is not None
        name, number = asked.topic_partition
        wanted = ListOffsetsRequestPartition(
            partition_index=number, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._settings.replica_id, topics=[ListOffsetsRequestTopic(name=name, partitions=[wanted])]
        )
        answer: ListOffsetsResponse = await self._channel.request(
            request, ListOffsetsResponse, timeout_seconds=self._settings.timeout_ms / 1000
        )
        for topic in answer.topics:
            for part in topic.partitions:
                if (topic.name, part.partition_index) == asked.topic_partition and part.error_code == 0:
                    return part.offset
        raise NotLeaderOrFollowerError(
            f"broker {self.leader_id} did not return the log start and end offsets of {asked.topic_partition}"
        )

    def _say(self, topic_partition: TopicPartition, failure: KafkaError) -> None:
        logger.warning(
            "%s is not followed for a while: %s",
            topic_partition,
            failure,
            extra={"once_a_minute": (str(topic_partition), "not followed")},
        )
