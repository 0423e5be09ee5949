"""The work of the traced broker, in three log directories: producers with and without idempotence, with and without
keys, groups that commit, topics created, branched and deleted, settings changed, records deleted by request and by
retention, replicas moved from one log directory to another, segments rolled and compacted all the time. The broker is
killed in between and started again on the same disk. There are no transactions.

For further work, add a function to `Workload._steps`. The judge gets a partition's log from the broker, in any
directory.

Every answer is noted with its connection and the byte in the stream where it ends, so that the trace shows before
which file operation it left the broker.
"""

from __future__ import annotations

import fcntl
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.records.encode import encode_batch
from jesenska.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.processes.crash.traced_disk import mark_killed
from tests.raw_connection import ClosedByBrokerError, RawConnection

SETTINGS = {
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "8192",
    "log.index.size.max.bytes": "2048",
    "log.index.interval.bytes": "1000",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "800",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "8192",
    "group.initial.rebalance.delay.ms": "0",
}
#: Below the root of all; the first has the tree's journal.
DIRECTORIES = ("one", "two", "three")
#: Two partitions that keep everything; `old` loses segments by retention, `trimmed` by request; two partitions of
#: `compacted`; `both` is compacted, and loses segments by retention.
KEPT, OLD, TRIMMED, COMPACTED, BOTH = "kept", "old", "trimmed", "compacted", "both"
_COMPACTION = {"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "50", "delete.retention.ms": "300"}
_TOPICS: dict[str, dict[str, str]] = {
    KEPT: {},
    OLD: {"retention.bytes": "20000"},
    TRIMMED: {},
    COMPACTED: {"cleanup.policy": "compact", **_COMPACTION},
    BOTH: {"cleanup.policy": "compact,delete", "retention.bytes": "15000", **_COMPACTION},
}
PARTITIONS = {KEPT: 2, OLD: 1, TRIMMED: 1, COMPACTED: 2, BOTH: 1}
#: How many keys each writer of a compacted topic has.
_KEYS = {COMPACTED: 20, BOTH: 150}
#: Branches that are there at a time.
_BRANCHES_MAX = 2
#: Batches that a producer sends without an answer, and records in each.
_BATCHES_AT_ONCE = _RECORDS_MAX = 3
#: A life lasts at least so long.
_LIFE_SECONDS = 2.3
#: A setting of `kept` that only rises, from this value.
_LIMIT_BASE = 1_000_000


class Acknowledged(NamedTuple):
    """`what` was acknowledged when the answers on a connection had reached `end_byte`."""

    life: int
    port: int
    end_byte: int
    what: object


class SentRecord(NamedTuple):
    key: bytes | None
    #: None for a tombstone.
    value: bytes | None
    #: The writer, and the number among its records. A key has one writer.
    writer: str
    number: int


class Produced(NamedTuple):
    topic_partition: TopicPartition
    base_offset: int
    records: tuple[SentRecord, ...]
    #: The batch as it was sent, and its producer; -1 without idempotence.
    batch: bytes
    producer_id: int


class Committed(NamedTuple):
    group: str
    topic_partition: TopicPartition
    offset: int


class TopicMade(NamedTuple):
    name: str


class TopicGone(NamedTuple):
    name: str


class BranchMade(NamedTuple):
    name: str
    #: The acknowledged records of its source at the time of the request.
    held: tuple[Produced, ...]


class ProducerIdGiven(NamedTuple):
    producer_id: int


class LimitSet(NamedTuple):
    limit: int


@dataclass
class Told:
    """The sent records and the answers, over all threads."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    #: Every key and value that a record may have.
    sent: set[tuple[bytes | None, bytes | None]] = field(default_factory=set)
    #: The numbers of the tombstones that were sent for each key.
    tombstones: dict[bytes, list[int]] = field(default_factory=dict)
    #: Branches that were asked for.
    branches: dict[str, BranchMade] = field(default_factory=dict)
    #: Topics for which a deletion was requested.
    doomed: set[str] = field(default_factory=set)
    #: The offset before which the records of `trimmed` may be deleted.
    trimmed_to: int = 0
    limit: int = _LIMIT_BASE

    def send(self, record: SentRecord) -> None:
        self.sent.add((record.key, record.value))
        if record.key is not None and record.value is None:
            self.tombstones.setdefault(record.key, []).append(record.number)

    def may_be_deleted(self, record: SentRecord, last_number: int) -> bool:
        """True if an unacknowledged tombstone after this record may be in the log. `last_number` is the last
        acknowledged record of the writer. The writer had as many more in flight as it sends at once, and twice as many
        where a broker died in between."""
        until = last_number + 2 * _BATCHES_AT_ONCE * _RECORDS_MAX
        return any(record.number < number <= until for number in self.tombstones.get(record.key or b"", ()))


class _Connection(RawConnection):
    """A connection that counts the bytes of the answers."""

    def __init__(self, bootstrap: str, life: int) -> None:
        super().__init__(bootstrap)
        self.life = life
        self.port: int = self.socket.getsockname()[1]
        self.received = 0

    def receive_frame(self) -> bytes:
        frame = super().receive_frame()
        self.received += 4 + len(frame)
        return frame


class Workload:
    """The work of a broker. `run` drives the broker through several lives. Threads that find the broker dead wait for
    its next life."""

    def __init__(
        self, broker: BrokerProcess, trace: Path, round_number: int, told: Told, chance: Random, batches_per_life: int
    ) -> None:
        self._broker = broker
        self._trace = trace
        self._round = round_number
        self._told = told
        self._chance = chance
        self._batches_per_life = batches_per_life
        self._changed = threading.Condition()
        self._life = 0
        self._up = False
        self._batches = 0
        self._stopping = False
        self.failures: list[str] = []

    # --- for the threads ---------------------------------------------------------------------------------------------

    def _connect(self) -> _Connection | None:
        """A connection to the broker in its present life. None when the work is over."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._up or self._stopping)
                if self._stopping:
                    return None
                life = self._life
            try:
                connection = _Connection(self._broker.bootstrap, life)
            except OSError:
                continue
            with self._changed:
                if self._up and self._life == life:
                    return connection
            connection.socket.close()

    def _acknowledge(self, connection: _Connection, what: object) -> None:
        with self._changed:
            self._told.acknowledged.append(Acknowledged(connection.life, connection.port, connection.received, what))
            if isinstance(what, Produced):
                self._batches += 1
                self._changed.notify_all()

    def _work(self, step: Callable[[_Connection], None]) -> None:
        """Runs the steps on one connection after another until the end."""
        try:
            while (connection := self._connect()) is not None:
                with connection:
                    try:
                        while not self._stopping:
                            step(connection)
                            time.sleep(self._chance.uniform(0, 0.1))
                    except (ClosedByBrokerError, OSError):
                        continue
        except BaseException as error:
            with self._changed:
                self.failures.append(f"{step}: {error!r}")
                self._changed.notify_all()
            raise

    # --- what they do ------------------------------------------------------------------------------------------------

    def _producer(self, key: TopicPartition, once: bool) -> Callable[[_Connection], None]:
        chance = Random(f"{self._round} {key} {once}")
        writer = f"{self._round}:{key}:{'once' if once else 'plain'}"
        keys = _KEYS.get(key.topic, 0)
        state = {"id": -1, "sequence": 0, "number": 0}
        waiting: list[tuple[bytes, tuple[SentRecord, ...]]] = []

        def step(connection: _Connection) -> None:
            if once and state["id"] < 0:
                state["id"] = self._new_producer_id(connection)
            if not once:
                waiting.clear()  # whatever became of it: it is not sent again
            for _ in range(0 if waiting else chance.randint(1, _BATCHES_AT_ONCE)):
                records = tuple(
                    _record(writer, state["number"] + index, keys, chance)
                    for index in range(chance.randint(1, _RECORDS_MAX))
                )
                state["number"] += len(records)
                epoch, sequence = (0, state["sequence"]) if once else (NO_PRODUCER_EPOCH, NO_SEQUENCE)
                state["sequence"] += len(records)
                waiting.append((self._batch(records, state["id"], epoch, sequence), records))
            for batch, _ in waiting:
                _send_batch(connection, key, batch)
            while waiting:
                base_offset = _base_offset(connection, key)
                batch, records = waiting.pop(0)
                self._acknowledge(connection, Produced(key, base_offset, records, batch, state["id"]))

        return step

    def _batch(
        self,
        records: tuple[SentRecord, ...],
        producer_id: int = -1,
        epoch: int = NO_PRODUCER_EPOCH,
        sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """Notes a batch that is about to be sent."""
        for record in records:
            self._told.send(record)
        made = [(int(time.time() * 1000), record.key, record.value, ()) for record in records]
        return bytes(encode_batch(made, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))

    def _committer(self, group: str, topic_partitions: list[TopicPartition]) -> Callable[[_Connection], None]:
        state = {"offset": self._round * 1_000_000}

        def step(connection: _Connection) -> None:
            state["offset"] += 1
            topics: dict[str, OffsetCommitRequestTopic] = {}
            for key in topic_partitions:
                topic = topics.setdefault(key.topic, OffsetCommitRequestTopic(name=key.topic))
                topic.partitions.append(
                    OffsetCommitRequestPartition(
                        partition_index=key.partition, committed_offset=state["offset"], committed_metadata="m" * 100
                    )
                )
            answer = connection.ask(
                OffsetCommitRequest(group_id=group, topics=list(topics.values())), 7, OffsetCommitResponse
            )
            codes = {item.error_code for topic_answer in answer.topics for item in topic_answer.partitions}
            if codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
                return
            assert codes == {ErrorCode.NONE}, f"{group}: {codes}"
            for key in topic_partitions:
                self._acknowledge(connection, Committed(group, key, state["offset"]))

        return step

    def _administrator(self) -> Callable[[_Connection], None]:
        state = {"topic": 0}

        def step(connection: _Connection) -> None:
            time.sleep(0.02)
            kind = self._chance.randrange(5)
            if kind == 0:
                state["topic"] += 1
                self._create(connection, f"round-{self._round}-topic-{state['topic']}", {"retention.ms": "1234567"})
            elif kind == 1 and state["topic"] % 2 == 1:
                self._delete(connection, f"round-{self._round}-topic-{state['topic']}")
            elif kind == 2:
                self._told.limit += 1
                self._set_limit(connection, self._told.limit)
            elif kind == 3:
                produced = [item.base_offset for item in self._produced_to(TRIMMED)]
                if produced:
                    self._trim(connection, max(produced) - 3)
            else:
                self._new_producer_id(connection)

        return step

    def _brancher(self) -> Callable[[_Connection], None]:
        """Branches that get some records of their own and are deleted later, while their sources continue."""
        names: list[str] = []
        state = {"branch": 0}

        def step(connection: _Connection) -> None:
            time.sleep(0.2)
            if len(names) >= _BRANCHES_MAX:
                self._delete(connection, names[0])
                names.pop(0)
                return
            state["branch"] += 1
            source = COMPACTED if state["branch"] % 2 else KEPT
            name = f"branch-{self._round}-{state['branch']}-of-{source}"
            made = self._told.branches[name] = BranchMade(name, tuple(self._produced_to(source)))
            names.append(name)
            self._create(connection, name, {"jesenska.branch.of": source}, -1)
            self._acknowledge(connection, made)
            key, writer = TopicPartition(name, 0), f"{name}:plain"
            for number in range(5):
                records = (_record(writer, number, 2, self._chance),)
                batch = self._batch(records)
                _send_batch(connection, key, batch)
                self._acknowledge(connection, Produced(key, _base_offset(connection, key), records, batch, -1))

        return step

    def _mover(self) -> Callable[[_Connection], None]:
        """Moves replicas from one log directory to another, including the groups' offsets. A move may be abandoned for
        another one."""
        replicas = [TopicPartition(name, number) for name, count in PARTITIONS.items() for number in range(count)]
        replicas += [TopicPartition(OFFSETS_TOPIC, number) for number in range(2)]

        def step(connection: _Connection) -> None:
            time.sleep(self._chance.uniform(0.05, 0.25))
            key, path = self._chance.choice(replicas), self._broker.data / self._chance.choice(DIRECTORIES)
            topic = AlterReplicaLogDirsRequestTopic(name=key.topic, partitions=[key.partition])
            request = AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDirsRequestDir(path=str(path.absolute()), topics=[topic])]
            )
            answer = connection.ask(request, 2, AlterReplicaLogDirsResponse)
            code = answer.results[0].partitions[0].error_code
            # A replica that is there no more, or not yet.
            assert code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE), code

        return step

    def _produced_to(self, topic: str) -> list[Produced]:
        """The records of a topic that have been acknowledged so far in this round."""
        with self._changed:
            every = [item.what for item in self._told.acknowledged]
        return [what for what in every if isinstance(what, Produced) and what.topic_partition.topic == topic]

    def _delete(self, connection: _Connection, name: str) -> None:
        self._told.doomed.add(name)
        answer = connection.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 3, DeleteTopicsResponse)
        assert answer.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ErrorCode(
            answer.responses[0].error_code
        ).name
        self._acknowledge(connection, TopicGone(name))

    def _new_producer_id(self, connection: _Connection) -> int:
        answer = connection.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4, InitProducerIdResponse
        )
        assert answer.error_code == ErrorCode.NONE
        self._acknowledge(connection, ProducerIdGiven(answer.producer_id))
        return answer.producer_id

    def _create(self, connection: _Connection, name: str, configs: dict[str, str], partitions: int = 1) -> None:
        topic = CreateTopicsRequestTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1 if partitions > 0 else -1,
            configs=[CreateTopicsRequestConfig(name=key, value=value) for key, value in configs.items()],
        )
        answer = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4, CreateTopicsResponse)
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), (
            f"{name}: {answer.topics[0].error_message}"
        )
        self._acknowledge(connection, TopicMade(name))

    def _set_limit(self, connection: _Connection, limit: int) -> None:
        config = IncrementalAlterConfigsRequestConfig(name="max.message.bytes", config_operation=0, value=str(limit))
        resource = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name=KEPT, configs=[config])
        answer = connection.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 0, IncrementalAlterConfigsResponse
        )
        assert answer.responses[0].error_code == ErrorCode.NONE
        self._acknowledge(connection, LimitSet(limit))

    def _trim(self, connection: _Connection, offset: int) -> None:
        self._told.trimmed_to = max(self._told.trimmed_to, offset)
        topic = DeleteRecordsRequestTopic(
            name=TRIMMED, partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=max(0, offset))]
        )
        answer = connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 1, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    # --- the whole ---------------------------------------------------------------------------------------------------

    def _lives(self, up: bool) -> None:
        with self._changed:
            self._up = up
            self._life += up
            self._changed.notify_all()

    def _kill(self) -> None:
        """Runs between two file operations: the tracer holds this lock during each."""
        with Path(f"{self._trace}.lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._lives(False)
            self._broker.kill()
        mark_killed(self._trace)

    def _steps(self) -> list[Callable[[_Connection], None]]:
        """The work that is repeated all the time, each function in a thread of its own."""
        kept, compacted = (
            [TopicPartition(name, number) for number in range(PARTITIONS[name])] for name in (KEPT, COMPACTED)
        )
        steps = [self._producer(key, once) for key in (*kept, *compacted) for once in (True, False)]
        steps += [
            self._producer(TopicPartition(OLD, 0), True),
            self._producer(TopicPartition(TRIMMED, 0), False),
            self._producer(TopicPartition(BOTH, 0), True),
        ]
        steps += [
            self._committer("first", kept),
            self._committer("second", kept),
            self._administrator(),
            self._brancher(),
            self._mover(),
        ]
        return steps

    def _has_compacted_all(self) -> bool:
        """True if every topic was compacted. Compaction pauses while a replica moves, so some topics may not have been
        compacted yet."""
        return {COMPACTED, BOTH, OFFSETS_TOPIC} <= set(re.findall(r"(\S+)-\d+: compacted up to", self._broker.log))

    def run(self, lives: int) -> None:
        """Runs the lives. The last one ends in order, the others by SIGKILL."""
        threads = [threading.Thread(target=self._work, args=(step,)) for step in self._steps()]
        self._broker.start()
        try:
            connection = _Connection(self._broker.bootstrap, 1)
            with connection:
                for name, configs in _TOPICS.items():
                    self._create(connection, name, configs, PARTITIONS[name])
                while (
                    connection.ask(FindCoordinatorRequest(key="first"), 2, FindCoordinatorResponse).error_code
                    != ErrorCode.NONE
                ):
                    pass
            for thread in threads:
                thread.start()
            for life in range(lives):
                if life:
                    self._broker.start()
                self._lives(True)
                begun = time.monotonic()
                with self._changed:
                    until = self._batches + self._chance.randint(
                        self._batches_per_life * 3 // 4, self._batches_per_life
                    )
                    assert self._changed.wait_for(
                        lambda until=until: self._batches >= until or self.failures,  # type: ignore[misc]
                        120,
                    ), "the load stands still"
                    # Checkpoints and retention run once a second.
                    self._changed.wait_for(
                        lambda: bool(self.failures), max(0.0, begun + _LIFE_SECONDS - time.monotonic())
                    )
                    if life + 1 == lives:
                        self._changed.wait_for(lambda: self._has_compacted_all() or self.failures, 60)
                    assert self.failures == [], self._broker.log[-3000:]
                if life + 1 < lives:
                    self._kill()
        finally:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            self._broker.stop()


def _record(writer: str, number: int, keys: int, chance: Random) -> SentRecord:
    """All values are different. Every fifth record with a key is a tombstone."""
    key = b"%s/%d" % (writer.encode(), chance.randrange(keys)) if keys else None
    if key is not None and chance.random() < 0.2:
        return SentRecord(key, None, writer, number)
    return SentRecord(
        key, b"%s:%d:" % (writer.encode(), number) + chance.randbytes(chance.randrange(400)), writer, number
    )


def _send_batch(connection: _Connection, key: TopicPartition, batch: bytes) -> None:
    partition = ProduceRequestPartition(index=key.partition, records=memoryview(batch))
    topic = ProduceRequestTopic(name=key.topic, partition_data=[partition])
    connection.send_frame(connection.frame(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9))


def _base_offset(connection: _Connection, key: TopicPartition) -> int:
    """The base offset in the answer to a batch."""
    item = connection.receive(9, ProduceResponse).responses[0].partition_responses[0]
    assert item.error_code == ErrorCode.NONE, f"{key}: {ErrorCode(item.error_code).name}"
    return item.base_offset
