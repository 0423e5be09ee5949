"""Rows a second between Spark and topics: batch write, batch read, and a stream that counts. One broker, one Spark
session, nothing else.

python -m bench.spark_bench                        5,000,000 rows of 100 bytes, 4 partitions, local[2], a broker of
                                                   jesenska's
python -m bench.spark_bench --bootstrap h:9092     the same against a broker that runs
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.needs import SPARK_QUERY, require
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.spark.session import session
from jesenska.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def _broker(given: str | None, folder: Path) -> Iterator[str]:
    if given:
        yield given
        return
    with BrokerProcess(folder / "broker") as broker:
        yield broker.bootstrap


def _timed(name: str, rows: int, size: int, work: Callable[[], int]) -> None:
    begun = time.perf_counter()
    found = work()
    took = time.perf_counter() - begun
    assert found == rows, f"{name}: {found} of {rows} rows"
    print(f"{name:24} {rows / took:>12,.0f} rows/s {rows * size / took / 1e6:>8.1f} MB/s {took:>7.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    require("spark_bench", SPARK_QUERY)
    with tempfile.TemporaryDirectory() as scratch, _broker(options.bootstrap, Path(scratch)) as bootstrap:
        spark = session("bench", options.master, log=Path(scratch) / "spark.log")
        _run(spark, bootstrap, options, Path(scratch))
        spark.stop()


def _run(spark: SparkSession, bootstrap: str, options: argparse.Namespace, scratch: Path) -> None:
    from pyspark.sql import functions as F

    topic = f"bench-{time.time_ns()}"
    connection = ClusterThread(ClientOptions(bootstrap))
    new = [NewTopic(name, options.partitions, 1) for name in (topic, topic + "-keyed", topic + "-small")]
    for error in connection.run(Admin(connection.cluster).create_topics(new)).values():
        if error is not None:
            raise error
    rows: int = options.rows
    size: int = options.size
    values = spark.range(0, rows, 1, 4).select(
        F.rpad(F.col("id").cast("string"), size, "x").alias("value"), F.col("id").cast("string").alias("key")
    )

    def write(name: str, keyed: bool, codec: str = "none", limit: int | None = None) -> int:
        frame = values if limit is None else values.limit(limit)
        frame = frame if keyed else frame.select("value")
        writer = frame.write.format("jesenska").option("kafka.bootstrap.servers", bootstrap).option("topic", name)
        writer.option("kafka.compression.type", codec).mode("append").save()
        return rows

    def read(name: str) -> int:
        frame = (
            spark.read.format("jesenska").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
        )
        return int(frame.agg(F.count("value")).collect()[0][0])

    def stream(name: str) -> int:
        found: list[int] = []
        frame = (
            spark.readStream.format("jesenska").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        )
        counted = (
            frame.option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", rows // 5)
            .load()
            .groupBy()
            .count()
        )
        query = (
            counted.writeStream.outputMode("complete")
            .foreachBatch(lambda batch, number: found.append(batch.collect()[0][0]))
            .option("checkpointLocation", str(scratch / f"checkpoint-{name}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found[-1]

    write(topic + "-small", False, limit=1000)  # warms Spark and its workers up
    read(topic + "-small")
    _timed("Spark alone", rows, size, lambda: int(values.agg(F.count("value"), F.max("key")).collect()[0][0]))
    _timed("batch write, no key", rows, size, lambda: write(topic, False))
    _timed("batch write, keyed, lz4", rows, size, lambda: write(topic + "-keyed", True, "lz4"))
    _timed("batch read", rows, size, lambda: read(topic))
    _timed("batch read, lz4", rows, size, lambda: read(topic + "-keyed"))
    _timed("stream, count", rows, size, lambda: stream(topic))
    connection.close()


if __name__ == "__main__":
    main()
