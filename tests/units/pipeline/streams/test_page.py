"""The examples of docs/streams.md run unchanged, and those in examples/."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "streams.md"


def test_the_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 3
    scope: dict[str, Any] = {}
    for text in examples:
        exec(compile(text, str(PAGE), "exec"), scope)
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [lines])" in capsys.readouterr().out


def test_every_operation_that_the_page_names_is_there() -> None:
    from jesenska.pipeline import streams

    rows = re.findall(
        r"^\| `(StreamsBuilder|KStream|KTable|KGroupedStream|KGroupedTable)` \| (.*) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 5
    for kind, operations in rows:
        for name in re.findall(r"`([a-z_]+)`", operations):
            assert hasattr(getattr(streams, kind), name) or hasattr(streams.TimeWindowedKStream, name), f"{kind}.{name}"


def test_the_example_of_word_count_shows_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    described = importlib.util.spec_from_file_location(
        "streams_word_count", ROOT / "examples" / "streams_word_count.py"
    )
    assert described is not None and described.loader is not None
    example = importlib.util.module_from_spec(described)
    described.loader.exec_module(example)
    example.main(["hello kafka streams", "hello again"])
    assert capsys.readouterr().out.splitlines()[-5:] == ["hello 1", "kafka 1", "streams 1", "hello 2", "again 1"]
