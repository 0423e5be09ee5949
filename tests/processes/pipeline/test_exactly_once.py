"""Each micro-batch is in one transaction, exactly once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.producer import Producer
from jesenska.pipeline import exactly_once, micro_batches
from jesenska.pipeline.connector.cluster_thread import connect
from jesenska.pipeline.connector.sink import write_rows
from jesenska.pipeline.exactly_once import ExactlyOnce
from jesenska.pipeline.micro_batches import MicroBatchTransaction, Ticket
from jesenska.testing import BrokerProcess
from tests.processes.pipeline.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Crash(Exception):
    """The end of the driver at a point."""


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Rows of numbers from the first on, each with its own key."""
    return spark.range(first, first + count, numPartitions=3).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )


def options(topics: Topics, topic: str | None, **more: str) -> Mapping[str, str]:
    settings = {
        "kafka.bootstrap.servers": topics.bootstrap,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return settings if topic is None else {**settings, "topic": topic}


def committed(spark: SparkSession, topics: Topics, topic: str) -> list[int]:
    """The numbers that a reader of committed records finds, in order."""
    found = (
        spark.read.format("jesenska")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
        .selectExpr("cast(value as string) as value")
        .collect()
    )
    return sorted(int(row["value"]) for row in found)


def test_a_micro_batch_is_written_once(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(4)
    write = ExactlyOnce(f"once-{topic}", options(topics, topic))
    write(rows(spark, 0, 100), 0)
    write(rows(spark, 0, 100), 0)
    write(rows(spark, 100, 50), 1)
    # Another driver of the same query, after a restart.
    ExactlyOnce(f"once-{topic}", options(topics, topic))(rows(spark, 100, 50), 1)
    assert committed(spark, topics, topic) == list(range(150))


def test_rows_name_their_topics_and_partitions(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(2), topics.create(3)
    frame = spark.range(0, 60, numPartitions=4).selectExpr(
        f"if(id % 2 = 0, '{first}', '{second}') as topic",
        "cast(id % 2 as int) as partition",
        "cast(id as string) as value",
    )
    ExactlyOnce(f"named-{first}", options(topics, None))(frame, 0)
    assert committed(spark, topics, first) == list(range(0, 60, 2))
    assert committed(spark, topics, second) == list(range(1, 60, 2))
    assert topics.offsets(first, 2) == {0: (0, 31), 1: (0, 0)}


@pytest.mark.parametrize("point", ["after the number", "before the tasks", "after the tasks", "after the commit"])
def test_a_driver_that_ends_anywhere_leaves_all_or_nothing(
    spark: SparkSession, topics: Topics, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(3)
    write = ExactlyOnce(f"killed-{topic}", options(topics, topic))
    write(rows(spark, 0, 30), 0)
    with monkeypatch.context() as patched:
        _crash_at(point, patched)
        with pytest.raises(Crash):
            write(rows(spark, 30, 30), 1)
    assert committed(spark, topics, topic) == list(range(60 if point == "after the commit" else 30))
    again = ExactlyOnce(f"killed-{topic}", options(topics, topic))
    again(rows(spark, 30, 30), 1)
    again(rows(spark, 60, 30), 2)
    assert committed(spark, topics, topic) == list(range(90))


def _crash_at(point: str, patched: pytest.MonkeyPatch, query: str | None = None) -> None:
    """Makes the driver of this query, or any driver, end at this point. The actions that a killed driver cannot do are
    left out: it aborts nothing and closes nothing."""
    name = {
        "after the number": "write_number",
        "before the tasks": "last_batch",
        "after the tasks": "commit",
        "after the commit": "commit",
    }[point]
    whole = MicroBatchTransaction
    step, close = getattr(whole, name), whole.close

    async def end(writing: MicroBatchTransaction, *arguments: Any) -> Any:
        if query not in (None, writing._query.name):
            return await step(writing, *arguments)
        if point != "after the tasks":
            await step(writing, *arguments)
        raise Crash

    async def close_of_others(writing: MicroBatchTransaction, is_committed: bool) -> None:
        if query not in (None, writing._query.name):
            await close(writing, is_committed)

    patched.setattr(whole, name, end)
    patched.setattr(whole, "close", close_of_others)


def test_an_open_transaction_of_another_query_hides_no_marker(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = topics.create(2), topics.create(2)
    shared = topics.create(1, cleanup_policy="compact")
    write = ExactlyOnce(f"hidden-{topic}", options(topics, topic, batches_topic=shared))
    with monkeypatch.context() as patched:
        _crash_at("after the number", patched)
        with pytest.raises(Crash):
            ExactlyOnce(f"open-{topic}", options(topics, other, batches_topic=shared))(rows(spark, 0, 10), 0)
    write(rows(spark, 0, 20), 0)
    ExactlyOnce(f"hidden-{topic}", options(topics, topic, batches_topic=shared))(rows(spark, 0, 20), 0)
    assert committed(spark, topics, topic) == list(range(20))


def test_two_queries_at_once_share_the_topic_of_micro_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them ends at each point, repeatedly, while the other goes on."""
    source, shared = topics.create(3), topics.create(1, cleanup_policy="compact")
    steady, failing = topics.create(2), topics.create(2)
    for partition in range(3):
        topics.send(source, [b"%d" % number for number in range(partition, 60, 3)], partition)
    read = options(topics, None, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="10")

    def start(target: str, write: ExactlyOnce) -> Any:
        stream = spark.readStream.format("jesenska").options(**read).load().select("value")
        return (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / target))
            .trigger(availableNow=True)
            .start()
        )

    begun = threading.Event()

    class Waiting(ExactlyOnce):
        """Waits with its first micro-batch until the other query has left its transaction open."""

        def _run_tasks(self, rows: DataFrame, ticket: Ticket) -> dict[TopicPartition, int]:
            assert begun.wait(60)
            return super()._run_tasks(rows, ticket)

    undisturbed = start(steady, Waiting(f"steady-{steady}", options(topics, steady, batches_topic=shared)))
    for point in ("after the number", "after the tasks", "after the commit", "before the tasks", None):
        write = ExactlyOnce(f"failing-{failing}", options(topics, failing, batches_topic=shared))
        if point is None:
            start(failing, write).awaitTermination(60)
            continue
        with monkeypatch.context() as patched:
            _crash_at(point, patched, f"failing-{failing}")
            with pytest.raises(StreamingQueryException):
                start(failing, write).awaitTermination(60)
        begun.set()
    undisturbed.awaitTermination(60)
    assert committed(spark, topics, steady) == list(range(60))
    assert committed(spark, topics, failing) == list(range(60))


def test_a_task_of_an_attempt_that_is_over_writes_nothing(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task belongs to a killed driver. It runs before the next attempt is committed, and afterwards."""
    topic = topics.create(2)
    write = ExactlyOnce(f"zombie-{topic}", options(topics, topic))
    tickets: list[Ticket] = []
    run_tasks = ExactlyOnce._run_tasks

    def note(self: ExactlyOnce, rows: DataFrame, ticket: Ticket) -> dict[TopicPartition, int]:
        for old in tickets:
            _is_refused(old)
        tickets.append(ticket)
        return run_tasks(self, rows, ticket)

    def _is_refused(ticket: Ticket) -> None:
        connection = connect(write.options.client)

        async def producer() -> Producer:
            return Producer(connection.cluster, transactions=ticket.join(connection.cluster))

        late = pa.RecordBatch.from_pydict({"value": [b"999"], "partition": pa.array([0], pa.int32())})
        with pytest.raises(JesenskaError, match="Writing 1 records to partition 0"):
            write_rows(write.options, iter([late]), producer=connection.run(producer()))

    monkeypatch.setattr(ExactlyOnce, "_run_tasks", note)
    with monkeypatch.context() as patched:
        _crash_at("after the tasks", patched)
        with pytest.raises(Crash):
            write(rows(spark, 0, 20), 0)
    write(rows(spark, 0, 20), 0)
    assert len(tickets) == 2
    for ticket in tickets:
        _is_refused(ticket)
    write(rows(spark, 20, 20), 1)
    assert committed(spark, topics, topic) == list(range(40))


def test_a_micro_batch_that_takes_too_long_is_aborted_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(2)
        write = ExactlyOnce(f"slow-{topic}", options(topics, topic, kafka_transaction_timeout_ms="1000"))
        commit = MicroBatchTransaction.commit

        async def wait_for_the_abort(writing: Any) -> None:
            name = writing.ticket.transactional_id
            while (await Admin(writing._cluster).describe_transaction(name)).state == "Ongoing":
                await asyncio.sleep(0.02)
            await commit(writing)

        with monkeypatch.context() as patched:
            patched.setattr(MicroBatchTransaction, "commit", wait_for_the_abort)
            with pytest.raises(JesenskaError, match=r"took longer than the 1 s .*maxOffsetsPerTrigger"):
                write(rows(spark, 0, 20), 0)
        assert committed(spark, topics, topic) == []
        ExactlyOnce(f"slow-{topic}", options(topics, topic))(rows(spark, 0, 20), 0)
        assert committed(spark, topics, topic) == list(range(20))
        topics.close()


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    write = ExactlyOnce(f"failing-{topic}", options(topics, topic))
    broken = rows(spark, 0, 40).selectExpr("key", "if(key = '33', raise_error('no such row'), value) as value")
    with pytest.raises(Exception, match="no such row"):
        write(broken, 0)
    write(rows(spark, 0, 40), 0)
    assert committed(spark, topics, topic) == list(range(40))


def test_a_micro_batch_of_which_spark_loses_what_was_shuffled_is_begun_anew(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The files are lost as with an executor. Tasks that have ended then have written records that other tasks will
    write again. There are more tasks than can run at once, so the later ones find the files missing."""
    topic, lost = topics.create(6), tmp_path / "lost"
    shuffled = Path(spark.conf.get("spark.local.dir") or "")
    write_packed = exactly_once._write_packed

    def write_and_lose(*arguments: Any) -> dict[TopicPartition, int]:
        written = write_packed(*arguments)
        if written and not lost.exists():
            lost.touch()
            for file in shuffled.glob("**/shuffle_*"):
                file.unlink(missing_ok=True)  # Spark removes the shuffle files of earlier jobs
        return written

    monkeypatch.setattr(exactly_once, "_write_packed", write_and_lose)
    monkeypatch.setattr(SparkContext, "defaultParallelism", 6)
    before = spark.conf.get("spark.sql.shuffle.partitions") or ""
    spark.conf.set("spark.sql.shuffle.partitions", "6")
    try:
        ExactlyOnce(f"lost-{topic}", options(topics, topic))(rows(spark, 0, 300), 0)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert "is tried again: Spark has lost what was shuffled" in caplog.text
    assert committed(spark, topics, topic) == list(range(300))


@pytest.mark.parametrize(
    ("compression", "value"),
    [("none", "cast(id as string)"), ("none", "uuid()"), ("zstd", "rpad(cast(id as string), 900, 'x')")],
)
def test_what_is_shuffled_arrives_as_it_was(spark: SparkSession, topics: Topics, compression: str, value: str) -> None:
    """Values that can be compressed for the shuffle, values that cannot, and batches that are compressed already."""
    topic = topics.create(3)
    made = spark.range(0, 5000, numPartitions=3).selectExpr("cast(id as string) as key", f"{value} as value").cache()
    ExactlyOnce(f"way-{topic}", options(topics, topic, kafka_compression_type=compression))(made, 0)
    reader = (
        spark.read.format("jesenska").option("kafka.bootstrap.servers", topics.bootstrap).option("subscribe", topic)
    )
    found = reader.load().selectExpr("cast(key as string) as key", "cast(value as string) as value").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, made.collect()))
    made.unpersist()


@given(st.binary(), st.integers(1, 200))
def test_a_batch_is_after_the_way_what_it_was_before(start: bytes, times: int) -> None:
    batch = bytearray(start * times)
    size, shuffled = exactly_once._for_the_way(batch)
    assert len(shuffled) <= len(batch)
    assert exactly_once._from_the_way(size, pa.py_buffer(shuffled)) == batch


@pytest.mark.parametrize("aligned", [False, True])
def test_a_micro_batch_of_which_a_worker_is_killed_is_begun_anew(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    aligned: bool,
) -> None:
    topic, killed = topics.create(2), tmp_path / "killed"
    name = "write_rows" if aligned else "_write_packed"
    write = getattr(exactly_once, name)

    def write_and_die(*arguments: Any) -> dict[TopicPartition, int]:
        written: dict[TopicPartition, int] = write(*arguments)
        if written and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    monkeypatch.setattr(exactly_once, name, write_and_die)
    placed = (
        rows(spark, 0, 100)
        .selectExpr("value", "cast(cast(value as int) % 2 as int) as partition")
        .repartition(2, "partition")
    )
    ExactlyOnce(f"worker-{topic}", options(topics, topic), aligned=aligned)(placed, 0)
    assert "is tried again: Spark has lost a Python worker" in caplog.text
    assert committed(spark, topics, topic) == list(range(100))


def test_aligned_rows_are_not_shuffled_and_others_are_refused(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    write = ExactlyOnce(f"aligned-{topic}", options(topics, topic), aligned=True)
    placed = rows(spark, 0, 20).selectExpr("value", "cast(cast(value as int) % 2 as int) as partition")
    with pytest.raises(JesenskaError, match="leave aligned out"):
        write(placed, 0)
    write(placed.repartition(2, "partition"), 0)
    assert committed(spark, topics, topic) == list(range(20))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kafka.acks": "1"}, "acks=all"),
        ({"kafka.enable.idempotence": "false"}, "idempotence"),
        ({"kafka.transaction.timeout.ms": "soon"}, "expects milliseconds"),
        ({"batches.topics": "x"}, "batches.topics"),
    ],
)
def test_a_mistake_is_one_sentence(topics: Topics, wrong: dict[str, str], says: str) -> None:
    with pytest.raises(JesenskaError, match=says):
        ExactlyOnce("mistaken", {**options(topics, "t"), **wrong})


def test_a_query_needs_a_name(topics: Topics) -> None:
    with pytest.raises(JesenskaError, match="name"):
        ExactlyOnce("", options(topics, "t"))


def test_a_stream_that_is_stopped_and_killed_goes_on_exactly(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six micro-batches. The driver ends at each named point once, and the query continues from its checkpoint."""
    source, target = topics.create(3), topics.create(2)
    for partition in range(3):
        topics.send(source, [b"%d" % number for number in range(partition, 60, 3)], partition)
    read = options(topics, None, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    points = ["after the number", "before the tasks", "after the tasks", "after the commit"]
    for point in [*points, None]:
        write = ExactlyOnce(f"stream-{target}", options(topics, target))
        with monkeypatch.context() as patched:
            if point is not None:
                _crash_at(point, patched)
            stream = spark.readStream.format("jesenska").options(**read).load().select("value")
            query = (
                stream.writeStream.foreachBatch(write)
                .option("checkpointLocation", str(tmp_path))
                .trigger(availableNow=True)
                .start()
            )
            if point is None:
                query.awaitTermination(60)
            else:
                with pytest.raises(StreamingQueryException):
                    query.awaitTermination(60)
    assert committed(spark, topics, target) == list(range(60))


def test_another_checkpoint_under_a_name_is_refused_and_so_is_an_old_one(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Both would skip rows that were never written."""
    source, target, other = topics.create(1), topics.create(1), topics.create(1)
    checkpoint, copied = tmp_path / "checkpoint", tmp_path / "copied"

    def run(topic: str, checkpoint: Path) -> None:
        read = options(topics, None, subscribe=source, startingOffsets="earliest")
        stream = spark.readStream.format("jesenska").options(**read).load().select("value")
        write = ExactlyOnce(f"named-{target}", options(topics, topic))
        stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination(60)

    for first in (0, 10):
        topics.send(source, [b"%d" % number for number in range(first, first + 10)])
        run(target, checkpoint)
        if not first:
            shutil.copytree(checkpoint, copied)
    topics.send(source, [b"%d" % number for number in range(20, 30)])
    connection = connect(ExactlyOnce("any", options(topics, target)).options.client)
    micro_batches._followed.pop(connection.cluster)  # as in another process
    before = connection.run(Admin(connection.cluster).describe_transaction(f"jesenska-spark-named-{target}"))
    for topic in (target, other):
        with pytest.raises(StreamingQueryException, match=rf"belongs to a query with another checkpoint.*{source}.*20"):
            run(topic, tmp_path / f"new-{topic}")
        if topic == target:
            assert (
                connection.run(Admin(connection.cluster).describe_transaction(f"jesenska-spark-named-{target}"))
                == before
            ), "nobody is fenced"
    with pytest.raises(StreamingQueryException, match="restore the newest checkpoint"):
        run(target, copied)
    run(target, checkpoint)
    assert committed(spark, topics, target) == list(range(30))
    assert committed(spark, topics, other) == []


@pytest.mark.parametrize(
    ("offsets_at_once", "reason"),
    [("5", "micro-batch 1 ends at other offsets"), ("10", "micro-batch 2 is not done in its checkpoint")],
)
def test_offsets_of_another_query_in_the_checkpoint_are_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path, offsets_at_once: str, reason: str
) -> None:
    """Its micro-batches have later numbers, and the rows in between would be skipped."""
    source, target, other = topics.create(1), topics.create(1), topics.create(1)

    def run(topic: str, **more: str) -> None:
        read = options(topics, None, subscribe=source, startingOffsets="earliest", **more)
        stream = spark.readStream.format("jesenska").options(**read).load().select("value")
        write = ExactlyOnce(f"named-{topic}", options(topics, topic))
        stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / topic)).trigger(
            availableNow=True
        ).start().awaitTermination(60)

    for first in (0, 10):
        topics.send(source, [b"%d" % number for number in range(first, first + 10)])
        run(target)
    topics.send(source, [b"%d" % number for number in range(20, 40)])
    run(other, maxOffsetsPerTrigger=offsets_at_once)
    (tmp_path / target / "offsets").rename(tmp_path / "own")
    shutil.copytree(tmp_path / other / "offsets", tmp_path / target / "offsets")
    with pytest.raises(StreamingQueryException, match=rf"but {reason}.*restore the newest checkpoint"):
        run(target)
    shutil.rmtree(tmp_path / target / "offsets")
    (tmp_path / "own").rename(tmp_path / target / "offsets")
    run(target)
    assert committed(spark, topics, target) == list(range(40))


def test_the_topic_of_micro_batches_stays_small(spark: SparkSession, topics: Topics) -> None:
    """The topic is compacted after each segment of 1 MiB, the smallest that Apache Kafka 4 accepts."""
    topic, batches = topics.create(1), f"batches-{uuid.uuid4()}"
    ExactlyOnce(f"small-{topic}", options(topics, topic, batches_topic=batches))(rows(spark, 0, 1), 0)
    settings = topics.settings(batches)
    assert (settings["cleanup.policy"], settings["segment.bytes"]) == ("compact", "1048576")


def test_numbers_of_micro_batches_are_read_once(spark: SparkSession, topics: Topics) -> None:
    """The memory that a process uses for a query does not grow with its micro-batches, and neither does the amount
    that it reads for each."""
    topic = topics.create(1)
    write = ExactlyOnce(f"many-{topic}", options(topics, topic))
    for number in range(5):
        write(rows(spark, number, 1), number)
    connection = connect(write.options.client)
    followed = [
        item
        for (key, name), item in micro_batches._followed[connection.cluster].items()
        if name == f"many-{topic}".encode()
    ]
    assert [(item.last and item.last.number, item.undecided) for item in followed] == [(3, {})]
    assert topics.offsets(topic)[0][1] == 10, "a record and a marker for each"
