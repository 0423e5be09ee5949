"""The place where a session runs: on this machine, on a cluster, and with a Python without jesenska. Each real session
runs in a process of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from jesenska.pipeline.connector import user_errors
from jesenska.pipeline.spark.class_archive import JAVA_OPTIONS
from jesenska.pipeline.spark.session import SHORT_RUN, prepare_environment, settings_for
from jesenska.records import codec
from tests.processes.pipeline.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

_COPY = """
rows = spark.read.format("jesenska").option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", SOURCE).load()
rows.select("key", "value").write.format("jesenska").option("kafka.bootstrap.servers", BOOTSTRAP).option("topic", TARGET).mode("append").save()
spark.stop()
"""  # noqa: E501


def _run(program: str, bootstrap: str, source: str, target: str, folder: Path, environment: dict[str, str]) -> str:
    """Runs the program, which makes `spark`, and copies a topic. Returns its stderr."""
    (folder / "program.py").write_text(
        f"BOOTSTRAP, SOURCE, TARGET = {bootstrap!r}, {source!r}, {target!r}\n{program}\n{_COPY}", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def _without_python(folder: Path) -> dict[str, str]:
    """An environment in which `python3` has neither PySpark nor jesenska."""
    bare = folder / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(
        f'#!/bin/sh\nexec {getattr(sys, "_base_executable", sys.executable)} -I -S "$@"\n', encoding="utf-8"
    )
    bare.chmod(0o755)
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_", "PYTHONPATH", "VIRTUAL_ENV"))
    }
    return {**kept, "PATH": f"{bare.parent}:{os.environ.get('PATH', os.defpath)}"}


def _spark_home(folder: Path) -> Path:
    """PySpark's own directory, as links, so that the files of executors belong to the test. Other programs may have
    written to PySpark's directory."""
    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def test_a_topic_is_copied_by_the_executors_of_a_cluster_and_source_sent_along_says_once_that_it_is_slow(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(3), topics.create()
    for partition in range(3):
        topics.send(source, [b"a", b"b"], partition)
    root = Path(user_errors.__file__).parents[3]
    with zipfile.ZipFile(tmp_path / "jesenska.zip", "w") as archive:
        for file in sorted([*root.glob("jesenska/**/*.py"), root / "pyspark_jesenska.py"]):
            archive.write(file, file.relative_to(root))
    home = _spark_home(tmp_path)
    settings = {
        **SHORT_RUN,
        "spark.executor.extraJavaOptions": SHORT_RUN[JAVA_OPTIONS],
        "spark.log.level": "OFF",
        "spark.submit.pyFiles": "jesenska.zip",
    }
    settings |= {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    program = (
        f"from jesenska.pipeline import session\nspark = session(master='local-cluster[1,1,600]', config={settings})"
    )
    _run(program, bootstrap, source, target, tmp_path, {**_without_python(tmp_path), "SPARK_HOME": str(home)})
    assert topics.offsets(target)[0] == (0, 6)
    (said,) = home.glob("work/*/0/stderr")
    # A task that reads and writes has two processes, each of which prints the message. There are three such tasks, one
    # after the other.
    assert 1 <= said.read_text(encoding="utf-8").count("without its compiled modules") <= 2


def test_a_session_that_was_made_with_another_python_is_taken_over(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, [b"a", b"b"])
    program = """
import warnings
from jesenska.pipeline import session
from jesenska.pipeline.spark.java import java_home
import os
home = java_home(os.environ)
if home is not None:
    os.environ["JAVA_HOME"] = str(home)
from pyspark.sql import SparkSession
from jesenska.pipeline.spark.class_archive import JAVA_OPTIONS, options_with_archive
from jesenska.pipeline.spark.session import SHORT_RUN
started_soon = options_with_archive(SHORT_RUN[JAVA_OPTIONS], os.environ)
builder = SparkSession.builder.master("local[1]").config(JAVA_OPTIONS, started_soon)
made = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
spark = session()
assert spark.sparkContext is made.sparkContext
"""
    _run(program, bootstrap, source, target, tmp_path, _without_python(tmp_path))
    assert topics.offsets(target)[0] == (0, 2)


def test_only_a_local_master_keeps_the_driver_on_loopback() -> None:
    for master in ("local[2]", "local[*]", "local-cluster[1,1,600]"):
        assert settings_for(master, {})["spark.driver.host"] == "127.0.0.1"
    for master in ("spark://somewhere:7077", "yarn", "k8s://https://somewhere"):
        assert not settings_for(master, {}).keys() & {"spark.driver.host", "spark.driver.bindAddress"}
    assert settings_for("yarn", {"spark.driver.host": "me"})["spark.driver.host"] == "me"


def test_the_executors_of_a_cluster_run_the_python_that_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "JAVA_HOME")
    for name in names:
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    prepare_environment("spark://somewhere:7077")
    assert [os.environ.get(name) for name in names[:3]] == [sys.executable, sys.executable, None]
    prepare_environment("spark://somewhere:7077", "/bin/sh")  # any program that is there
    assert [os.environ[name] for name in names[:2]] == ["/bin/sh", "/bin/sh"]
    with caplog.at_level(logging.WARNING):
        prepare_environment("yarn", "./environment/bin/python")
    assert [os.environ[name] for name in names[:2]] == ["./environment/bin/python", sys.executable]
    assert "The executors' Python, ./environment/bin/python, is not on this machine" in caplog.text
    prepare_environment("local[2]", "/bin/sh")
    assert [os.environ[name] for name in names[:3]] == [sys.executable, sys.executable, "127.0.0.1"]


def test_a_codec_that_is_not_compiled_is_said_once_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(codec, "COMPILED", False)
    for asked, times in (("1", 0), ("", 1)):
        monkeypatch.setenv("JESENSKA_PURE", asked)
        user_errors.say_if_slow.cache_clear()
        with caplog.at_level(logging.WARNING):
            user_errors.say_if_slow()
            user_errors.say_if_slow()
        assert caplog.text.count("without its compiled modules") == times
    user_errors.say_if_slow.cache_clear()
