"""A query that ends because a disk is full: the sentence names the disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jesenska.pipeline.streams_on_spark.queries.full_disks import of_a_full_disk


@pytest.mark.parametrize(
    ("free", "which"),
    [(20_000, "of {directory} (state.dir)"), (1 << 30, "of Spark's own files (spark.local.dir, java.io.tmpdir)")],
)
def test_the_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, which: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    said = of_a_full_disk("java.io.IOException: No space left on device\n\tat java.base", tmp_path)
    assert said is not None
    assert f"the disk {which.format(directory=tmp_path)} is full: make room on it" in str(said)
    assert of_a_full_disk("java.io.IOException: Input/output error", tmp_path) is None
