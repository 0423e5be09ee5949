"""Our side of `bench/streams_bench.py`: a topology on Spark, in its own process.

    python -m bench.streams_side BOOTSTRAP DIRECTORY WORKLOAD [--master M] [--commit-interval-ms N] [--max-offsets N]

    stdin     prepare     prepares the application; its topics exist
              process N   processes all present records
              run         processes until the next line comes
    stdout    ready S     a session is there after S seconds
              prepared S
              done S T    after S seconds; T seconds of them went by in micro-batches
              running

Spark's progress of each micro-batch is in DIRECTORY/progress, a line of JSON for each."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.streams_workloads import MANY_KEYS, WORKLOADS
from jesenska.pipeline.spark.session import SHORT_RUN, end_session, session
from jesenska.pipeline.streams_on_spark import KafkaStreams

#: Settings besides those of KafkaStreams' own session.
_KEPT = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a workload on Spark.")
    parser.add_argument("bootstrap")
    parser.add_argument("directory", type=Path)
    parser.add_argument("workload")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--commit-interval-ms", type=int, default=0)
    parser.add_argument("--max-offsets", type=int)
    given = parser.parse_args()
    begun = time.monotonic()
    workload = next(one for one in (*WORKLOADS, MANY_KEYS) if one.name == given.workload)
    given.directory.mkdir(parents=True, exist_ok=True)
    spark = session("bench", given.master, {**SHORT_RUN, **_KEPT}, log=given.directory / "spark.log")
    config = {
        "application.id": "bench",
        "bootstrap.servers": given.bootstrap,
        "state.dir": str(given.directory / "state"),
        "commit.interval.ms": given.commit_interval_ms,
    }
    limit: dict[str, Any] = {} if given.max_offsets is None else {"max_offsets_per_trigger": given.max_offsets}
    with KafkaStreams(workload.topology(), config, spark=spark, **limit) as streams:
        (given.directory / "explained").write_text(workload.topology().describe())
        print("ready", time.monotonic() - begun, flush=True)
        is_prepared = False
        for line in sys.stdin:
            if line.startswith("prepare"):  # topics are there
                from_ = time.monotonic()
                (given.directory / "explained").write_text(streams.explain())
                is_prepared = True
                print("prepared", time.monotonic() - from_, flush=True)
            elif line.startswith("run"):
                streams.start()
                print("running", flush=True)
            else:
                assert is_prepared
                from_ = time.monotonic()
                streams.process_available()
                print("done", time.monotonic() - from_, _told(streams, given.directory), flush=True)
    end_session(spark)
    return 0


def _told(streams: KafkaStreams, directory: Path) -> float:
    """Seconds of all micro-batches."""
    seconds = 0.0
    with (directory / "progress").open("a") as file:
        for query in streams._queries:
            assert query._query is not None
            for one in query._query.recentProgress:
                seconds += one.durationMs.get("triggerExecution", 0) / 1000
                file.write(
                    json.dumps(
                        {
                            "name": one.name,
                            "batch": one.batchId,
                            "rows": one.numInputRows,
                            "at": one.timestamp,
                            **one.durationMs,
                        }
                    )
                    + "\n"
                )
    return seconds


if __name__ == "__main__":
    sys.exit(main())
