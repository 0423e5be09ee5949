"""`jesenska streams run` and `explain`: a program of two files, run until a signal arrives, or once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.cli.commands import streams
from jesenska.cli.jesenska import main
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PROGRAM = """
from jesenska.pipeline.streams import Serdes, StreamsBuilder
from {beside} import cleaned
strings = dict(key=Serdes.string(), value=Serdes.string())
topology = StreamsBuilder()
topology.stream({source!r}, **strings).map_values(lambda text: cleaned(text)).to({sink!r}, **strings)
config = {{"application.id": {name!r}, "bootstrap.servers": {bootstrap!r}, "state.dir": {state!r}, "commit.interval.ms": 0}}
"""  # noqa: E501


def program(topics: Topics, directory: Path, source: str, sink: str) -> list[str]:
    """The command line that runs it, without the word `jesenska`."""
    name = f"program-{source}"
    beside = f"beside_{source.replace('-', '_')}"
    (directory / f"{beside}.py").write_text("def cleaned(text):\n    return text.strip().lower()\n")
    file = directory / f"{name}.py"
    file.write_text(
        PROGRAM.format(
            beside=beside,
            source=source,
            sink=sink,
            name=name,
            bootstrap=topics.bootstrap,
            state=str(directory / "state"),
        )
    )
    return ["streams", "run", str(file)]


def test_a_program_runs_until_it_is_told_to_end(topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(), topics.create()
    topics.send(source, [b" One", b"TWO "])
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.jesenska",
        *program(topics, tmp_path, source, sink),
        "--output",
        "json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None and process.stdout is not None
            said = next((line for line in process.stderr if "runs; Ctrl-C ends it" in line), None)
            assert said is not None
            while topics.offsets(sink)[0][1] < 2 and process.poll() is None:
                pass  # the application's micro-batches write it
            process.send_signal(signal.SIGTERM)
            states = process.stdout.read()
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert [line.split('"state":"')[1].split('"')[0] for line in states.splitlines()] == [
        "REBALANCING",
        "RUNNING",
        "PENDING_SHUTDOWN",
        "NOT_RUNNING",
    ]
    assert [value for value, _ in written(topics, sink)[None]] == [b"one", b"two"]


def test_a_program_runs_once_and_is_explained(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "heeded_signals", lambda: ())
    source, sink = topics.create(), topics.create()
    topics.send(source, [b" One", b"TWO "])
    _, _, file = command = program(topics, tmp_path, source, sink)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command, "--once"]) == 0
    assert [value for value, _ in written(topics, sink)[None]] == [b"one", b"two"]
    assert main(["streams", "explain", file]) == 0
    assert f"reads   {source}: 1 partitions" in capsys.readouterr().out
