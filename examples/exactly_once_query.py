"""A Spark query from one topic to another, each record exactly once:

    python examples/exactly_once_query.py localhost:9092 orders invoices checkpoints/invoices

It writes each micro-batch in one transaction, with the number of the micro-batch. A query that was killed and is
started again with the same checkpoint takes up where it was, and writes nothing twice. Without an end it goes on with
what comes; with `--once` as a fifth argument it ends when it has read what is there."""

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
    """The query at work. Its name is the target's: one query writes there."""
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
