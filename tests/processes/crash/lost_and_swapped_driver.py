"""Two queries that write exactly once, and four applications of streams, in one process that can be killed:

    python -m tests.processes.crash.lost_and_swapped_driver BOOTSTRAP DIRECTORY [--finish]

lines -> copies    by the queries once-a and once-b: each line, with the query's name before it
      -> counts    by the applications exactly-a and exactly-b (exactly_once_v2), least-a and least-b
                   (at_least_once): each word counted, with the application's name before it

The files of a program are in DIRECTORY/<name>. It prints "going NAME" with each micro-batch, "refused NAME SENTENCE"
where it ends with a sentence of jesenska's, and "failed NAME ..." where it ends with another error. With --finish it
processes the input that is there, prints "done NAME", and writes the contents of the stores to
DIRECTORY/<name>.json."""

from __future__ import annotations

import argparse
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.exactly_once import ExactlyOnce
from jesenska.pipeline.spark.session import SHORT_RUN, session
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.pipeline.streams_on_spark.queries import query
from tests.processes.pipeline.streams_on_spark.word_count import named_counts, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = ("once-a", "once-b")
APPLICATIONS = {
    "exactly-a": "exactly_once_v2",
    "exactly-b": "exactly_once_v2",
    "least-a": "at_least_once",
    "least-b": "at_least_once",
}
PROGRAMS = (*QUERIES, *APPLICATIONS)
LINES, COPIES, COUNTS = "lines", "copies", "counts"
#: Of one micro-batch, and at the end.
OFFSETS_AT_ONCE, _OFFSETS_AT_THE_END = 50, 20_000
_saying = threading.Lock()


def _say(*words: str) -> None:
    with _saying:
        print(" ".join(" ".join(words).split()), flush=True)


class Program:
    """Runs one of the programs in a thread of its own."""

    def __init__(self, name: str, spark: SparkSession, given: argparse.Namespace) -> None:
        self.name = name
        self._spark = spark
        self._given = given
        self._sentence: str | None = None
        self._limit = _OFFSETS_AT_THE_END if given.finish else OFFSETS_AT_ONCE

    def run(self) -> None:
        try:
            if self.name in QUERIES:
                self._run_query()
            else:
                self._run_application()
        except Exception as error:
            sentence = str(error) if isinstance(error, JesenskaError) else self._sentence
            _say(*(("failed", self.name, str(error)[:300]) if sentence is None else ("refused", self.name, sentence)))
        else:
            _say("done", self.name)

    def _run_query(self) -> None:
        write = ExactlyOnce(self.name, {"kafka.bootstrap.servers": self._given.bootstrap, "topic": COPIES})

        def write_and_tell(rows: DataFrame, batch_id: int) -> None:
            try:
                write(rows, batch_id)
            except JesenskaError as error:
                self._sentence = str(error)
                raise
            _say("going", self.name)

        options = {"kafka.bootstrap.servers": self._given.bootstrap, "subscribe": LINES, "startingOffsets": "earliest"}
        reader = self._spark.readStream.format("jesenska").options(**options, maxOffsetsPerTrigger=str(self._limit))
        rows = reader.load().selectExpr("key", f"concat('{self.name} ', cast(key as string)) as value")
        writer = rows.writeStream.foreachBatch(write_and_tell).option(
            "checkpointLocation", str(self._given.directory / self.name)
        )
        (writer.trigger(availableNow=True) if self._given.finish else writer).start().awaitTermination()

    def _run_application(self) -> None:
        config = {
            **settings(self._given.bootstrap, self._given.directory, self.name),
            "processing.guarantee": APPLICATIONS[self.name],
        }
        topology = named_counts(LINES, COUNTS, self.name)
        with KafkaStreams(topology, config, spark=self._spark, max_offsets_per_trigger=self._limit) as streams:
            if self._given.finish:
                streams.process_available()
                found = {pair.key: pair.value for pair in streams.store("counts").all()}
                (self._given.directory / f"{self.name}.json").write_text(json.dumps(found))
            else:
                streams.start()
                streams.wait()


def _tell_of_batches() -> None:
    process = query.SubTopologyQuery._process

    def process_and_tell(self: query.SubTopologyQuery, rows: Any, batch_id: int) -> None:
        process(self, rows, batch_id)
        if self.part.stores:
            _say("going", self._application.id)

    query.SubTopologyQuery._process = process_and_tell  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs queries that write exactly once, and applications of streams.")
    parser.add_argument("bootstrap")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--finish", action="store_true")
    given = parser.parse_args()
    spark = session(
        "harmed",
        config={**SHORT_RUN, "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"},
        log=given.directory / "spark.log",
    )
    _tell_of_batches()
    threads = [threading.Thread(target=Program(name, spark, given).run) for name in PROGRAMS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _say("ended")


if __name__ == "__main__":
    main()
