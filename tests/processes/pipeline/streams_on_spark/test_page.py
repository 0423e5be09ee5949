"""The example of docs/streams-on-spark.md runs as printed, with the address of a broker that is up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.pipeline.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[4] / "docs" / "streams-on-spark.md"


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_the_example_of_the_page_runs(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lines, counts = topics.create(2), topics.create(1)
    topics.send(lines, [(b"All streams lead to Kafka", b"1"), (b"Hello Kafka Streams", b"2")])
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for written, here in (
        ('"127.0.0.1:9092"', topics.bootstrap),
        ('"lines"', lines),
        ('"word-counts"', counts),
        ('"word-count"', f"count-{lines}"),
    ):
        text = text.replace(written, repr(here.strip('"')))
    scope: dict[str, Any] = {}
    exec(compile(text, str(PAGE), "exec"), scope)
    shown = capsys.readouterr().out
    assert shown.startswith("Sub-topology: 0\n") and shown.endswith("\n2\n")
    assert topics.offsets(counts)[0][1] == 8
