"""One side of `bench/spark_connector_bench.py`: a Spark session that runs the requested rows, in its own process, with
any PySpark.

    argv    format, bootstrap servers, scratch directory, Spark's settings (JSON)
    stdin   one JSON list a line, [name, argument, ...]        stdout   one JSON object a line, {"seconds": ...,
                                                                        "found": ...}

`found` is a number of rows, or a list of seconds.

Needs only PySpark: it runs in the connector's environment, too. The queries are exactly the same on every side.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Side:
    def __init__(self, spark: SparkSession, source: str, bootstrap: str, scratch: Path) -> None:
        self.spark = spark
        self.source = source
        self.bootstrap = bootstrap
        self.scratch = scratch
        self.numbers = 0

    def _options(self, through: Any) -> Any:
        return through.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)

    def _rows(self, topic: str) -> DataFrame:
        frame: DataFrame = self._options(self.spark.read).option("subscribe", topic).load()
        return frame

    def fill(self, topic: str, rows: int, size: int, keys: int) -> int:
        """Values of one size with keys that come again and again."""
        numbers = self.spark.range(0, rows, 1, 4)
        frame = numbers.selectExpr(
            f"cast(id % {keys} as string) as key", f"rpad(cast(id as string), {size}, 'x') as value"
        )
        self._options(frame.write).option("topic", topic).mode("append").save()
        return rows

    def read(self, topic: str) -> int:
        """Reads the topic; every value is used."""
        found = self._rows(topic).selectExpr("count(value)", "sum(length(value))").collect()[0]
        return int(found[0])

    def copy(self, topic: str, to: str, rows: int) -> int:
        self._options(self._rows(topic).select("key", "value").write).option("topic", to).mode("append").save()
        return rows

    def stream(self, topic: str, rows: int, triggers: int) -> int:
        """Counts by key, in micro-batches of equal size; the sum of the counts."""
        self.numbers += 1
        rows_of = self._options(self.spark.readStream).option("subscribe", topic).option("startingOffsets", "earliest")
        counted = rows_of.option("maxOffsetsPerTrigger", rows // triggers).load().groupBy("key").count()
        found: list[int] = []
        query = (
            counted.writeStream.outputMode("complete")
            .foreachBatch(lambda batch, number: found.append(batch.selectExpr("sum(count)").collect()[0][0]))
            .option("checkpointLocation", str(self.scratch / f"checkpoint-{self.numbers}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found[-1]

    def latency(self, topic: str, batches: int) -> list[float]:
        """The seconds of each of `batches` micro-batches, from the trigger to its commit: a record of one partition
        each, written nowhere."""
        self.numbers += 1
        rows = (
            self._options(self.spark.readStream)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 1)
            .load()
        )
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(self.scratch / f"checkpoint-{self.numbers}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [
            report["durationMs"]["triggerExecution"] / 1000 for report in query.recentProgress if report["numInputRows"]
        ][-batches:]


def main() -> None:
    source, bootstrap, scratch, settings = sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    side = Side(builder.getOrCreate(), source, bootstrap, scratch)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        begun = time.perf_counter()
        found = getattr(side, name)(*arguments)
        print(json.dumps({"seconds": time.perf_counter() - begun, "found": found}), flush=True)
    side.spark.stop()


if __name__ == "__main__":
    main()
