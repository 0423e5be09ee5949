"""A program that runs the word count until it is killed: python -m
tests.processes.pipeline.streams_on_spark.killed_application BOOTSTRAP DIRECTORY APPLICATION_ID SOURCE SINK"""

from __future__ import annotations

import sys
from pathlib import Path

from jesenska.pipeline.spark.session import SHORT_RUN, session
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.processes.pipeline.streams_on_spark.word_count import settings, word_count


def main() -> None:
    bootstrap, directory, name, source, sink = sys.argv[1:]
    spark = session("killed", config={**SHORT_RUN, "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"})
    streams = KafkaStreams(
        word_count(source, sink), settings(bootstrap, Path(directory), name), spark=spark, max_offsets_per_trigger=10
    )
    streams.start()
    streams.wait()


if __name__ == "__main__":
    main()
