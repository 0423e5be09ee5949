"""Rows of a broker with many partitions, and of a start: created, written to, stopped in order, started again."""

from __future__ import annotations

import time
from functools import partial

from bench.figures import resident_mb
from bench.raw_clients import create_topic, one_in_flight, produce_frame, wait_for_leaders
from bench.rows import Row, Run


def _partitions(run: Run, row: str, *, partitions: int) -> None:
    broker, topic = run.broker, "many"
    count = max(10, run.scaled(partitions))
    idle = resident_mb(broker.pid)
    with run.measured(f"{row}: create"):
        run.figures.add(f"{row}: create", "seconds", create_topic(broker.bootstrap, topic, count))
    frames = [produce_frame(topic, index, 1) for index in range(count)]
    with run.measured(f"{row}: the first record to each"):
        run.figures.add(
            f"{row}: the first record to each", "seconds", one_in_flight(broker.bootstrap, topic, frames, 32, count)
        )
    with run.measured(f"{row}: one more record to each", count):
        run.figures.add(
            f"{row}: one more record to each", "seconds", one_in_flight(broker.bootstrap, topic, frames, 32, count)
        )
    run.figures.add(f"{row}: memory", "resident MB", resident_mb(broker.pid))
    run.figures.add(f"{row}: memory", "KB a partition", (resident_mb(broker.pid) - idle) * 1024 / count)
    begun = time.monotonic()
    broker.stop()
    run.figures.add(f"{row}: orderly stop", "seconds", time.monotonic() - begun)
    begun = time.monotonic()
    run.figures.add(f"{row}: start after it", "seconds to ready", broker.start())
    wait_for_leaders(broker.bootstrap, topic, count)
    run.figures.add(f"{row}: start after it", "seconds until each partition answers", time.monotonic() - begun)
    run.figures.add(f"{row}: start after it", "resident MB", resident_mb(broker.pid))


ROWS = [
    Row("1,000 partitions", "1,000 partitions", partial(_partitions, partitions=1_000)),
    Row("10,000 partitions", "10,000 partitions", partial(_partitions, partitions=10_000)),
]
