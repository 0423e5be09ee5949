"""The mover of consumer groups: gives events to the coordinators, appends what they want appended, sends what they answer.

Each partition of `__consumer_offsets` that this broker leads has a coordinator of its own. At the start (or when a partition comes here) its log
is read (`broker.group_loader`); until then its groups answer COORDINATOR_LOAD_IN_PROGRESS. A reading that fails is told in the log and tried again
until it succeeds. The topic is made when the first group asks for its coordinator.

A group belongs to the partition that the number of partitions gives which the topic had when it came here: more partitions change nothing until the
next start, as in Kafka. When the topic is deleted, its coordinators go, and whoever waits is told to look for the coordinator anew.

Offsets of a topic that is deleted are forgotten, also while groups are being loaded: then it is done when they are.

An append is answered when it is committed: on a lone broker as soon as it is written. A write that waits behind a flush answers later, and after
offsets.commit.timeout.ms the answer is COORDINATOR_NOT_AVAILABLE, whatever becomes of the write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from jesenska.base.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    TopicAlreadyExistsError,
)
from jesenska.broker.cluster_view import Topic
from jesenska.broker.core import BrokerCore
from jesenska.broker.group_loader import GroupLoader
from jesenska.config.layers import BrokerConfig
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import Answer, Append, Appended, AppendFailed, Effect, Event, Now, Resign, Response, Tick, TopicDeleted
from jesenska.groups.records import OFFSETS_TOPIC, partition_of
from jesenska.groups.settings import GroupSettings
from jesenska.log.partition_log import AppendResult, PartitionLog
from jesenska.records.encode import encode_batch
from jesenska.records.header import read_header
from jesenska.replication.partition import Partition

logger = logging.getLogger(__name__)

#: Between two attempts at loading a partition whose log cannot be read; twice as long after each.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 30.0

#: A token of an event: called with the coordinator's answer.
Reply = Callable[[Response], None]


def group_settings_of(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
    )


class _Loaded:
    """A partition's coordinator; `ready` once its log has been read, `gone` once the partition is not led here any more."""

    __slots__ = ("coordinator", "deleted", "gone", "has_failed", "loading", "partition", "ready", "timer", "timer_ms")

    def __init__(self, coordinator: GroupCoordinator, partition: Partition) -> None:
        self.coordinator = coordinator
        self.partition = partition
        self.ready = False
        #: The last attempt at reading its log has failed.
        self.has_failed = False
        self.gone = False
        #: Topics that were deleted before it was ready.
        self.deleted: list[str] = []
        self.loading: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timer_ms = 0


class Groups:
    """All groups that this broker coordinates."""

    def __init__(self, core: BrokerCore, create_topic: Callable[[str], Awaitable[None]]) -> None:
        self._core = core
        self._create_topic = create_topic
        self._loop = asyncio.get_running_loop()
        self._settings = group_settings_of(core.config)
        acks = core.config.integer("offsets.commit.required.acks")
        #: 0 and 1 as in a produce request; any other number asks for all in sync: counts of replicas are of 0.8's time.
        self._acks = acks if acks in (0, 1) else -1
        self._loaded: dict[int, _Loaded] = {}
        #: How many partitions the topic had when it was taken over; None while it is not here.
        self._partition_count: int | None = None
        #: Topics whose deletion ended before the first take-over; None after it.
        self._deleted_early: list[str] | None = []

    # --- finding ------------------------------------------------------------------------------------------------------------------------

    async def ensure_topic(self) -> Topic:
        """The offsets topic, made if it is not there; CoordinatorNotAvailableError if it cannot be."""
        topic = self._core.view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            try:
                await self._create_topic(OFFSETS_TOPIC)
            except TopicAlreadyExistsError:
                pass
            except KafkaError as error:
                logger.error("the topic %s could not be made: %s", OFFSETS_TOPIC, error)
                raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC} could not be made") from error
            topic = self._core.view.topics[OFFSETS_TOPIC]
        self.take_over(topic)
        return topic

    def take_over(self, topic: Topic | None = None) -> None:
        """Coordinates the groups of every partition of the offsets topic that is led here."""
        topic = topic or self._core.view.topics.get(OFFSETS_TOPIC)
        deleted, self._deleted_early = self._deleted_early, None
        if topic is None:
            return
        if self._partition_count is None:
            self._partition_count = len(topic.partitions)
        for partition in topic.partitions[: self._partition_count]:
            number = partition.topic_partition.partition
            if number in self._loaded or not partition.is_served:
                continue
            log = partition.leader_log()
            loaded = self._loaded[number] = _Loaded(self._new_coordinator(), partition)
            loaded.deleted += deleted or ()
            if log.log_end_offset == log.log_start_offset:
                self._finish_loading(loaded)
            else:
                loaded.loading = self._loop.create_task(self._load(loaded, log))

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self._settings, lambda: str(self._core.machine.new_uuid()))

    def give_up(self) -> None:
        """The offsets topic is gone: whoever waits is told NOT_COORDINATOR, and nothing is kept."""
        given_up, self._loaded, self._partition_count = self._loaded, {}, None
        for loaded in given_up.values():
            loaded.gone = True
            if loaded.loading is not None:
                loaded.loading.cancel()
            if loaded.timer is not None:
                loaded.timer.cancel()
            self._handle(loaded, Resign())

    def coordinator_of(self, group_id: str) -> GroupCoordinator:
        """The coordinator of a group, for reading. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or COORDINATOR_LOAD_IN_PROGRESS otherwise."""
        return self._ready(group_id).coordinator

    def _ready(self, group_id: str) -> _Loaded:
        if self._partition_count is None:
            raise CoordinatorNotAvailableError
        loaded = self._loaded.get(partition_of(group_id, self._partition_count))
        if loaded is None:
            raise NotCoordinatorError
        if not loaded.ready:
            raise CoordinatorLoadInProgressError
        return loaded

    def coordinators(self) -> list[GroupCoordinator]:
        """Every coordinator that is ready; COORDINATOR_LOAD_IN_PROGRESS while one is loaded. One whose log cannot be read does not hide the others."""
        if not all(loaded.ready or loaded.has_failed for loaded in self._loaded.values()):
            raise CoordinatorLoadInProgressError
        return [loaded.coordinator for loaded in self._loaded.values() if loaded.ready]

    # --- loading ------------------------------------------------------------------------------------------------------------------------

    async def _load(self, loaded: _Loaded, log: PartitionLog) -> None:
        begun, pause = self._core.clock.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            loader = GroupLoader(self._core, log, loaded.coordinator, self._now)
            try:
                await loader.run()
                break
            except (KafkaError, OSError) as error:
                logger.error("%s: its groups cannot be loaded: %s. It is tried again in %g s.", log.topic_partition, error, pause)
            except Exception:
                logger.exception("%s: its groups cannot be loaded. It is tried again in %g s.", log.topic_partition, pause)
            loaded.has_failed = True
            # What was taken in so far would be taken in twice.
            loaded.coordinator = self._new_coordinator()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._finish_loading(loaded)
        seconds = self._core.clock.monotonic() - begun
        logger.info("%s: groups loaded from %d records in %.2f s", log.topic_partition, loader.count, seconds)

    def _finish_loading(self, loaded: _Loaded) -> None:
        loaded.coordinator.finish_replay(self._now())
        loaded.ready = True
        loaded.loading = None
        for topic in loaded.deleted:
            self._handle(loaded, TopicDeleted(topic))
        loaded.deleted.clear()
        self._schedule(loaded)

    # --- events -------------------------------------------------------------------------------------------------------------------------

    def submit(self, group_id: str, event: Event) -> None:
        """Gives an event of a group to its coordinator; its token will be called with the answer. KafkaError if there is no coordinator."""
        self._handle(self._ready(group_id), event)

    def topic_deleted(self, topic: str) -> None:
        """Groups forget the offsets of a topic that is gone, those that are being loaded as soon as they are."""
        if self._deleted_early is not None:
            self._deleted_early.append(topic)
        for loaded in list(self._loaded.values()):
            if loaded.ready:
                self._handle(loaded, TopicDeleted(topic))
            else:
                loaded.deleted.append(topic)

    def _handle(self, loaded: _Loaded, event: Event) -> None:
        waiting: list[Event] = [event]
        while waiting:
            now = self._now()
            for effect in loaded.coordinator.handle(waiting.pop(0), now):
                following = self._carry_out(loaded, effect, now.wall_ms)
                if following is not None:
                    waiting.append(following)
        self._schedule(loaded)

    def _carry_out(self, loaded: _Loaded, effect: Effect, now_ms: int) -> Event | None:
        if isinstance(effect, Answer):
            effect.token(effect.response)
            return None
        assert isinstance(effect, Append)
        batch = encode_batch([(now_ms, record.key, record.value, ()) for record in effect.records])
        written = partial(self._written, loaded, effect.operation)
        try:
            result = loaded.partition.append(memoryview(batch), [read_header(batch)], self._acks, now_ms, written)
        except KafkaError as error:
            logger.warning("group %s: its records could not be written: %s", effect.group_id, error)
            return AppendFailed(effect.operation, error.code)
        return None if result is None else Appended(effect.operation)

    def _written(self, loaded: _Loaded, operation: int, outcome: AppendResult | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self._handle(loaded, AppendFailed(operation, outcome.code))
        else:
            self._handle(loaded, Appended(operation))

    # --- time ---------------------------------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        clock = self._core.clock
        return Now(int(clock.monotonic() * 1000), clock.now_ms())

    def _schedule(self, loaded: _Loaded) -> None:
        due_ms = loaded.coordinator.next_deadline_ms()
        if due_ms is None or loaded.gone or (loaded.timer is not None and loaded.timer_ms == due_ms):
            return
        if loaded.timer is not None:
            loaded.timer.cancel()
        delay_ms = max(0, due_ms - self._now().monotonic_ms)
        loaded.timer_ms = due_ms
        loaded.timer = self._loop.call_later(delay_ms / 1000, self._tick, loaded)

    def _tick(self, loaded: _Loaded) -> None:
        loaded.timer = None
        self._handle(loaded, Tick())

    async def close(self) -> None:
        """Ends loading and timers; requests that wait are answered by their connections being closed."""
        loading = [loaded.loading for loaded in self._loaded.values() if loaded.loading is not None]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)
        for loaded in self._loaded.values():
            if loaded.timer is not None:
                loaded.timer.cancel()
