"""The cost of exactly once for a Spark query: the same stream from topic to topic with the sink that writes at least
once, and in a transaction for each micro-batch, with rows that are partitioned as the target and with rows that are
shuffled by their keys.

    python -m bench.exactly_once_bench                       2,000,000 rows of 100 bytes, 4 micro-batches, 5 rounds
    python -m bench.exactly_once_bench --rows 200000 --rounds 1
    python -m bench.exactly_once_bench --growth --micro-batches 1000     growth with their number

Rows a second from the first micro-batch's beginning to the last one's end (Spark's own figures of them), without the
first one, which warms the workers up. One session, one broker; the ways take turns, and a ratio is the median of the
rounds' ratios."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import resident_mb
from bench.needs import SPARK_QUERY, require
from bench.unfinished import Unfinished
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.exactly_once import BATCHES_TOPIC, ExactlyOnce
from jesenska.pipeline.spark.session import session
from jesenska.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS: Final = 4
_WAYS: Final = ("at least once", "aligned", "at least once, keyed", "shuffled")
_ROW_BYTES: Final = 100


class _Bench:
    def __init__(self, spark: SparkSession, bootstrap: str, rows: int, micro_batches: int, scratch: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._rows = rows
        self._micro_batches = micro_batches
        self._scratch = scratch
        self._number = 0
        self._connection = ClusterThread(ClientOptions(bootstrap))

    def topic(self, name: str) -> str:
        made = self._connection.run(Admin(self._connection.cluster).create_topics([NewTopic(name, _PARTITIONS, 1)]))
        for error in made.values():
            if error is not None:
                raise error
        return name

    def fill(self) -> None:
        """The input: a micro-batch more than is measured."""
        total = self._rows + self._rows // self._micro_batches
        numbers = self._spark.range(0, total, 1, _PARTITIONS)
        values = numbers.selectExpr(
            "cast(id as string) as key",
            f"rpad(cast(id as string), {_ROW_BYTES}, 'x') as value",
            f"cast(id % {_PARTITIONS} as int) as partition",
        )
        values.write.format("jesenska").options(**self._options(self.topic("inputs"))).mode("append").save()

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}

    def run(self, way: str) -> float:
        """Rows a second."""
        self._number += 1
        target = self.topic(f"outputs-{self._number}")
        reading = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": "inputs", "startingOffsets": "earliest"}
        reading["maxOffsetsPerTrigger"] = str(self._rows // self._micro_batches)
        rows = self._spark.readStream.format("jesenska").options(**reading).load()
        columns = ["key", "value"] if way in ("shuffled", "at least once, keyed") else ["key", "value", "partition"]
        writer: Any = self._writer(way, rows.select(*columns), target)
        query = (
            writer.option("checkpointLocation", str(self._scratch / f"checkpoint-{self._number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        told = [item for item in query.recentProgress if item["numInputRows"]][1:]
        if sum(item["numInputRows"] for item in told) != self._rows:
            raise SystemExit(
                f"{way}: Spark tells of {sum(item['numInputRows'] for item in told)} rows, and not of {self._rows}"
            )
        begun = datetime.fromisoformat(told[0]["timestamp"])
        seconds = (datetime.fromisoformat(told[-1]["timestamp"]) - begun).total_seconds() + told[-1]["durationMs"][
            "triggerExecution"
        ] / 1000
        return float(self._rows / seconds)

    def _writer(self, way: str, rows: DataFrame, target: str) -> Any:
        if way.startswith("at least once"):
            return rows.writeStream.format("jesenska").options(**self._options(target))
        return rows.writeStream.foreachBatch(
            ExactlyOnce(f"bench-{self._number}", self._options(target), aligned=way == "aligned")
        )

    def close(self) -> None:
        self._connection.close()


def _size_kb(data: Path, topic: str) -> float:
    return sum(file.stat().st_size for file in data.glob(f"**/{topic}-*/*.log")) / 1e3


def _growth(bench: _Bench, broker: BrokerProcess, data: Path) -> None:
    """A query of many micro-batches: the memory and the topic's size after each half."""
    for part in ("first", "second"):
        rate = bench.run("aligned")
        mb = resident_mb(os.getpid()), resident_mb(broker.pid)
        print(
            f"{part} run: {rate:,.0f} rows/s, driver {mb[0]:.0f} MB, broker {mb[1]:.0f} MB, {BATCHES_TOPIC} "
            f"{_size_kb(data, BATCHES_TOPIC):.1f} KB",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks writing exactly once by Spark.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--growth",
        action="store_true",
        help="two queries of so many micro-batches, and what they leave in memory and on the disk",
    )
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    require("exactly_once_bench", SPARK_QUERY)
    unfinished = Unfinished("exactly_once_bench")
    found: dict[str, list[float]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch) / "broker") as broker:
        config = {"spark.sql.streaming.numRecentProgressUpdates": str(given.micro_batches + 10)}
        spark = session("exactly-once", given.master, config, log=Path(scratch) / "spark.log")
        bench = _Bench(spark, broker.bootstrap, given.rows, given.micro_batches, Path(scratch))
        try:
            bench.fill()
            if given.growth:
                _growth(bench, broker, Path(scratch) / "broker")
                return 0
            for number in range(given.rounds):
                for way in _WAYS if number % 2 == 0 else reversed(_WAYS):
                    with unfinished.part(f"round {number + 1}, {way}"):
                        found[way].append(bench.run(way))
                        print(f"round {number + 1}, {way}: {found[way][-1]:,.0f} rows/s", file=sys.stderr, flush=True)
        finally:
            bench.close()
            spark.stop()
    for way, beside in (
        ("aligned", "at least once"),
        ("shuffled", "at least once, keyed"),
        ("shuffled", "at least once"),
    ):
        if not (found[way] and found[beside]):
            continue
        ratio = statistics.median(mine / other for mine, other in zip(found[way], found[beside], strict=False))
        rates = statistics.median(found[way]), statistics.median(found[beside])
        print(f"{way}: {rates[0]:,.0f} rows/s; {beside}: {rates[1]:,.0f}; {ratio:.2f} of it")
    return unfinished.exit_code()


if __name__ == "__main__":
    sys.exit(main())
