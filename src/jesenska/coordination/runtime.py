"""Runs a coordinator's shards on this broker. A shard is the part of the coordinator for one partition of its topic,
and runs on the broker that leads the partition. This module loads shards, passes events to them, appends their
records, sends their answers, and wakes them.

  lead(number)      this broker leads the partition: its log is read into a new shard. Until the log is read, clients
                    get COORDINATOR_LOAD_IN_PROGRESS. If the read fails, the error is logged, and the read is repeated
                    until it succeeds
  submit            passes an event to a shard, with a function that gets the answer
  resign(number)    this broker no longer leads the partition: waiting requests are answered NOT_COORDINATOR, and the
                    shard is dropped

A record is applied when its write is committed: with acks=all, when every in-sync replica has it. A shard writes in
one leader epoch. Its writes are refused when a newer epoch has begun, so that it never writes at the same time as a
newer coordinator.

The shards and `operations` compute the next steps; this module does input and output for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from jesenska.base.backoff import Backoff
from jesenska.base.clock import Clock
from jesenska.base.errors import CoordinatorLoadInProgressError, KafkaError, NotCoordinatorError
from jesenska.coordination.loader import Loader, Reading
from jesenska.coordination.operations import Append, Appended, AppendFailed, Operations
from jesenska.coordination.shard import Answer, KeyValue, Now, OfTransaction, Order, Resign, Say, Shard, Tick, Token
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.records.encode import encode_batch
from jesenska.records.header import read_header
from jesenska.records.record import Record
from jesenska.replication.partition import Partition

logger = logging.getLogger(__name__)

#: The pause between two attempts to load a partition whose log cannot be read. The pause doubles after each attempt.
_BACKOFF = Backoff(first_seconds=0.25, longest_seconds=30.0)

S = TypeVar("S", bound=Shard)

#: A function that is called with the answer to an event.
Reply = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Tenant(Generic[S]):
    """One kind of coordinator (groups or transactions): its record format, and its settings for writes."""

    #: The name of the kind in log lines, such as "groups".
    name: str
    #: The sentence in the log about the consequences of a damaged batch.
    lost: str
    new_shard: Callable[[], S]
    encode: Callable[[Any], KeyValue]
    #: Decodes a record's key and value. Returns None for records that do not belong to this coordinator. Raises
    #: CorruptMessageError for bytes that cannot be decoded.
    read: Callable[[bytes | None, bytes | None], Any]
    #: How long, in milliseconds, a request waits until its records are committed.
    timeout_ms: int
    #: When records are applied, as acks of Produce: with 1 when they are written to the leader's log, with -1 when
    #: every in-sync replica has them. 0 means the same as 1.
    acks: int
    #: Carries out an order of the shard with this number.
    carry_out: Callable[[int, Any], None] = lambda number, order: None


class _Hosted(Generic[S]):
    """The shard of one partition. It is `ready` when its log has been read, and `gone` when this broker has
    resigned."""

    __slots__ = (
        "epoch",
        "events",
        "gone",
        "has_failed",
        "last_token",
        "loading",
        "number",
        "operations",
        "partition",
        "ready",
        "replies",
        "shard",
        "timer",
        "timer_ms",
    )

    def __init__(self, number: int, shard: S, partition: Partition, timeout_ms: int) -> None:
        self.number = number
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.renew(shard, timeout_ms)
        self.ready = False
        #: True if the last attempt to read the log has failed.
        self.has_failed = False
        self.gone = False
        #: Events for all shards that arrived before this shard was ready; they are passed to the shard when it is
        #: ready.
        self.events: list[Any] = []
        self.replies: dict[Token, Reply] = {}
        self.last_token = 0
        self.loading: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timer_ms = 0

    def renew(self, shard: S, timeout_ms: int) -> None:
        """Replaces the shard by an empty shard, before the log is read again: otherwise records would be applied
        twice."""
        self.shard = shard
        self.operations = Operations(shard, timeout_ms)


class Runtime(Generic[S]):
    """All shards of one kind of coordinator that this broker runs, by the number of their partition."""

    def __init__(self, tenant: Tenant[S], reading: Reading, clock: Clock) -> None:
        self._tenant = tenant
        self._reading = reading
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._hosted: dict[int, _Hosted[S]] = {}

    # --- starting and ending shards ----------------------------------------------------------------------------------

    def lead(self, number: int, partition: Partition, events: Iterable[Any] = ()) -> None:
        """Starts the shard of a partition that this broker leads. `events` are passed to the new shard when it is
        ready. If the shard is running already, it continues in the partition's current leader epoch."""
        hosted = self._hosted.get(number)
        if hosted is not None:
            hosted.epoch = partition.leader_epoch
            return
        log = partition.leader_log()
        hosted = self._hosted[number] = _Hosted(number, self._tenant.new_shard(), partition, self._tenant.timeout_ms)
        hosted.events += events
        if log.log_end_offset == log.log_start_offset:
            self._finish_loading(hosted)
        else:
            hosted.loading = self._loop.create_task(self._load(hosted, log))

    def resign(self, number: int) -> None:
        """Ends a shard: waiting requests are answered NOT_COORDINATOR, and its state is dropped."""
        hosted = self._hosted.pop(number, None)
        if hosted is None:
            return
        if hosted.loading is not None:
            hosted.loading.cancel()
        self._handle(hosted, Resign())
        hosted.gone = True
        if hosted.timer is not None:
            hosted.timer.cancel()

    def resign_all(self) -> None:
        """Ends all shards, as `resign` does."""
        for number in list(self._hosted):
            self.resign(number)

    async def _load(self, hosted: _Hosted[S], log: PartitionLog) -> None:
        begun, failures = self._clock.monotonic(), 0
        while True:
            pause = _BACKOFF.seconds(failures + 1)
            loader = Loader(
                log,
                self._reading,
                partial(self._take_in, hosted),
                self._tenant.lost,
                partial(self._take_in_open, hosted),
            )
            try:
                await loader.run()
                break
            except (KafkaError, OSError) as error:
                logger.error(
                    "%s: its %s cannot be loaded: %s. It is tried again in %g s.",
                    log.topic_partition,
                    self._tenant.name,
                    error,
                    pause,
                )
            except Exception:
                logger.exception(
                    "%s: its %s cannot be loaded. It is tried again in %g s.",
                    log.topic_partition,
                    self._tenant.name,
                    pause,
                )
            hosted.has_failed = True
            hosted.renew(self._tenant.new_shard(), self._tenant.timeout_ms)
            await asyncio.sleep(pause)
            failures += 1
        self._finish_loading(hosted)
        seconds = self._clock.monotonic() - begun
        logger.info(
            "%s: %s loaded from %d records in %.2f s", log.topic_partition, self._tenant.name, loader.count, seconds
        )

    def _take_in(self, hosted: _Hosted[S], record: Record) -> None:
        found = self._tenant.read(record.key, record.value)
        if found is not None:
            hosted.shard.replay(found, self._now())

    def _take_in_open(self, hosted: _Hosted[S], record: Record, of: OfTransaction, counts: bool) -> None:
        found = self._tenant.read(record.key, record.value)
        if found is not None:
            hosted.shard.replay_within(found, of, self._now(), counts=counts)

    def _finish_loading(self, hosted: _Hosted[S]) -> None:
        hosted.shard.finish_replay(self._now())
        hosted.ready = True
        hosted.loading = None
        events, hosted.events = hosted.events, []
        for event in events:
            self._handle(hosted, event)
        self._schedule(hosted)

    # --- using shards ------------------------------------------------------------------------------------------------

    def shard(self, number: int) -> S:
        """Returns the shard of a partition, for reading. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if it
        is not ready."""
        return self._ready(number).shard

    def shards(self) -> list[S]:
        """Returns every shard that is ready. Raises COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded. A
        shard whose log cannot be read is left out."""
        if not all(hosted.ready or hosted.has_failed for hosted in self._hosted.values()):
            raise CoordinatorLoadInProgressError
        return [hosted.shard for hosted in self._hosted.values() if hosted.ready]

    def _ready(self, number: int) -> _Hosted[S]:
        hosted = self._hosted.get(number)
        if hosted is None:
            raise NotCoordinatorError
        if not hosted.ready:
            raise CoordinatorLoadInProgressError
        return hosted

    def submit(self, number: int, make: Callable[[Token], Any], reply: Reply) -> None:
        """Passes an event to a shard. `make` gets a token, a number that identifies the answer, and returns the event.
        `reply` is called with the answer. Raises KafkaError if this broker does not run the shard."""
        hosted = self._ready(number)
        hosted.last_token += 1
        hosted.replies[hosted.last_token] = reply
        self._handle(hosted, make(hosted.last_token))

    def tell_one(self, number: int, event: Any) -> None:
        """Passes an event without an answer to a shard. Does nothing if the shard is not ready."""
        hosted = self._hosted.get(number)
        if hosted is not None and hosted.ready:
            self._handle(hosted, event)

    def epoch_of(self, number: int) -> int | None:
        """Returns the leader epoch of a shard, or None if this broker does not run the shard or is still loading
        it."""
        hosted = self._hosted.get(number)
        return hosted.epoch if hosted is not None and hosted.ready else None

    def tell(self, event: Any) -> None:
        """Passes an event without an answer to every shard. Shards that are being loaded get it when they are
        ready."""
        for hosted in list(self._hosted.values()):
            if hosted.ready:
                self._handle(hosted, event)
            else:
                hosted.events.append(event)

    # --- events ------------------------------------------------------------------------------------------------------

    def _handle(self, hosted: _Hosted[S], event: Any) -> None:
        waiting: list[Any] = [event]
        while waiting:
            now = self._now()
            for effect in hosted.operations.handle(waiting.pop(0), now):
                if isinstance(effect, Answer):
                    hosted.replies.pop(effect.token)(effect.response)
                elif isinstance(effect, Order):
                    self._tenant.carry_out(hosted.number, effect.order)
                elif isinstance(effect, Say):
                    logger.info("%s", effect.line)
                else:
                    following = self._append(hosted, effect, now.wall_ms)
                    if following is not None:
                        waiting.append(following)
        self._schedule(hosted)

    def _append(self, hosted: _Hosted[S], append: Append, now_ms: int) -> Appended | AppendFailed | None:
        """Appends records or a marker to the shard's partition. Returns the outcome of the append, or None if the
        outcome is reported later."""
        tenant, done, marker = self._tenant, partial(self._appended, hosted, append.number), append.marker
        try:
            if marker is not None:
                kind = ControlType.COMMIT if marker.commits else ControlType.ABORT
                control = ControlMarker(kind, marker.coordinator_epoch)
                result = hosted.partition.append_marker(
                    marker.of.producer_id, marker.of.producer_epoch, control, now_ms, done, hosted.epoch
                )
            else:
                batch = _batch_of(append, tenant.encode, now_ms)
                result = hosted.partition.append(
                    memoryview(batch), [read_header(batch)], tenant.acks, now_ms, done, hosted.epoch, of_client=False
                )
        except KafkaError as error:
            logger.warning("%s %s: its records could not be written: %s", tenant.name, append.name, error)
            return AppendFailed(append.number, error.code)
        return None if result is None else Appended(append.number)

    def _appended(self, hosted: _Hosted[S], number: int, outcome: AppendResult | KafkaError) -> None:
        if not hosted.gone:
            self._handle(
                hosted, AppendFailed(number, outcome.code) if isinstance(outcome, KafkaError) else Appended(number)
            )

    # --- time --------------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        clock = self._clock
        return Now(int(clock.monotonic() * 1000), clock.now_ms())

    def _schedule(self, hosted: _Hosted[S]) -> None:
        due_ms = hosted.operations.next_deadline_ms()
        if due_ms is None or hosted.gone or (hosted.timer is not None and hosted.timer_ms == due_ms):
            return
        if hosted.timer is not None:
            hosted.timer.cancel()
        delay_ms = max(0, due_ms - self._now().monotonic_ms)
        hosted.timer_ms = due_ms
        hosted.timer = self._loop.call_later(delay_ms / 1000, self._tick, hosted)

    def _tick(self, hosted: _Hosted[S]) -> None:
        hosted.timer = None
        self._handle(hosted, Tick())

    async def close(self) -> None:
        """Stops loading shards, and stops the timers of all shards. Waiting requests get no answer, because their
        connections are closed."""
        loading = [hosted.loading for hosted in self._hosted.values() if hosted.loading is not None]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)
        for hosted in self._hosted.values():
            if hosted.timer is not None:
                hosted.timer.cancel()


def _batch_of(append: Append, encode: Callable[[Any], KeyValue], now_ms: int) -> bytearray:
    records = [(now_ms, *encode(record), ()) for record in append.records]
    of = append.within
    if of is None:
        return encode_batch(records)
    # These records need no sequence numbers, because the coordinator writes them in order. Kafka writes the sequence
    # number 0.
    return encode_batch(
        records, producer_id=of.producer_id, producer_epoch=of.producer_epoch, base_sequence=0, is_transactional=True
    )
