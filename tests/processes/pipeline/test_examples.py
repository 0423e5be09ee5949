"""The programs in examples/ run. The notebook runs from top to bottom, without a notebook's machinery: its cells run
one after the other in one scope. The query runs from topic to topic."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.pipeline.conftest import Reading, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[3] / "examples" / "lag_and_windows.ipynb"


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return cells


def test_the_notebook_is_one_and_holds_no_outputs() -> None:
    tree = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (tree["nbformat"], tree["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in _cells()}) == len(_cells())
    for cell in _cells():
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert not cell.get("outputs")
        assert all(isinstance(line, str) for line in cell["source"])


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_notebook_runs_and_shows_the_lag_fall_and_the_windows_full(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the tests' own session is the one that it finds
    scope: dict[str, Any] = {}
    try:
        for cell in _cells():
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{NOTEBOOK.name} {cell['id']}", "exec"), scope)
    finally:
        if "broker" in scope:
            scope["broker"].stop()
    lag_after: dict[int, int] = {}
    for batch, _, _, _, lag in scope["behind"]:
        lag_after[batch] = lag_after.get(batch, 0) + lag
    assert list(lag_after.values())[:5] == [140, 100, 60, 20, 0]
    rows = scope["result"].collect()
    assert [(row.station, row.since) for row in rows] == [
        (station, f"12:{tens}0") for station in ("brno", "graz", "lund") for tens in range(6)
    ]
    assert {row.reports for row in rows} == {10}
    assert [row.degrees for row in rows[:2]] == [4.15, 4.48]
    shown = capsys.readouterr().out
    assert "read_to" in shown
    assert "|   lund|12:50|     10|   5.82|" in shown
    assert not scope["folder"].exists()


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_query_from_topic_to_topic_writes_each_record_once(
    spark: SparkSession, topics: Topics, reading: Reading, tmp_path: Path
) -> None:
    described = importlib.util.spec_from_file_location(
        "exactly_once_query", NOTEBOOK.with_name("exactly_once_query.py")
    )
    assert described is not None and described.loader is not None
    example = importlib.util.module_from_spec(described)
    described.loader.exec_module(example)
    source, target = topics.create(2), topics.create(2)
    for first in (0, 20):
        topics.send(source, [b"%d" % number for number in range(first, first + 20)])
        # The second time as after a restart.
        example.start(
            spark, topics.bootstrap, source, target, str(tmp_path / "checkpoint"), once=True
        ).awaitTermination()
    written = reading.batch(subscribe=target, kafka__isolation__level="read_committed").collect()
    assert sorted(row.value for row in written) == sorted(b"invoice for %d" % number for number in range(40))
