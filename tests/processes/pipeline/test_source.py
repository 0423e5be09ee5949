"""Batch queries over topics: rows, ranges, times, headers, deleted records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from jesenska.records.header import Codec
from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

T0 = 1_357_034_400_000  # 2013-01-01 10:00 UTC


def message_of(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value)


def test_rows_have_the_schema_of_sparks_kafka_source(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    assert reading.batch(subscribe=topic).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = reading.batch(subscribe=topic, includeHeaders=True).schema
    assert with_headers["headers"].simpleString() == "headers:array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in with_headers.fields)


def test_every_part_of_a_record_arrives(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [(b"v", b"k", [("a", b"1"), ("b", None)], T0), (None, None, [], T0 + 1)])
    first, second = reading.batch(subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset, first.timestampType) == (
        b"k",
        b"v",
        topic,
        0,
        0,
        0,
    )
    assert first.timestamp.replace(tzinfo=UTC) == datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert [(item.key, item.value) for item in first.headers] == [("a", b"1"), ("b", None)]
    assert (second.key, second.value, second.headers, second.offset) == (None, None, [], 1)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(reading: Reading, topics: Topics, compression: str) -> None:
    topic = topics.create()
    values = [b"%d" % number * 20 for number in range(500)]
    topics.send(topic, values, compression=Codec[compression.upper()])
    assert [row.value for row in reading.batch(subscribe=topic).orderBy("offset").collect()] == values


def test_a_few_bytes_that_hold_hundreds_of_megabytes_are_read(reading: Reading, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="2000000")
    value = b"2026-01-01 12:00:00 INFO the same line again and again " * 1000
    for _ in range(4):
        topics.send(topic, [value] * 1100, compression=Codec.ZSTD, batch_size=64 * 1024 * 1024)
    found = reading.batch(subscribe=topic).selectExpr("count(*)", "sum(length(value))").collect()[0]
    assert tuple(found) == (4400, 4400 * len(value))


def test_records_without_headers_reach_python_quickly(reading: Reading, topics: Topics) -> None:
    """The cost of Spark's transfer of null arrays to Python grows with the square of their number."""
    source, target = topics.create(), topics.create()
    topics.send(source, [b"x"] * 50_000)
    rows = reading.batch(subscribe=source, includeHeaders=True)
    rows.drop("topic").write.format("jesenska").option("kafka.bootstrap.servers", reading.bootstrap).option(
        "topic", target
    ).mode("append").save()
    assert topics.offsets(target)[0] == (0, 50_000)


def test_only_the_chosen_columns_are_there(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [(b"v", b"k", [("a", b"1")], T0)])
    frame = reading.batch(subscribe=topic, columns="offset, headers,value")
    assert frame.columns == ["offset", "headers", "value"]
    (row,) = frame.collect()
    assert (row.offset, [(item.key, item.value) for item in row.headers], row.value) == (0, [("a", b"1")], b"v")


def test_a_topic_without_records_gives_no_rows(reading: Reading, topics: Topics) -> None:
    assert reading.batch(subscribe=topics.create(3)).count() == 0


def test_several_topics_are_read_together(reading: Reading, topics: Topics) -> None:
    one, two = topics.create(2), topics.create()
    topics.send(one, [b"a"], 0)
    topics.send(one, [b"b", b"c"], 1)
    topics.send(two, [b"d"])
    expected = {(one, 0): [0], (one, 1): [0, 1], (two, 0): [0]}
    assert reading.offsets(reading.batch(subscribe=f"{one}, {two}")) == expected
    assert reading.offsets(reading.batch(assign=json.dumps({one: [1]}))) == {(one, 1): [0, 1]}


def test_a_pattern_matches_whole_names_with_javas_meaning(reading: Reading, topics: Topics) -> None:
    names = [topics.create(name=topics.create() + suffix) for suffix in (".red", ".green", ".red2")]
    for name in names:
        topics.send(name, [b"x"])
    stem = ".*" if len({name.rsplit("-", 1)[0] for name in names}) == 1 else names[0].rsplit("-", 1)[0] + ".*"
    found = reading.offsets(reading.batch(subscribePattern=stem + r"\Q.\E(?:red|blue)"))
    assert found.keys() & {(name, 0) for name in names} == {(names[0], 0)}


def test_a_range_of_offsets_is_read_exactly(reading: Reading, topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"%d" % number for number in range(10)], 0)
    topics.send(topic, [b"%d" % number for number in range(10)], 1)
    frame = reading.batch(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 7, "1": -1}}),
    )
    assert reading.offsets(frame) == {(topic, 0): [3, 4, 5, 6], (topic, 1): list(range(10))}


def test_times_choose_the_first_record_at_or_after_them(reading: Reading, topics: Topics) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.send(
            topic, [(b"x", None, None, T0 + 1000 * number) for number in range(10)], partition, linger_seconds=0
        )
    assert reading.offsets(reading.batch(subscribe=topic, startingTimestamp=T0 + 2500, endingTimestamp=T0 + 5000)) == {
        (topic, 0): [3, 4],
        (topic, 1): [3, 4],
    }
    by_partition = reading.batch(
        subscribe=topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": T0 + 8000, "1": T0 + 9000}})
    )
    assert reading.offsets(by_partition) == {(topic, 0): [8, 9], (topic, 1): [9]}


def test_a_time_after_the_last_record_fails_or_means_the_end(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [(b"x", None, None, T0)])
    with pytest.raises(Exception, match=f"{topic}-0 has no record at or after the time") as error:
        reading.batch(subscribe=topic, startingTimestamp=T0 + 1).count()
    assert "startingOffsetsByTimestampStrategy" in message_of(error)
    assert (
        reading.batch(subscribe=topic, startingTimestamp=T0 + 1, startingOffsetsByTimestampStrategy="latest").count()
        == 0
    )
    assert reading.batch(subscribe=topic, endingTimestamp=T0 + 1).count() == 1


def test_min_partitions_cuts_ranges_into_more_tasks(reading: Reading, topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 90, 0)
    topics.send(topic, [b"x"] * 10, 1)
    frame = reading.batch(subscribe=topic, minPartitions=5)
    assert frame.rdd.getNumPartitions() == 5
    assert reading.offsets(frame) == {(topic, 0): list(range(90)), (topic, 1): list(range(10))}


def test_max_records_per_partition_limits_a_task(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 25)
    frame = reading.batch(subscribe=topic, maxRecordsPerPartition=10)
    sizes = [row["count"] for row in frame.groupBy(_task_id()).count().collect()]
    assert len(sizes) == 3
    assert max(sizes) <= 10
    assert sum(sizes) == 25


def _task_id() -> Any:
    from pyspark.sql import functions

    return functions.spark_partition_id().alias("task")


def test_records_larger_than_a_fetch_arrive(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    values = [bytes([number]) * 300_000 for number in range(8)]
    topics.send(topic, values)
    frame = reading.batch(subscribe=topic, kafka__max__partition__fetch__bytes=1000)
    assert [row.value for row in frame.orderBy("offset").collect()] == values


def test_offsets_that_are_gone_fail_the_query_with_their_names(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 10)
    topics.delete_records(topic, 6)
    start = json.dumps({topic: {"0": 2}})
    with pytest.raises(Exception, match=f"{topic}-0 begins at offset 6, but the query begins at offset 2") as error:
        reading.batch(subscribe=topic, startingOffsets=start).count()
    assert "failOnDataLoss" in message_of(error)
    assert reading.offsets(reading.batch(subscribe=topic, startingOffsets=start, failOnDataLoss=False)) == {
        (topic, 0): [6, 7, 8, 9]
    }
    beyond = json.dumps({topic: {"0": 12}})
    with pytest.raises(Exception, match=f"{topic}-0 ends at offset 10, but the query reads up to offset 12"):
        reading.batch(subscribe=topic, endingOffsets=beyond).count()
    assert reading.batch(subscribe=topic, endingOffsets=beyond, failOnDataLoss=False).count() == 4


def test_a_topic_that_does_not_exist_is_named(reading: Reading) -> None:
    with pytest.raises(Exception, match="Topic no-such-topic does not exist: create it"):
        reading.batch(subscribe="no-such-topic").count()


def test_a_partition_that_does_not_exist_is_named(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    with pytest.raises(Exception, match=f"The option assign names {topic}-7"):
        reading.batch(assign=json.dumps({topic: [0, 7]})).count()


def test_offsets_must_name_every_partition_and_no_other(reading: Reading, topics: Topics) -> None:
    topic = topics.create(2)
    with pytest.raises(Exception, match=f"startingOffsets leaves out {topic}-1"):
        reading.batch(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}})).count()
    with pytest.raises(Exception, match=f"startingOffsets names {topic}-2, which the query does not read"):
        reading.batch(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0, "2": 0}})).count()


def test_a_schema_of_the_users_own_is_refused(reading: Reading, topics: Topics) -> None:
    frame = (
        reading.spark.read.format("jesenska")
        .schema("value string")
        .option("kafka.bootstrap.servers", reading.bootstrap)
    )
    with pytest.raises(Exception, match="always have the schema"):
        frame.option("subscribe", topics.create()).load().count()


def test_no_broker_at_the_address_is_said_in_one_sentence(spark: Any) -> None:
    frame = (
        spark.read.format("jesenska").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "x").load()
    )
    with pytest.raises(Exception, match=r"No broker answers at 127\.0\.0\.1:1"):
        frame.count()
