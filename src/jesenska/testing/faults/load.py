"""A load for any Kafka cluster that records its operations in a history. Producers, consumers and members of a
consumer group run in a thread of this process, with jesenska's own client.

    load = RecordedLoad(bootstrap, "orders", directory)
    load.start()
    ... faults ...
    load.stop()
    findings = check(read_history([load.path]))

Producers write numbered records with acks=all and idempotence. Readers read every partition from its beginning. The
members of a consumer group read records and commit offsets. When the load stops, it waits until every send has a
result. Then it reads every partition again from the beginning, and fetches the group's committed offsets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.positions import Position
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.records.record import Record
from jesenska.testing.faults.history import ClientHistory, HistoryWriter

#: The largest number of unacknowledged records of one producer, and the number of records between two pauses.
_WINDOW, _BURST = 100, 10
_POLL_SECONDS, _POLL_RECORDS = 0.2, 1000
_AGAIN_SECONDS = 0.05
_REQUEST_SECONDS, _BACKOFF_MAX_SECONDS = 5.0, 0.3
#: The shortest session timeout that Kafka accepts by default.
_SESSION_SECONDS, _HEARTBEAT_SECONDS, _POLL_INTERVAL_SECONDS = 6.0, 0.5, 30.0
_DELIVERY_SECONDS = 120.0
_BEGIN_SECONDS, _END_SECONDS = 120.0, 300.0
_READER, _MEMBER = "reader", "member"
#: Error codes after which a member joins the group again, since the group has rebalanced without it.
_REBALANCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


class LoadFailedError(AssertionError):
    """The error that is raised if a client of the load failed in a way that an injected fault does not explain."""


def cluster_of(bootstrap: str, client_id: str) -> Cluster:
    """Returns a client's connection to the cluster, with short retry times."""
    return Cluster(
        bootstrap,
        ClientConfig(
            client_id=client_id,
            request_timeout_seconds=_REQUEST_SECONDS,
            retry_backoff_max_seconds=_BACKOFF_MAX_SECONDS,
            reconnect_backoff_max_seconds=_BACKOFF_MAX_SECONDS,
        ),
    )


class RecordedLoad:
    """A load on one topic, which is created if it does not exist. `path` is the path of the history file in
    `directory`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        directory: Path,
        *,
        partitions: int = 3,
        replication_factor: int = 1,
        producers: int = 2,
        readers: int = 1,
        members: int = 2,
        pause_seconds: float = 0.01,
    ) -> None:
        """Prepares the load. `pause_seconds` is the time for which each producer pauses after every ten records."""
        self.path = directory / f"{topic}.jsonl"
        self.group = f"{topic}-group"
        self._bootstrap = bootstrap
        self._topic = NewTopic(topic, partitions, replication_factor)
        self._keys = [TopicPartition(topic, number) for number in range(partitions)]
        self._counts = producers, readers, members
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._acknowledged = 0
        #: The kinds of consumers (reader, member) that have already read a record.
        self._reading: set[str] = set()
        self._failures: list[str] = []
        self._thread: threading.Thread | None = None

    # --- for tests ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the load. Returns when a record has been acknowledged. If there are readers and members, it also
        waits until a reader and a member have read a record. Raises LoadFailedError if this takes longer than two
        minutes."""
        assert self._thread is None, "the load runs already"
        self._thread = threading.Thread(target=self._run, name=f"load-{self._topic.name}", daemon=True)
        self._thread.start()
        with self._changed:
            is_at_work = self._changed.wait_for(lambda: self._is_at_work() or self._failures, _BEGIN_SECONDS)
            if not is_at_work or self._failures:
                self._stopping.set()
            if not is_at_work:
                raise LoadFailedError(
                    f"No record is acknowledged and read within {_BEGIN_SECONDS:g} s: see whether {self._bootstrap} "
                    f"is a Kafka cluster that runs."
                )
        self.steps()

    def _is_at_work(self) -> bool:
        _, readers, members = self._counts
        return (
            self._acknowledged > 0
            and (not readers or _READER in self._reading)
            and (not members or _MEMBER in self._reading)
        )

    def steps(self) -> int:
        """Returns the number of acknowledged records. Raises LoadFailedError if a client has failed."""
        with self._changed:
            if self._failures:
                raise LoadFailedError("; ".join(self._failures))
            return self._acknowledged

    def wait_for(self, more: int, seconds: float = 60.0) -> None:
        """Waits until `more` further records are acknowledged. Raises LoadFailedError if this takes longer than
        `seconds`."""
        with self._changed:
            until = self._acknowledged + more
            if not self._changed.wait_for(lambda: self._acknowledged >= until or self._failures, seconds):
                raise LoadFailedError(
                    f"The load makes no progress: {until - self._acknowledged} of {more} records are missing after "
                    f"{seconds:g} s."
                )
        self.steps()

    def stop(self) -> None:
        """Stops the clients, reads all records again, and returns when the history is complete. Raises LoadFailedError
        if a client has failed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                raise LoadFailedError(
                    f"The load does not come to its end within {_END_SECONDS:g} s: see whether the cluster still "
                    f"answers."
                )
        self.steps()

    # --- clients -----------------------------------------------------------------------------------------------------

    def _fail(self, who: str, error: BaseException) -> None:
        with self._changed:
            self._failures.append(f"{who}: {error!r}")
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._fail("the load", error)

    async def _work(self) -> None:
        producers, readers, members = self._counts
        with HistoryWriter(self.path) as history:
            await self._make_topic()
            await asyncio.gather(
                *(self._client(history, f"producer-{number}", self._produce) for number in range(producers)),
                *(self._client(history, f"reader-{number}", self._read) for number in range(readers)),
                *(self._client(history, f"member-{number}", self._read_in_group) for number in range(members)),
            )
            await self._client(history, "last-reader", self._read_everything)
            if members:
                await self._client(history, "looker", self._look_at_offsets)

    async def _client(
        self, history: HistoryWriter, name: str, work: Callable[[Cluster, ClientHistory], Coroutine[Any, Any, None]]
    ) -> None:
        cluster = cluster_of(self._bootstrap, name)
        try:
            await work(cluster, history.client(name))
        except Exception as error:
            self._fail(name, error)
        finally:
            await cluster.close()

    async def _make_topic(self) -> None:
        cluster = cluster_of(self._bootstrap, "admin")
        try:
            error = (await Admin(cluster).create_topics([self._topic]))[self._topic.name]
            if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error
        finally:
            await cluster.close()

    async def _produce(self, cluster: Cluster, history: ClientHistory) -> None:
        topic, slots = self._topic.name, asyncio.Semaphore(_WINDOW)

        def answered(number: int, value: bytes, future: asyncio.Future[RecordMetadata]) -> None:
            slots.release()
            try:
                if future.cancelled() or future.exception() is not None:
                    history.failed(number, certain=False)
                    return
                where = future.result()
                history.acknowledged(number, where.topic, where.partition, where.offset, value)
            except Exception as error:
                self._fail(history.name, error)
                return
            with self._changed:
                self._acknowledged += 1
                self._changed.notify_all()

        # This producer has at most one request in flight for each partition.
        history.producer(acks=-1, idempotent=True, max_in_flight=1)
        async with Producer(cluster, delivery_timeout_seconds=_DELIVERY_SECONDS) as producer:
            count = 0
            while not self._stopping.is_set():
                await slots.acquire()
                value, partition = f"{history.name}-{count}".encode(), count % len(self._keys)
                number = history.sending(topic, partition, value)
                count += 1
                try:
                    future = await producer.send(topic, value, partition=partition)
                except KafkaError:
                    # The record was not added to the producer's buffer.
                    history.failed(number, certain=True)
                    slots.release()
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                future.add_done_callback(partial(answered, number, value))
                if count % _BURST == 0:
                    await asyncio.sleep(self._pause_seconds)
            await producer.flush()

    def _has_read(self, kind: str) -> None:
        if kind not in self._reading:
            with self._changed:
                self._reading.add(kind)
                self._changed.notify_all()

    async def _read(self, cluster: Cluster, history: ClientHistory) -> None:
        # With auto.offset.reset=none, an offset that does not exist ends the reader with an error. This is wanted,
        # since records that were read must not disappear.
        async with Consumer(cluster, auto_offset_reset="none", max_wait_seconds=_POLL_SECONDS) as consumer:
            await _again(lambda: consumer.assign(dict.fromkeys(self._keys, EARLIEST)))
            history.assigned(self._keys, {key: consumer.position(key) for key in self._keys})
            while not self._stopping.is_set():
                if await _poll_once(consumer, history):
                    self._has_read(_READER)

    async def _read_in_group(self, cluster: Cluster, history: ClientHistory) -> None:
        member = _Member(cluster, self.group, self._topic.name, history)
        try:
            while not self._stopping.is_set():
                if await member.read_and_commit():
                    self._has_read(_MEMBER)
        finally:
            await member.close()

    async def _read_everything(self, cluster: Cluster, history: ClientHistory) -> None:
        async with asyncio.timeout(_END_SECONDS):
            await read_everything(cluster, history, self._keys)

    async def _look_at_offsets(self, cluster: Cluster, history: ClientHistory) -> None:
        began_ns = history.now_ns()
        offsets = await Admin(cluster).list_group_offsets(self.group)
        for key in self._keys:
            history.found(began_ns, self.group, key, offsets[key].offset if key in offsets else -1)


async def read_everything(cluster: Cluster, history: ClientHistory, keys: Sequence[TopicPartition]) -> None:
    """Reads each partition from its beginning to its present end. Writes the records and the ranges to the history as
    a full read."""
    history.full_read(keys)
    starts = {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))).items()}
    ends = {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, LATEST))).items()}
    async with Consumer(cluster, auto_offset_reset="none", max_wait_seconds=_POLL_SECONDS) as consumer:
        await consumer.assign(starts)
        while any(consumer.position(key) < end for key, end in ends.items()):
            await _poll_once(consumer, history)
    history.full_read_ended({key: (starts[key], ends[key]) for key in keys})


async def _poll_once(consumer: Consumer, history: ClientHistory) -> bool:
    """Polls once. Returns True if records were received. Returns False if there were none, or if a broker cannot be
    reached."""
    try:
        found = await consumer.poll(_POLL_SECONDS, _POLL_RECORDS)
    except KafkaError as error:
        if not error.retriable or error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        await asyncio.sleep(_AGAIN_SECONDS)
        return False
    for key, records in found.items():
        history.polled(key, _shown(records))
    return bool(found)


def _shown(records: Collection[Record]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


async def _again(ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Calls `ask` again until it raises no retriable error."""
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(_AGAIN_SECONDS)


class _Member(GroupConsumer):
    """A member of a consumer group that writes its polls and commits into the history."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str, history: ClientHistory) -> None:
        super().__init__(
            cluster,
            group_id,
            [topic],
            MembershipOptions(
                session_timeout_seconds=_SESSION_SECONDS,
                heartbeat_seconds=_HEARTBEAT_SECONDS,
                max_poll_interval_seconds=_POLL_INTERVAL_SECONDS,
            ),
            auto_commit_seconds=None,
            auto_offset_reset="earliest",
            on_assigned=self._given,
            on_revoked=lambda _: history.assigned(sorted(self.assignment()), {}),
            max_wait_seconds=_POLL_SECONDS,
        )
        self._history = history
        self._owes = False

    def _given(self, new: Sequence[TopicPartition]) -> None:
        self._history.assigned(sorted(self.assignment()), {key: self.position(key) for key in new})

    async def committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        began_ns = self._history.now_ns()
        found = await super().committed_positions(keys)
        for key in keys:
            self._history.found(began_ns, self.group_id, key, found[key].offset if key in found else -1)
        return found

    async def read_and_commit(self) -> bool:
        """Polls once, and commits the position after the received records. Returns True if records were received. If
        the commit fails with a retriable error or because of a rebalance, the next call commits again."""
        has_read = False
        try:
            for key, records in (await self.poll(_POLL_SECONDS, _POLL_RECORDS)).items():
                has_read = True
                self._history.polled(key, _shown(records))
                self._owes = True
            positions = {key: self.position(key) for key in self.assignment()}
            if self._owes and positions:
                numbers = {
                    key: self._history.committing(self.group_id, key, offset) for key, offset in positions.items()
                }
                await self.commit(positions)
                for key, number in numbers.items():
                    self._history.committed(number, self.group_id, key, positions[key])
                self._owes = False
        except KafkaError as error:
            if not error.retriable and error.code not in _REBALANCED:
                raise
            await asyncio.sleep(_AGAIN_SECONDS)
        return has_read
