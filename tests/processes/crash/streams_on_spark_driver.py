"""An application of Kafka Streams' API on Spark as a process that can be killed:

    python -m tests.processes.crash.streams_on_spark_driver BOOTSTRAP DIRECTORY GUARANTEE [--finish]

lines -> words       each word counted, after a repartition topic
      -> keys        the lines of each key
      -> windows     the lines of each key and window

The program prints "batch N M" when micro-batch M of sub-topology N is done. With --finish it processes the input that
is there, and writes the stores to DIRECTORY/stores.json: a list of name, key (with the window's start) and value."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from jesenska.pipeline.spark.session import SHORT_RUN, end_session, session
from jesenska.pipeline.streams import Serdes, StreamsBuilder, TimeWindows, Topology, value
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.pipeline.streams_on_spark.queries import query

WINDOW_MS = 10_000
APPLICATION = "killed"
#: No window leaves the store.
_RETENTION_MS = 86_400_000
#: Of one micro-batch of a sub-topology; and at the end, when nothing is killed any more.
_OFFSETS_AT_ONCE, _OFFSETS_AT_THE_END = 400, 20_000
_STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}


def topology(*, as_functions: bool) -> Topology:
    """Returns the same topology with Python functions or with expressions, which take different ways through the
    program."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", **_STRINGS)
    words = lines.flat_map_values(
        (lambda line: line.split(" ")) if as_functions else value.split(" "), value=Serdes.string()
    )
    by_word = words.group_by((lambda _, word: word) if as_functions else value, **_STRINGS)
    by_word.count(store="words").to_stream().to("words", key=Serdes.string(), value=Serdes.long())
    by_key = lines.group_by_key(**_STRINGS)
    by_key.count(store="keys").to_stream().to("keys", key=Serdes.string(), value=Serdes.long())
    windows = by_key.windowed_by(TimeWindows(WINDOW_MS, grace=WINDOW_MS)).count(
        store="windows", retention=_RETENTION_MS
    )
    windows.to_stream().to("windows", key=Serdes.time_windowed(Serdes.string(), WINDOW_MS), value=Serdes.long())
    return builder.build()


def _tell_of_batches() -> None:
    process = query.SubTopologyQuery._process

    def process_and_tell(self: query.SubTopologyQuery, rows: Any, batch_id: int) -> None:
        process(self, rows, batch_id)
        print("batch", self.part.number, batch_id, flush=True)

    query.SubTopologyQuery._process = process_and_tell  # type: ignore[method-assign]


def _stores(streams: KafkaStreams) -> list[tuple[str, str, int]]:
    found = [(name, pair.key, pair.value) for name in ("words", "keys") for pair in streams.store(name).all()]
    return found + [
        ("windows", f"{pair.key.key}@{pair.key.window.start}", pair.value) for pair in streams.store("windows").all()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs an application of Kafka Streams' API on Spark.")
    parser.add_argument("bootstrap")
    parser.add_argument("directory", type=Path)
    parser.add_argument("guarantee")
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--functions", action="store_true")
    given = parser.parse_args()
    spark = session("killed", config={**SHORT_RUN, "spark.log.level": "OFF"}, log=given.directory / "spark.log")
    config = {
        "application.id": APPLICATION,
        "bootstrap.servers": given.bootstrap,
        "state.dir": str(given.directory / "state"),
        "commit.interval.ms": 0,
        "processing.guarantee": given.guarantee,
        "replication.factor": 3,
    }
    _tell_of_batches()
    limit = _OFFSETS_AT_THE_END if given.finish else _OFFSETS_AT_ONCE
    with KafkaStreams(
        topology(as_functions=given.functions), config, spark=spark, max_offsets_per_trigger=limit
    ) as streams:
        if given.finish:
            streams.process_available()
            (given.directory / "stores.json").write_text(json.dumps(_stores(streams)))
        else:
            streams.start()
            streams.wait()
    end_session(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
