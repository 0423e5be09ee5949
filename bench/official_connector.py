"""Spark's own Kafka connector, as its users run it: a PySpark in its own environment, with the connector's jars.

`official_python()` and `official_jars()` install missing parts (pip and Maven, once; some 500 MB) below the cache
directory, and return their paths. 4.0.0 is the newest release of the connector whose jars all resolve through Maven;
our own source needs PySpark 4.2 or later, hence the second environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SPARK = "4.0.0"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
CACHE = Path(os.environ.get("JESENSKA_BENCH_CACHE", Path.home() / ".cache" / "jesenska-bench"))
#: Jars that the connector's environment has already: Spark's own classes, and those in every Spark distribution.
_IN_SPARK = (
    "hadoop-client-",
    "scala-library-",
    "slf4j-api-",
    "spark-tags_",
    "lz4-java-",
    "snappy-java-",
    "jsr305-",
    "scala-parallel-collections_",
)

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency><groupId>org.apache.spark</groupId><artifactId>{CONNECTOR}</artifactId><version>{SPARK}</version></dependency></dependencies>
</project>"""


def has_everything() -> bool:
    """True if nothing has to be made or fetched."""
    return all((CACHE / name / ".complete").exists() for name in (f"pyspark-{SPARK}", f"connector-{SPARK}"))


def official_python() -> Path:
    """The Python of the environment that has PySpark of the connector's release."""
    folder = CACHE / f"pyspark-{SPARK}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={SPARK}"], check=True, stdout=sys.stderr)
        (folder / ".complete").touch()
    return python


def official_jars() -> list[Path]:
    """The connector and the jars that it needs besides Spark."""
    folder = CACHE / f"connector-{SPARK}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as work:
            Path(work, "pom.xml").write_text(_POM)
            command = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
                "-DincludeScope=runtime",
            ]
            subprocess.run(command, cwd=work, check=True, stdout=sys.stderr)
        (folder / ".complete").touch()
    return sorted(path for path in folder.glob("*.jar") if not path.name.startswith(_IN_SPARK))
