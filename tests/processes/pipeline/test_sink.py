"""Rows into topics: columns, partitions, codecs, refusals, streams."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from jesenska.base.errors import JesenskaError
from jesenska.client.partitioner import partition_of_key
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.fetching import chunks
from jesenska.pipeline.connector.options import sink_options, source_options
from jesenska.pipeline.connector.planning import OffsetRange
from jesenska.pipeline.connector.sink import JesenskaWriter
from jesenska.records.batch import iter_headers
from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Writing:
    def __init__(self, reading: Reading) -> None:
        self.spark = reading.spark
        self.reading = reading

    def rows(self, sql: str) -> Any:
        return self.spark.sql(sql)

    def write(self, frame: Any, **options: Any) -> None:
        writer = frame.write.format("jesenska").option("kafka.bootstrap.servers", self.reading.bootstrap).mode("append")
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.save()

    def read(self, topic: str) -> list[Any]:
        frame = self.reading.batch(subscribe=topic, includeHeaders=True)
        rows: list[Any] = frame.orderBy("partition", "offset").collect()
        return rows


@pytest.fixture
def writing(reading: Reading) -> Writing:
    return Writing(reading)


def test_rows_without_key_arrive_complete(writing: Writing, topics: Topics) -> None:
    topic = topics.create(3)
    writing.write(writing.rows("SELECT cast(id AS string) AS value FROM range(1000)"), topic=topic)
    rows = writing.read(topic)
    assert sorted(int(row.value) for row in rows) == list(range(1000))
    assert {row.key for row in rows} == {None}


def test_keys_choose_partitions_as_the_java_client_does(writing: Writing, topics: Topics) -> None:
    topic = topics.create(5)
    writing.write(
        writing.rows("SELECT concat('key-', id) AS key, cast(id AS string) AS value FROM range(500)"), topic=topic
    )
    rows = writing.read(topic)
    assert len(rows) == 500
    assert {row.partition for row in rows} == {0, 1, 2, 3, 4}
    assert all(row.partition == partition_of_key(bytes(row.key), 5) for row in rows)


def test_keys_have_no_part_in_choosing_partitions_when_told_so(writing: Writing, topics: Topics) -> None:
    topic = topics.create(5)
    frame = writing.rows("SELECT cast(id AS string) AS key, cast(id AS string) AS value FROM range(0, 50, 1, 1)")
    writing.write(frame, topic=topic, kafka__partitioner__ignore__keys=True)
    rows = writing.read(topic)
    assert len({row.partition for row in rows}) == 1  # one small batch of rows goes to one partition
    assert [(bytes(row.key), bytes(row.value)) for row in rows] == [
        (b"%d" % number, b"%d" % number) for number in range(50)
    ]


def test_rows_of_one_partition_keep_their_order(writing: Writing, topics: Topics) -> None:
    topic = topics.create(3)
    writing.write(
        writing.rows("SELECT cast(id % 7 AS string) AS key, cast(id AS string) AS value FROM range(0, 5000, 1, 1)"),
        topic=topic,
    )
    by_key: dict[bytes, list[int]] = {}
    for row in writing.read(topic):
        by_key.setdefault(bytes(row.key), []).append(int(row.value))
    assert by_key == {str(rest).encode(): list(range(rest, 5000, 7)) for rest in range(7)}


def test_the_partition_column_beats_the_key(writing: Writing, topics: Topics) -> None:
    topic = topics.create(3)
    frame = writing.rows(
        "SELECT 'k' AS key, cast(id AS string) AS value, if(id % 2 = 0, 2, cast(null AS int)) AS partition FROM "
        "range(10)",
    )
    writing.write(frame, topic=topic)
    places = {int(row.value): row.partition for row in writing.read(topic)}
    assert places == {number: 2 if number % 2 == 0 else partition_of_key(b"k", 3) for number in range(10)}


def test_headers_and_null_values_arrive(writing: Writing, topics: Topics) -> None:
    topic = topics.create()
    frame = writing.rows(
        """SELECT cast(null AS string) AS value, 'k' AS key,
                  array(named_struct('key', 'a', 'value', cast('1' AS binary)), named_struct('key', 'b', 'value', cast(null AS binary))) AS headers"""  # noqa: E501
    )
    writing.write(frame, topic=topic)
    (row,) = writing.read(topic)
    assert (row.value, bytes(row.key), [(item.key, item.value) for item in row.headers]) == (
        None,
        b"k",
        [("a", b"1"), ("b", None)],
    )


def test_a_topic_column_spreads_rows_over_topics(writing: Writing, topics: Topics) -> None:
    one, two = topics.create(2), topics.create()
    writing.write(
        writing.rows(f"SELECT cast(id AS string) AS value, if(id < 6, '{one}', '{two}') AS topic FROM range(10)")
    )
    assert sorted(int(row.value) for row in writing.read(one)) == [0, 1, 2, 3, 4, 5]
    assert sorted(int(row.value) for row in writing.read(two)) == [6, 7, 8, 9]


def test_the_topic_option_beats_the_column(writing: Writing, topics: Topics) -> None:
    topic, other = topics.create(), topics.create()
    writing.write(writing.rows(f"SELECT 'x' AS value, '{other}' AS topic"), topic=topic)
    assert len(writing.read(topic)) == 1
    assert writing.read(other) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written(writing: Writing, topics: Topics, codec: str) -> None:
    topic = topics.create()
    writing.write(
        writing.rows("SELECT repeat(cast(id AS string), 30) AS value FROM range(0, 2000, 1, 1)"),
        topic=topic,
        kafka__compression__type=codec,
    )
    assert [row.value for row in writing.read(topic)] == [str(number).encode() * 30 for number in range(2000)]


def test_batches_fit_a_topic_with_a_small_limit(writing: Writing, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="5000")
    writing.write(writing.rows("SELECT repeat('x', 100) AS value FROM range(1000)"), topic=topic)
    assert len(writing.read(topic)) == 1000


def test_a_record_over_the_limit_fails_with_topic_and_partition(writing: Writing, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="5000")
    with pytest.raises(
        Exception, match=f"Writing 1 records to partition 0 of the topic {topic} failed: .*MESSAGE_TOO_LARGE"
    ):
        writing.write(writing.rows("SELECT repeat('x', 10000) AS value"), topic=topic)


def test_a_partition_that_does_not_exist_is_named(writing: Writing, topics: Topics) -> None:
    topic = topics.create(2)
    with pytest.raises(Exception, match=f"A row asks for partition 7 of the topic {topic}, which has 2"):
        writing.write(writing.rows("SELECT 'x' AS value, 7 AS partition"), topic=topic, kafka__max__block__ms=200)


def test_rows_go_to_a_partition_that_was_added_a_moment_ago(writing: Writing, topics: Topics) -> None:
    """The worker that writes has old metadata of the topic."""
    topic = topics.create(1)
    writing.write(writing.rows("SELECT 'x' AS value, 0 AS partition"), topic=topic)
    topics.add_partitions(topic, 3)
    writing.write(writing.rows("SELECT 'y' AS value, 2 AS partition"), topic=topic)
    assert [(row.partition, bytes(row.value)) for row in writing.read(topic)] == [(0, b"x"), (2, b"y")]


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT 'x' AS valve", "The rows have no column value"),
        ("SELECT 1 AS value", "The column value is int, but it must be string or binary"),
        ("SELECT 'x' AS value, 1.5 AS key", "The column key is decimal"),
        ("SELECT 'x' AS value, 1L AS partition", "The column partition is bigint, but it must be int"),
        ("SELECT 'x' AS value, 'h' AS headers", "The column headers is string, but it must be array"),
        ("SELECT 'x' AS value, cast(null AS string) AS topic", "A row's topic is null"),
        ("SELECT 'x' AS value, '2020-01-01' AS timestamp", "The column timestamp is string, but it must be timestamp"),
        (
            "SELECT 'x' AS value, array(named_struct('key', cast(null AS string), 'value', cast('1' AS binary))) AS "
            "headers",
            "A row has a header whose key is null",
        ),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(writing: Writing, topics: Topics, sql: str, sentence: str) -> None:
    options = {} if "topic" in sql else {"topic": topics.create()}
    with pytest.raises(Exception, match=sentence):
        writing.write(writing.rows(sql), **options)


def test_rows_without_any_topic_are_refused(writing: Writing) -> None:
    with pytest.raises(Exception, match="The target topic is not known"):
        writing.write(writing.rows("SELECT 'x' AS value"))


def test_overwriting_is_refused(writing: Writing, topics: Topics) -> None:
    writer = (
        writing.rows("SELECT 'x' AS value")
        .write.format("jesenska")
        .option("kafka.bootstrap.servers", writing.reading.bootstrap)
    )
    with pytest.raises(Exception, match="A topic cannot be overwritten"):
        writer.option("topic", topics.create()).mode("overwrite").save()


def test_a_topic_name_that_is_not_allowed_is_refused(writing: Writing) -> None:
    with pytest.raises(Exception, match="'a/b' in the option topic cannot be the name of a topic"):
        writing.write(writing.rows("SELECT 'x' AS value"), topic="a/b")


def test_a_stream_flows_from_topic_to_topic(writing: Writing, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(2), topics.create(2)
    frame = writing.reading.stream(subscribe=source, startingOffsets="earliest").selectExpr(
        "key", "upper(cast(value AS string)) AS value"
    )

    def run() -> None:
        stream = (
            frame.writeStream.format("jesenska")
            .option("kafka.bootstrap.servers", writing.reading.bootstrap)
            .option("topic", target)
        )
        stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    topics.send(source, [(b"a", b"1"), (b"b", b"2")], 0)
    run()
    topics.send(source, [(b"c", b"3")], 1)
    run()
    assert sorted((bytes(row.key), bytes(row.value)) for row in writing.read(target)) == [
        (b"1", b"A"),
        (b"2", b"B"),
        (b"3", b"C"),
    ]


def test_counts_of_a_stream_are_written_whole_in_complete_mode(
    writing: Writing, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    counts = writing.reading.stream(subscribe=source, startingOffsets="earliest").groupBy("value").count()
    frame = counts.selectExpr("value AS key", "cast(count AS string) AS value")
    for values in ([b"x", b"x", b"y"], [b"x"]):
        topics.send(source, values)
        stream = (
            frame.writeStream.format("jesenska")
            .outputMode("complete")
            .option("kafka.bootstrap.servers", writing.reading.bootstrap)
        )
        stream.option("topic", target).option("checkpointLocation", str(tmp_path)).trigger(
            availableNow=True
        ).start().awaitTermination()
    last = {bytes(row.key): int(row.value) for row in writing.read(target)}
    assert last == {b"x": 3, b"y": 1}
    assert topics.offsets(target)[0] == (0, 4)


def test_the_column_timestamp_becomes_the_time_of_the_record(writing: Writing, topics: Topics) -> None:
    topic = topics.create()
    before = datetime.now(UTC).replace(microsecond=0)
    frame = writing.rows(
        """SELECT cast(id AS string) AS value, if(id < 2, timestamp_millis(1357034400123 + id), cast(null AS timestamp)) AS timestamp FROM range(0, 3, 1, 1)"""  # noqa: E501
    )
    writing.write(frame, topic=topic)
    first, second, third = [row.timestamp.replace(tzinfo=UTC) for row in writing.read(topic)]
    assert (first, second) == tuple(
        datetime.fromtimestamp(1357034400, UTC) + timedelta(milliseconds=number) for number in (123, 124)
    )
    assert third >= before


def test_rows_copied_from_topic_to_topic_keep_their_times(writing: Writing, topics: Topics) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, [(b"x", b"k", [], 1_357_034_400_000 + number) for number in range(5)])
    writing.write(writing.reading.batch(subscribe=source, includeHeaders=True).drop("topic"), topic=target)
    assert [row.timestamp for row in writing.read(target)] == [row.timestamp for row in writing.read(source)]


def _producer_ids(bootstrap: str, topic: str, end: int) -> set[int]:
    options = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, streaming=False)
    connection = ClusterThread(options.client)
    found = {
        header.producer_id
        for chunk in chunks(connection, [OffsetRange(topic, 0, 0, end)], options)
        for buffer in chunk.buffers
        for _, header in iter_headers(buffer)
    }
    connection.close()
    return found


def test_many_micro_batches_take_no_more_producer_ids_than_there_are_workers(
    writing: Writing, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, [b"x"] * 12)
    frame = writing.reading.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    stream = (
        frame.select("value")
        .writeStream.format("jesenska")
        .option("kafka.bootstrap.servers", writing.reading.bootstrap)
        .option("topic", target)
    )
    stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert topics.offsets(target)[0] == (0, 12)
    ids = _producer_ids(writing.reading.bootstrap, target, 12)
    assert -1 not in ids
    assert len(ids) <= 4  # two tasks at a time, each in one of the processes that Spark keeps


def _task(topic: str, bootstrap: str) -> JesenskaWriter:
    schema = StructType([StructField("value", StringType())])
    return JesenskaWriter(sink_options({"kafka.bootstrap.servers": bootstrap, "topic": topic}), schema)


def _write_here(topic: str, bootstrap: str, *values: str) -> None:
    """Runs a task in this process, as Spark's workers do."""
    _task(topic, bootstrap).write(iter([pa.record_batch([pa.array(values)], names=["value"])]))


def test_tasks_of_one_process_share_a_producer_and_a_failed_one_leaves_none_behind(
    bootstrap: str, topics: Topics
) -> None:
    topic, small = topics.create(), topics.create(max_message_bytes="5000")
    for number in range(5):
        _write_here(topic, bootstrap, str(number))
    first = _producer_ids(bootstrap, topic, 5)
    assert len(first) == 1
    with pytest.raises(JesenskaError, match="MESSAGE_TOO_LARGE"):
        _write_here(small, bootstrap, "x" * 10_000)
    for number in range(2):
        _write_here(topic, bootstrap, str(number))
    assert topics.offsets(topic)[0] == (0, 7)
    assert len(_producer_ids(bootstrap, topic, 7) - first) == 1


def test_a_topic_created_anew_is_written_by_the_producer_that_knew_the_old_one(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    _write_here(topic, bootstrap, "a", "b")
    topics.delete(topic)
    topics.create(name=topic)
    _write_here(topic, bootstrap, "c")
    _write_here(topic, bootstrap, "d")
    assert topics.offsets(topic)[0] == (0, 2)
