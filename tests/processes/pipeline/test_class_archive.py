"""Spark's JVM starts with an archive of its classes where a matching one exists, and as usual otherwise."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.pipeline.spark.class_archive import archive_paths, options_with_archive
from jesenska.pipeline.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """This environment, with a cache of the test's own."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "my cache")}


def _put_archive(environment: dict[str, str]) -> Path:
    path = archive_paths(environment)[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive, whatever its name says")
    return path


def test_without_an_archive_a_session_has_the_options_that_it_was_given(environment: dict[str, str]) -> None:
    environment["HOME"] = environment["XDG_CACHE_HOME"]
    assert options_with_archive("-Xss4m", environment) == "-Xss4m"
    assert options_with_archive(None, environment) is None


def test_an_archive_stands_before_the_options_that_were_given(environment: dict[str, str]) -> None:
    path = _put_archive(environment)
    assert (options_with_archive("-Xss4m", environment) or "").endswith(f"-XX:SharedArchiveFile='{path}' -Xss4m")
    assert (options_with_archive(None, environment) or "").endswith(f"-XX:SharedArchiveFile='{path}'")


@pytest.mark.parametrize("option", ["-XX:SharedArchiveFile=theirs.jsa", "-XX:ArchiveClassesAtExit=theirs.jsa"])
def test_an_archive_that_somebody_chose_or_makes_is_left_to_them(environment: dict[str, str], option: str) -> None:
    _put_archive(environment)
    assert options_with_archive(option, environment) == option


def test_another_spark_has_another_archive(environment: dict[str, str], tmp_path: Path) -> None:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    theirs = {**environment, "SPARK_HOME": str(jars.parent)}
    first = archive_paths(theirs)
    assert first != archive_paths(environment)
    (jars / "another.jar").write_bytes(b"x")
    assert archive_paths(theirs) != first
    assert archive_paths({**environment, "SPARK_HOME": str(tmp_path)}) == []


def test_a_java_that_cannot_use_an_archive_starts_all_the_same_and_says_nothing(environment: dict[str, str]) -> None:
    _put_archive(environment)
    options = shlex.split(options_with_archive(None, environment) or "")
    home = java_home(environment)
    java = "java" if home is None else str(home / "bin" / "java")
    done = subprocess.run(
        [java, *options, "-version"], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "archive" not in done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped stands in /proc")
def test_a_session_starts_with_the_archive(spark: SparkSession) -> None:
    """script/setup has created an archive."""
    archives = [path for path in archive_paths(os.environ) if path.is_file()]
    if not archives and os.environ.get("JESENSKA_PEERS") != "required":
        pytest.skip("python -m jesenska.pipeline.spark.make_class_archive has not been run")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    mapped = Path(f"/proc/{gateway.proc.pid}/maps").read_text(encoding="utf-8")
    assert str(archives[0]) in mapped
