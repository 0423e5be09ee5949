"""The demo's PySpark pipeline. It reads flights as a stream, joins them with reference data, counts them, and writes
the counts to topics and Parquet.

    flights (stream) -+- airlines, airports, planes, weather (topics, read once; left outer: nothing is lost)
                      +-> three results of each flight -> groups -> counts (state in the checkpoint)
                            -> changed groups of a micro-batch -> topics flights.by_...
                                                               the last value of a key is its result
                                                               -> demo-data/updates/<number of the micro-batch>/
    at the end: the last value of every group -> demo-data/results/by_....parquet

    by_carrier_hour   flights of an airline in an hour
    by_route          flights between a pair of airports
    by_weather        flights by visibility at departure

Counts are sums of whole numbers, so they do not depend on the order of the flights. Averages are computed from the
sums at the end. The query has no watermark, so groups never close: a flight that arrives late (after a crash, for
example) is also counted.

After a crash Spark repeats the interrupted micro-batch with the same flights. The folder of the micro-batch is written
again, and its groups are sent again with the same values. So the repetition changes neither Parquet nor the last value
of a key.

The weather of three hours is in the data twice. It is used once: of several records with the same key, only the last
record is used, as in a compacted topic."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESULTS = ("by_carrier_hour", "by_route", "by_weather")
RESULT_TOPICS = {kind: f"flights.{kind}" for kind in RESULTS}

_FLIGHT = (
    "carrier string, flight int, tailnum string, origin string, dest string, dep_delay int, arr_delay int, distance "
    "int, minute int, time_hour timestamp"
)
_REFERENCES = {
    "airlines": ("carrier string, name string", ("carrier",)),
    "airports": ("faa string, name string", ("faa",)),
    "planes": ("tailnum string, seats int", ("tailnum",)),
    "weather": ("origin string, time_hour timestamp, visib double", ("origin", "time_hour")),
}
_GROUP = ("kind", "key", "name", "hour")
_SUMS = ("flights", "cancelled", "departed", "dep_delay_sum", "arrived", "arr_delay_sum", "seats")


def start(spark: SparkSession, address: str, folder: Path, per_trigger: int) -> StreamingQuery:
    """Starts the streaming query, from its checkpoint if there is one."""
    from pyspark.sql import functions as F

    flights = (
        spark.readStream.format("jesenska")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_trigger)
        .load()
        .select(F.from_json(F.col("value").cast("string"), _FLIGHT).alias("flight"))
        .select("flight.*")
    )
    counts = _counted(_joined(flights, _references(spark, address)))
    return (
        counts.writeStream.outputMode("update")
        .queryName("flights")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(_writer(address, folder))
        .start()
    )


def _references(spark: SparkSession, address: str) -> dict[str, DataFrame]:
    """Returns the rows of each reference topic. The topics are read once. Of several records with the same key, only
    the last record is used."""
    from pyspark.sql import functions as F

    reader = (
        spark.read.format("jesenska")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", ",".join(_REFERENCES))
    )
    last = (
        reader.load()
        .groupBy("topic", "key")
        .agg(F.max_by("value", "offset").cast("string").alias("value"))
        .coalesce(1)
        .cache()
    )
    found = {}
    for topic, (schema, keys) in _REFERENCES.items():
        rows = last.where(F.col("topic") == topic).select(F.from_json("value", schema).alias("row")).select("row.*")
        found[topic] = F.broadcast(rows.dropDuplicates(list(keys)))
    return found


def _joined(flights: DataFrame, references: dict[str, DataFrame]) -> DataFrame:
    airlines = references["airlines"].withColumnRenamed("name", "airline")
    airports = references["airports"].withColumnsRenamed({"faa": "dest", "name": "destination"})
    joined = flights.join(airlines, "carrier", "left_outer").join(airports, "dest", "left_outer")
    return joined.join(references["planes"], "tailnum", "left_outer").join(
        references["weather"], ["origin", "time_hour"], "left_outer"
    )


def visibility(visib: Column) -> Column:
    """Returns a text for the visibility in miles. Sorted by text, the values go from bad to good visibility."""
    from pyspark.sql import functions as F

    return (
        F.when(visib.isNull(), "no report")
        .when(visib < 1, "0 to 1 miles")
        .when(visib < 3, "1 to 3 miles")
        .when(visib < 6, "3 to 6 miles")
        .when(visib < 10, "6 to 10 miles")
        .otherwise("from 10 miles")
    )


def _counted(joined: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    def result(kind: str, key: Column, name: Column, hour: Column) -> Column:
        return F.struct(
            F.lit(kind).alias("kind"),
            key.alias("key"),
            name.cast("string").alias("name"),
            hour.cast("timestamp").alias("hour"),
        )

    none = F.lit(None)
    results = F.array(
        result("by_carrier_hour", F.col("carrier"), F.col("airline"), F.col("time_hour")),
        result("by_route", F.concat_ws("-", "origin", "dest"), F.col("destination"), none),
        result("by_weather", visibility(F.col("visib")), none, none),
    )
    rows = joined.select(F.explode(results).alias("group"), "dep_delay", "arr_delay", "seats").select(
        "group.*", "dep_delay", "arr_delay", "seats"
    )
    return rows.groupBy(*_GROUP).agg(
        F.count(F.lit(1)).alias("flights"),
        F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
        F.count("dep_delay").alias("departed"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("dep_delay_sum"),
        F.count("arr_delay").alias("arrived"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("arr_delay_sum"),
        F.coalesce(F.sum("seats"), F.lit(0)).alias("seats"),
    )


def _writer(address: str, folder: Path) -> Callable[[DataFrame, int], None]:
    def write(changed: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        changed.persist()
        try:
            if changed.isEmpty():
                return
            changed.coalesce(1).write.mode("overwrite").parquet(str(folder / "updates" / f"{number:08d}"))
            hour = F.date_format("hour", "yyyy-MM-dd'T'HH:mm:ss'Z'")
            key = F.concat_ws(" ", "key", hour)
            value = F.to_json(F.struct(F.col("key"), F.col("name"), hour.alias("hour"), *_SUMS, *_averages()))
            records = changed.select(
                key.alias("key"), value.alias("value"), F.concat(F.lit("flights."), "kind").alias("topic")
            )
            records.write.format("jesenska").option("kafka.bootstrap.servers", address).option(
                "kafka.compression.type", "lz4"
            ).mode("append").save()
        finally:
            changed.unpersist()

    return write


def _averages() -> list[Column]:
    from pyspark.sql import functions as F

    def average(total: str, count: str) -> Column:
        return F.when(F.col(count) > 0, F.col(total) / F.col(count))

    return [
        average("dep_delay_sum", "departed").alias("mean_dep_delay"),
        average("arr_delay_sum", "arrived").alias("mean_arr_delay"),
    ]


def finish(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Writes the results to Parquet files, which replace the files of an earlier run. Returns the written results by
    kind, such as by_route."""
    from pyspark.sql import functions as F

    updates = spark.read.parquet(str(folder / "updates" / "*")).withColumn(
        "number", F.regexp_extract(F.input_file_name(), r"/updates/(\d+)/", 1).cast("long")
    )
    sums = [F.max_by(name, "number").alias(name) for name in _SUMS]
    last = updates.groupBy(*_GROUP).agg(*sums).select("*", *_averages()).persist()
    found = {}
    for kind in RESULTS:
        columns = [
            name
            for name in (*_GROUP[1:], *_SUMS, "mean_dep_delay", "mean_arr_delay")
            if name != "hour" or kind == "by_carrier_hour"
        ]
        order = ["hour", "key"] if kind == "by_carrier_hour" else ["key"]
        whole, partial = folder / "results" / f"{kind}.parquet", folder / "results" / f".{kind}.new"
        last.where(F.col("kind") == kind).select(*columns).orderBy(*order).coalesce(1).write.mode("overwrite").parquet(
            str(partial)
        )
        shutil.rmtree(whole, ignore_errors=True)
        partial.rename(whole)
        found[kind] = spark.read.parquet(str(whole))
    last.unpersist()
    return found


def offsets_done(query: StreamingQuery) -> int:
    """Returns the number of flights that completed micro-batches have read, over all runs."""
    progress: Any = query.lastProgress
    if not progress:
        return 0
    end = progress["sources"][0]["endOffset"]
    return _sum_of(end)


def _sum_of(tree: Any) -> int:
    import json

    from jesenska.pipeline.connector.options import TOPIC_ID

    tree = json.loads(tree) if isinstance(tree, str) else tree
    return sum(
        offset for partitions in (tree or {}).values() for name, offset in partitions.items() if name != TOPIC_ID
    )
