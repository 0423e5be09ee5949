"""The main job, killed and started again: what comes out equals what DuckDB finds in the CSV files, to the last
group."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.demo.job import RESULT_TOPICS
from tests.processes.pipeline import direct
from tests.profiles import rounds

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]

FLIGHTS = rounds(quick=4000, ci=20_000, everything=20_000)
PER_TRIGGER = max(1000, FLIGHTS // 10)


class Demo:
    """Runs of the demo in one folder, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.said: list[str] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "jesenska.pipeline.demo",
            "--data",
            str(self.folder),
            "--flights",
            str(FLIGHTS),
        ]
        process = subprocess.Popen(
            [*command, "--per-trigger", str(PER_TRIGGER), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if self._process is not None:
            self.close_output()
        self._process = process
        return process

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Reads what the demo says until a line matches."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line)
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"the demo never said {pattern}: {''.join(self.said)}")

    def finish(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self.said += list(self._process.stdout)
        return self._process.wait(60)

    def close_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()

    def broker(self) -> tuple[str, int]:
        note = json.loads((self.folder / "broker.json").read_text(encoding="utf-8"))
        return note["address"], note["pid"]

    def close(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self.close_output()
        try:
            os.kill(self.broker()[1], signal.SIGKILL)
        except (OSError, ValueError):
            pass  # it has ended, as it should


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path / "demo")
    yield running
    running.close()


def _last_values(address: str) -> dict[str, dict[str, Any]]:
    """The last value of each key of the result topics."""
    connection = ClusterThread(ClientOptions(address))

    async def read(topic: str) -> dict[str, Any]:
        cluster = connection.cluster
        keys = [partition.topic_partition for partition in (await cluster.topic(topic)).partitions]
        ends = {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, LATEST))).items()}
        found: dict[str, Any] = {}
        async with Consumer(cluster) as consumer:
            await consumer.assign(keys)
            while any(consumer.position(TopicPartition(*key)) < end for key, end in ends.items()):
                for records in (await consumer.poll(10, 100_000)).values():
                    found.update(
                        {
                            record.key.decode(): json.loads(record.value)
                            for record in records
                            if record.key and record.value
                        }
                    )
        return found

    try:
        return {kind: connection.run(read(topic)) for kind, topic in RESULT_TOPICS.items()}
    finally:
        connection.close()


def _as_rows(kind: str, values: dict[str, Any]) -> direct.Rows:
    columns = [
        "key",
        "name",
        *(["hour"] if kind == "by_carrier_hour" else []),
        "flights",
        "cancelled",
        "departed",
        "dep_delay_sum",
        "arrived",
    ]
    columns += ["arr_delay_sum", "seats", "mean_dep_delay", "mean_arr_delay"]
    rows = [tuple(value.get(column) for column in columns) for value in values.values()]
    return sorted(rows, key=lambda row: (row[2], row[0]) if kind == "by_carrier_hour" else (row[0],))


def _assert_results(demo: Demo, address: str, scratch: Path) -> None:
    wanted = direct.expected(scratch, FLIGHTS)
    assert sum(row[3] for row in wanted["by_carrier_hour"]) == FLIGHTS
    assert direct.in_parquet(demo.folder) == wanted
    in_topics = _last_values(address)
    assert {kind: _as_rows(kind, values) for kind, values in in_topics.items()} == wanted


def test_results_equal_the_csv_files_after_the_driver_and_the_broker_were_killed(demo: Demo, tmp_path: Path) -> None:
    driver = demo.start("--speed-up", "500000")
    demo.wait_for(r"[1-9][\d,]* of [\d,]+ flights sent")
    driver.kill()  # while it sends
    driver.wait()
    address, broker = demo.broker()
    assert 0 < sum(_end_offsets(address, "flights")) < FLIGHTS

    driver = demo.start()
    demo.wait_for(f"Using the demo's broker that runs at {re.escape(address)}")
    demo.wait_for("continuing from its checkpoint")
    demo.wait_for(r", [1-9][\d,]* counted")
    driver.kill()  # while it counts
    driver.wait()

    demo.start()
    demo.wait_for("continuing from its checkpoint")
    demo.wait_for(r", [1-9][\d,]* counted")
    os.kill(broker, signal.SIGKILL)
    assert demo.finish() == 1
    assert "The broker has ended: run the demo again" in "".join(demo.said)

    last = demo.start()
    demo.wait_for("continuing from its checkpoint")
    demo.wait_for("stays up at .* until Ctrl-C")
    _assert_results(demo, demo.broker()[0], tmp_path)
    assert sum(_end_offsets(demo.broker()[0], "flights")) == FLIGHTS  # none left out, none twice

    last.send_signal(signal.SIGINT)
    assert demo.finish() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(demo.broker()[1], 0)
    assert (demo.folder / "broker" / ".kafka_cleanshutdown").exists()


def _end_offsets(address: str, topic: str) -> list[int]:
    connection = ClusterThread(ClientOptions(address))

    async def ends() -> list[int]:
        keys = [partition.topic_partition for partition in (await connection.cluster.topic(topic)).partitions]
        return [item.offset for item in (await list_offsets(connection.cluster, dict.fromkeys(keys, LATEST))).values()]

    try:
        return connection.run(ends())
    finally:
        connection.close()


def test_a_later_run_begins_anew_beside_the_broker_that_runs_and_the_exit_option_ends_its_own(
    demo: Demo, tmp_path: Path
) -> None:
    wanted = direct.expected(tmp_path, 2000)
    keeper = demo.start("--flights", "2000")
    demo.wait_for("stays up at .* until Ctrl-C")
    assert direct.in_parquet(demo.folder) == wanted

    beside = Demo(demo.folder)
    beside.start("--exit", "--flights", "2000")
    assert beside.finish() == 0
    beside.close_output()
    said = "".join(beside.said)
    assert "Using the demo's broker that runs" in said
    assert "where another program keeps it" in said
    assert "going on" not in said
    assert direct.in_parquet(demo.folder) == wanted
    os.kill(demo.broker()[1], 0)

    keeper.send_signal(signal.SIGINT)
    assert demo.finish() == 0
    demo.start("--exit", "--flights", "2000")
    assert demo.finish() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(demo.broker()[1], 0)
