"""A Spark query that reads one topic and writes another topic, each record exactly once:

    python examples/exactly_once_query.py localhost:9092 orders invoices checkpoints/invoices

The query writes each micro-batch in one transaction, together with the number of the micro-batch. If it is killed and
started again with the same checkpoint, it goes on where it was, and writes no record twice. By default the query runs
until it is stopped. With `--once` as a fifth argument it ends when it has read all records that are in the topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jesenska.pipeline import session
from jesenska.pipeline.exactly_once import ExactlyOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, *, once: bool = False
) -> StreamingQuery:
    """Starts the query and returns it. The query has the name of the target topic, so only one query writes there."""
    orders = (
        spark.readStream.format("jesenska")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    invoices = orders.selectExpr("key", "concat('invoice for ', cast(value AS string)) AS value")
    write = ExactlyOnce(target, {"kafka.bootstrap.servers": bootstrap, "topic": target})
    stream = invoices.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (stream.trigger(availableNow=True) if once else stream).start()


if __name__ == "__main__":
    bootstrap, source, target, checkpoint, *more = sys.argv[1:]
    start(session(), bootstrap, source, target, checkpoint, once="--once" in more).awaitTermination()
