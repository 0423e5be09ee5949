"""The examples of docs/pipeline.md run as printed, with the address of a broker that is up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.pipeline.conftest import Reading, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "pipeline.md"


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_the_examples_of_the_page_run(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    reading: Reading,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [topics.create(2) for _ in range(3)]
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 4
    scope: dict[str, Any] = {}
    for text in examples:
        for written, here in (
            ('"127.0.0.1:9092"', repr(bootstrap)),
            ('"orders"', repr(names[0])),
            ('"shouted-orders"', repr(names[1])),
            ('"invoices"', repr(names[2])),
        ):
            text = text.replace(written, here)
        for name in ("shouted", "invoices"):
            text = text.replace(f"checkpoints/{name}", str(tmp_path / name))
        exec(compile(text, str(PAGE), "exec"), scope)
    shown = capsys.readouterr().out
    assert "3 apples" in shown
    # There are three keys, two of them equal, in two partitions. Each partition is read to its end.
    progress = [line for line in shown.splitlines() if line.startswith(f"{names[0]}-")]
    assert [line.split(":")[0] for line in progress] == [f"{names[0]}-0", f"{names[0]}-1"]
    assert all(line.endswith(" 0 to go") for line in progress)
    assert sorted(row.value for row in reading.batch(subscribe=names[1]).collect()) == [
        b"1 PEAR",
        b"2 PLUMS",
        b"3 APPLES",
    ]
    invoices = reading.batch(subscribe=names[2], kafka__isolation__level="read_committed")
    assert sorted(row.value for row in invoices.collect()) == [
        b"invoice for " + value for value in (b"1 pear", b"2 plums", b"3 apples")
    ]
