"""Simulations of Spark queries that write exactly once, without Spark. They run the driver's code in
`pipeline.micro_batches`, and tasks that write in the driver's transaction, as in `pipeline.exactly_once`.

Two queries share the topic of micro-batches and the topic to which they write. A repeated micro-batch has the same
rows, as Spark's checkpoint ensures. The faults of clients:

driver killed     the driver's tasks continue; another driver continues from the checkpoint
executor killed   an executor is killed before or after its tasks send their batches; the driver is informed
second driver     another driver of the query starts, while the first driver continues
task fails        a task fails after some of its rows; the other tasks continue, and the driver does not wait for them
task run again    Spark starts a failed or slow task a second time; the second attempt must refuse

The invariant: a read_committed consumer finds each micro-batch that the checkpoint records as done. Each micro-batch
is complete, is in the topic once, and comes from a single attempt. The rows and the micro-batches are in order. The
next micro-batch is found completely or not at all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jesenska.base.errors import KafkaError, ProducerFencedError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.pipeline.micro_batches import MicroBatch, MicroBatchTransaction, Query, Ticket, make_batches_topic
from jesenska.testing.simulation.clients import cluster_of, create_topic
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.schedule import _REST_SECONDS, Simulation, simulation
from jesenska.testing.simulation.transaction_clients import CommittedReader
from jesenska.testing.simulation.transactional import TRANSACTIONAL_SECONDS, TransactionalSimulation
from jesenska.testing.simulation.watches.history import History, RecordPlace, ViolationError
from jesenska.testing.simulation.watches.transaction_history import KnownTransaction, ProducerName, TransactionHistory

BATCHES_TOPIC = "batches"
_QUERIES = 2
_ROWS_MAX = 12
_TRANSACTION_TIMEOUT_MS, _DELIVERY_TIMEOUT_MS = 6000, 5000
#: The seconds after which a driver gives up waiting for its tasks, and the seconds between two checks.
_TASKS_SECONDS, _LOOK_SECONDS = 6.0, 0.01
#: The probabilities that a task fails, that a task is slow, and that a driver pauses before the commit.
_FAILS, _IS_SLOW, _HESITATES = 0.05, 0.1, 0.1
#: The fraction of faults that hit drivers and executors, and the number of all faults.
_OF_CLIENTS, MICRO_BATCH_FAULTS = 0.5, 8
#: The number of micro-batches that each query must write after the last fault.
_AT_THE_END = 2


class _TaskError(Exception):
    """The error that is raised if a task has not written its rows."""


class Checkpoint:
    """The Spark checkpoint of a query: the number of rows of each micro-batch by partition, and the last completed
    micro-batch."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.done = -1
        self._rows: list[dict[TopicPartition, int]] = []

    def rows(self, batch: int, choose: Callable[[], dict[TopicPartition, int]]) -> Mapping[TopicPartition, int]:
        """Returns the number of rows of a micro-batch for each partition. `choose` chooses the numbers at the first
        call; later calls return the same numbers."""
        if batch == len(self._rows):
            self._rows.append(choose())
        return self._rows[batch]

    @property
    def begun(self) -> Sequence[Mapping[TopicPartition, int]]:
        return self._rows


class _Run:
    """The state of a running task, as the driver sees it."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: Exception | None = None


class Executor:
    """A process that runs tasks."""

    def __init__(self, process: Process, bootstrap: str) -> None:
        self.process = process
        self.cluster: Cluster = cluster_of(process, bootstrap)

    def run(self, task: Coroutine[Any, Any, None]) -> _Run:
        run = _Run()

        async def work() -> None:
            try:
                await task
            except (KafkaError, _TaskError) as error:
                run.error = error
            run.is_done = True

        def start() -> None:
            if self.process.is_dead:
                task.close()
            else:
                self.process.start(work())

        self.process.world.after(0.0, start)
        return run


class Driver:
    """One run of a query. It ends when it is stopped, or when another run of the query has begun."""

    def __init__(
        self,
        process: Process,
        history: History,
        known: TransactionHistory,
        bootstrap: str,
        checkpoint: Checkpoint,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.process = process
        self.is_stopping = False
        self.checkpoint = checkpoint
        self.executor: Executor
        self._history = history
        self._known = known
        self._partitions = partitions
        self._random = process.world.random
        self._cluster: Cluster = cluster_of(process, bootstrap)
        self._query = Query(checkpoint.query, BATCHES_TOPIC, _TRANSACTION_TIMEOUT_MS, _DELIVERY_TIMEOUT_MS)
        self._serial = 0

    async def run(self) -> None:
        checkpoint = self.checkpoint
        while not self.is_stopping:
            batch = checkpoint.done + 1
            rows = checkpoint.rows(batch, self._choose)
            try:
                await self._write(batch, rows)
            except ProducerFencedError:
                self.process.world.tell(self.process.name, f"is fenced in micro-batch {batch} of {checkpoint.query}")
                return
            except (KafkaError, _TaskError) as error:
                self.process.world.tell(
                    self.process.name, f"begins micro-batch {batch} of {checkpoint.query} anew: {error}"
                )
                await asyncio.sleep(self._random.uniform(0.0, 0.5))
                continue
            checkpoint.done = max(checkpoint.done, batch)
            await asyncio.sleep(self._random.choice((0.0, 0.05, 0.3)))

    def _choose(self) -> dict[TopicPartition, int]:
        chosen = {partition: self._random.randrange(_ROWS_MAX) for partition in self._partitions}
        return {partition: count for partition, count in chosen.items() if count}

    async def _write(self, batch: int, rows: Mapping[TopicPartition, int]) -> None:
        """Writes a micro-batch as `ExactlyOnce` does."""
        await make_batches_topic(self._cluster, BATCHES_TOPIC)
        transaction = await MicroBatchTransaction.begin(self._cluster, self._query, self._random)
        try:
            is_committed = await self._write_in(transaction, batch, rows)
        except (KafkaError, _TaskError):
            await transaction.close(is_committed=False)
            raise
        await transaction.close(is_committed)

    async def _write_in(
        self, transaction: MicroBatchTransaction, batch: int, rows: Mapping[TopicPartition, int]
    ) -> bool:
        """Writes the micro-batch in the transaction. Returns False if the micro-batch was already written."""
        ticket = transaction.ticket
        self._known.begun(
            ticket.transactional_id, self.process.name, ProducerName(ticket.producer_id, ticket.producer_epoch)
        )
        number = MicroBatch(batch)
        await transaction.write_number(number)
        if number.is_written(self.checkpoint.query, await transaction.last_batch()):
            self.process.world.tell(self.process.name, f"finds micro-batch {batch} of {self.checkpoint.query} written")
            return False
        self._serial += 1
        known = self._known.open(f"{self.checkpoint.query}:{batch}@{self.process.name}/{self._serial}")
        await self._run_tasks(ticket, known, rows)
        if self._random.random() < _HESITATES:
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
        known.commits = True
        await transaction.commit()
        self._known.ended(known, True)
        return True

    async def _run_tasks(self, ticket: Ticket, known: KnownTransaction, rows: Mapping[TopicPartition, int]) -> None:
        executor, random = self.executor, self._random
        running = {
            partition: executor.run(self._task(executor, ticket, known, partition, range(count)))
            for partition, count in rows.items()
        }
        until = self._cluster.clock.monotonic() + _TASKS_SECONDS
        while not all(run.is_done for run in running.values()):
            await asyncio.sleep(_LOOK_SECONDS)
            if executor.process.is_dead:
                raise _TaskError("its executor is lost")
            failed = next((partition for partition, run in running.items() if run.error is not None), None)
            if failed is None and random.random() < 0.001:
                failed = next((partition for partition, run in running.items() if not run.is_done), None)
            if failed is not None:
                running[failed] = executor.run(
                    self._second_attempt(executor, ticket, known, failed, range(rows[failed]))
                )
                await self._until_over(running[failed], until)
            if self._cluster.clock.monotonic() > until:
                raise _TaskError("its tasks take too long")
        errors = [run.error for run in running.values() if run.error is not None]
        if errors:
            raise _TaskError(f"a task has failed: {errors[0]}") from errors[0]

    async def _until_over(self, run: _Run, until: float) -> None:
        while not run.is_done and self._cluster.clock.monotonic() < until and not self.executor.process.is_dead:  # noqa: ASYNC110 - another program's
            await asyncio.sleep(_LOOK_SECONDS)
        if run.error is not None:
            raise _TaskError(f"a task has failed: {run.error}") from run.error

    async def _second_attempt(
        self,
        executor: Executor,
        ticket: Ticket,
        known: KnownTransaction,
        partition: TopicPartition,
        rows: Sequence[int],
    ) -> None:
        raise _TaskError("a task is not run a second time")

    async def _task(
        self,
        executor: Executor,
        ticket: Ticket,
        known: KnownTransaction,
        partition: TopicPartition,
        rows: Sequence[int],
    ) -> None:
        """Writes the rows of one task in the driver's transaction, with sequence numbers from 0."""
        random = self._random
        producer = Producer(
            executor.cluster,
            transactions=ticket.join(executor.cluster),
            random_source=random,
            delivery_timeout_seconds=_DELIVERY_TIMEOUT_MS / 1000,
            linger_seconds=0.0,
        )
        me = ProducerName(ticket.producer_id, ticket.producer_epoch)
        fails_at = random.choice(rows) if random.random() < _FAILS else -1
        pause = random.uniform(0.1, 1.0) if random.random() < _IS_SLOW else 0.0
        sent: list[tuple[bytes, ProducerName | None, asyncio.Future[RecordMetadata]]] = []
        try:
            for row in rows:
                if row == fails_at:
                    raise _TaskError("so the seed wants it")
                value = f"{known.name}/{partition.partition}-{row}".encode()
                self._known.sends(known, value)
                successor = self._known.successor_of(ticket.transactional_id, me)
                sent.append(
                    (value, successor, await producer.send(partition.topic, value, partition=partition.partition))
                )
                if pause or random.random() < 0.3:
                    await asyncio.sleep(pause)
            for value, successor, future in sent:
                offset = (await future).offset
                self._known.accepted(me, successor, f"the record {value.decode()}")
                self._history.sent(partition, offset, value)
                self._known.acknowledged(known, partition, offset)
        except (KafkaError, _TaskError):
            await producer.close(flush=False)
            raise
        await producer.close(flush=False)


class _Place(NamedTuple):
    """The contents of a record's value: the query, the micro-batch, the attempt to write the micro-batch, and the
    row."""

    query: str
    batch: int
    attempt: str
    row: int

    @classmethod
    def of(cls, value: bytes) -> _Place:
        first, _, row = value.decode().rpartition("-")
        attempt = first.rpartition("/")[0]
        query, _, batch = attempt.partition("@")[0].rpartition(":")
        return cls(query, int(batch), attempt, int(row))


def judge_query(checkpoint: Checkpoint, committed: Mapping[RecordPlace, bytes]) -> None:
    """Checks the rows of one query. `committed` contains all records that a read_committed consumer has got. Raises
    ViolationError if a micro-batch is incomplete, is in the topic twice, or is out of order."""
    found: dict[TopicPartition, list[_Place]] = defaultdict(list)
    attempts: dict[int, str] = {}
    for place in sorted(committed):
        what = _Place.of(committed[place])
        if what.query != checkpoint.query:
            continue
        found[place.partition].append(what)
        other = attempts.setdefault(what.batch, what.attempt)
        if other != what.attempt:
            raise ViolationError(
                f"micro-batch {what.batch} of {what.query} is there from the attempts {other} and {what.attempt}"
            )
    last = max((checkpoint.done, *attempts))
    if last > checkpoint.done + 1:
        raise ViolationError(
            f"micro-batch {last} of {checkpoint.query} is there, and {checkpoint.done} was the last one that is done"
        )
    for partition in {partition for rows in checkpoint.begun for partition in rows}:
        expected = [
            (batch, row)
            for batch, rows in enumerate(checkpoint.begun[: last + 1])
            for row in range(rows.get(partition, 0))
        ]
        there = [(what.batch, what.row) for what in found[partition]]
        if there != expected:
            at = next(
                (number for number, (one, other) in enumerate(zip(there, expected, strict=False)) if one != other),
                min(len(there), len(expected)),
            )
            raise ViolationError(
                f"{partition} should have row {expected[at : at + 1]} of {checkpoint.query} at its place {at}, and "
                f"has {there[at : at + 1]} (batch, row)"
            )


class MicroBatchSimulation(TransactionalSimulation):
    """The run of one seed with two queries."""

    def __init__(self, seed: int, directory: Path, **others: Any) -> None:
        super().__init__(seed, directory, **others)
        self.checkpoints = [Checkpoint(f"query-{number}") for number in range(_QUERIES)]
        self._drivers: list[Driver] = []
        self._executors: dict[str, Executor] = {}

    def _begin_clients(self, settings: Mapping[str, str]) -> None:
        maker = Process(self.world, self._network, "admin")
        compacted = dict(settings) | {"cleanup.policy": "compact"}
        made = self._start(maker, create_topic(maker, self._bootstrap, BATCHES_TOPIC, 1, len(self.hosts), compacted))
        self._go_on(made.done, 60.0, "the topic of micro-batches is not made")
        maker.end()
        for checkpoint in self.checkpoints:
            self._new_executor(checkpoint)
            self._new_driver(checkpoint)
        process = Process(self.world, self._network, self._name("reader"))
        self._reader = CommittedReader(process, self.history, self.known, self._bootstrap, self.topic_partitions)
        self._start(process, self._reader.run())

    def _new_executor(self, checkpoint: Checkpoint) -> None:
        made = Executor(Process(self.world, self._network, self._name("executor")), self._bootstrap)
        self._executors[checkpoint.query] = made
        self._start(made.process, asyncio.sleep(0.0))  # so that the failures of its loop are checked
        for driver in self._drivers:
            if driver.checkpoint is checkpoint:
                driver.executor = made

    def _new_driver(self, checkpoint: Checkpoint) -> None:
        process = Process(self.world, self._network, self._name("driver"))
        driver = Driver(process, self.history, self.known, self._bootstrap, checkpoint, self.topic_partitions)
        driver.executor = self._executors[checkpoint.query]
        self._drivers.append(driver)
        self._start(process, driver.run())

    def _clients(self) -> list[Process]:
        everybody = [
            *(driver.process for driver in self._drivers),
            *(executor.process for executor in self._executors.values()),
        ]
        return [process for process in everybody if not process.is_dead]

    def _fault(self) -> None:
        if self.world.random.random() < _OF_CLIENTS:
            self._member_gone()
        else:
            super()._fault()

    def _member_gone(self) -> None:
        """Kills and replaces a driver or an executor, or starts a second driver."""
        random = self.world.random
        checkpoint = random.choice(self.checkpoints)
        kind = random.choice(("driver", "driver", "executor", "second driver"))
        if kind == "executor":
            gone = self._executors[checkpoint.query].process
            self.world.tell("fault", f"{gone.name} is killed")
            gone.end()
            self._new_executor(checkpoint)
            return
        if kind == "driver":
            for driver in self._drivers:
                if driver.checkpoint is checkpoint and not driver.process.is_dead:
                    self.world.tell("fault", f"{driver.process.name} is killed")
                    driver.process.end()
        else:
            self.world.tell("fault", f"a second driver of {checkpoint.query} begins")
        self.later(random.choice((0.0, 0.1, 1.0)), partial(self._new_driver, checkpoint))

    def _end_clients(self) -> None:
        for checkpoint in self.checkpoints:
            self._new_driver(checkpoint)
        until = [checkpoint.done + _AT_THE_END for checkpoint in self.checkpoints]
        self._go_on(
            lambda: all(checkpoint.done >= number for checkpoint, number in zip(self.checkpoints, until, strict=True)),
            _REST_SECONDS,
            "a query does not come on",
        )
        for driver in self._drivers:
            driver.is_stopping = True
        self._end_of("driver", "a driver does not come to an end")
        self._go_on(self._is_decided, _REST_SECONDS, "a transaction does not come to an end")
        self._reader.is_stopping = True
        self._end_of("reader", "a reader does not come to an end")

    def _judge_clients(self) -> None:
        process = Process(self.world, self._network, "last-committed")
        reader = CommittedReader(process, self.history, self.known, self._bootstrap, self.topic_partitions)
        log_ends = {
            scanned.log.topic_partition: scanned.log.log_end_offset for scanned in self.transaction_watch.look()
        }
        reading = self._start(
            process, reader.read_all({partition: log_ends[partition] for partition in reader.expected})
        )
        self._go_on(reading.done, _REST_SECONDS, "the last reader of committed records does not come to an end")
        self._judge_tasks()
        self.known.judge_all()
        for checkpoint in self.checkpoints:
            judge_query(checkpoint, self.known.committed)
        done, tried = sum(checkpoint.done + 1 for checkpoint in self.checkpoints), len(self.known.transactions)
        self.world.tell("simulation", f"{done} micro-batches are done, in {tried} attempts")


def micro_batch_simulation(
    seed: int, *, tree_apart: bool = False, brokers: int = 1
) -> AbstractContextManager[Simulation]:
    """Gives the `with` block a simulation of queries that write exactly once. The arguments are those of
    `schedule.simulation`."""
    return simulation(
        seed,
        seconds=TRANSACTIONAL_SECONDS,
        faults=MICRO_BATCH_FAULTS,
        tree_apart=tree_apart,
        brokers=brokers,
        kind=MicroBatchSimulation,
    )
