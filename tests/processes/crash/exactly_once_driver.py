"""The driver of a Spark query that writes exactly once, as a process that can be killed:

    python -m tests.processes.crash.exactly_once_driver BOOTSTRAP INPUT OUTPUT CHECKPOINT LOG
        [--master M] [--point P --after N]

Each value of the input goes to the output with its key, and with "made of " before it. The driver prints "batch N"
when a micro-batch is written. At point P, in the micro-batch after N others, the driver kills itself. After a line on
standard input the query processes the input that is there, and ends."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.pipeline.exactly_once import ExactlyOnce
from jesenska.pipeline.micro_batches import MicroBatch, MicroBatchTransaction
from jesenska.pipeline.spark.session import SHORT_RUN, end_session, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY = "killed"
POINTS = ("after the number", "before the tasks", "within the tasks", "after the tasks", "after the commit")
_TIMEOUT_MS = "60000"
_ROWS_AT_ONCE = "500"


def _die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at(point: str) -> None:
    """Kills the driver when the next micro-batch reaches this point."""
    writing = MicroBatchTransaction
    last_batch, write_number, commit, run_tasks = (
        writing.last_batch,
        writing.write_number,
        writing.commit,
        ExactlyOnce._run_tasks,
    )

    async def die_before_tasks(self: Any) -> MicroBatch | None:
        await last_batch(self)
        _die()
        return None

    async def die_after_number(self: Any, batch: MicroBatch) -> None:
        await write_number(self, batch)
        _die()

    async def die_after_commit(self: Any) -> None:
        await commit(self)
        _die()

    def die_within_tasks(self: Any, rows: DataFrame, ticket: Any) -> Any:
        threading.Timer(random.uniform(0.02, 0.4), _die).start()
        return run_tasks(self, rows, ticket)

    def die_after_tasks(self: Any, rows: DataFrame, ticket: Any) -> Any:
        run_tasks(self, rows, ticket)
        return _die()

    patched: dict[str, tuple[Any, str, Any]] = {
        "after the number": (writing, "write_number", die_after_number),
        "before the tasks": (writing, "last_batch", die_before_tasks),
        "within the tasks": (ExactlyOnce, "_run_tasks", die_within_tasks),
        "after the tasks": (ExactlyOnce, "_run_tasks", die_after_tasks),
        "after the commit": (writing, "commit", die_after_commit),
    }
    setattr(*patched[point])


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a Spark query that writes exactly once.")
    for name in ("bootstrap", "input", "output"):
        parser.add_argument(name)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--point", choices=POINTS)
    parser.add_argument("--after", type=int, default=1)
    given = parser.parse_args()
    spark = session("exactly-once", given.master, SHORT_RUN, log=given.log)
    write = ExactlyOnce(
        QUERY,
        {
            "kafka.bootstrap.servers": given.bootstrap,
            "topic": given.output,
            "kafka.transaction.timeout.ms": _TIMEOUT_MS,
        },
    )
    written = 0

    def write_and_tell(rows: DataFrame, batch_id: int) -> None:
        nonlocal written
        if given.point is not None and written == given.after:
            _kill_at(given.point)
        write(rows, batch_id)
        written += 1
        print("batch", batch_id, flush=True)

    reading = {
        "kafka.bootstrap.servers": given.bootstrap,
        "subscribe": given.input,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": _ROWS_AT_ONCE,
    }
    rows = (
        spark.readStream.format("jesenska")
        .options(**reading)
        .load()
        .selectExpr("key", "concat('made of ', cast(value as string)) as value")
    )
    query = rows.writeStream.foreachBatch(write_and_tell).option("checkpointLocation", str(given.checkpoint)).start()
    threading.Thread(target=_end, args=(query,), daemon=True).start()
    query.awaitTermination()
    end_session(spark)
    print("ended", flush=True)
    return 0


def _end(query: Any) -> None:
    """Ends the query after a line on standard input, when the input that is there is written. At the end of standard
    input the parent process has ended."""
    if not sys.stdin.readline():
        _die()
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    sys.exit(main())
