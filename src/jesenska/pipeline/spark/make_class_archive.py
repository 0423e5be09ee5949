"""Makes the archive of Java classes with which Spark sessions start in about half the time (`class_archive`).

    python -m jesenska.pipeline.spark.make_class_archive    once for each Java and Spark: about a minute, and 200 MB

A Spark session is started, runs some typical work, and ends: its JVM then writes an archive of all classes that it has
loaded. The archive has a temporary name until it is complete."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.spark.class_archive import JAVA_OPTIONS, QUIETLY, archive_paths
from jesenska.pipeline.spark.session import SHORT_RUN, end_session, quiet_about_pandas, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAKING_SECONDS: Final = 300.0


def make() -> Path:
    """Makes the class archive for the Java and the Spark that `session()` uses, and returns its path. Raises
    JesenskaError if this Java cannot make an archive, or if no folder can be written."""
    for path in archive_paths(os.environ):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(dir=path.parent, prefix="making-"))
        except OSError:
            continue
        try:
            made = work / "classes.jsa"
            options = f"{SHORT_RUN[JAVA_OPTIONS]} {QUIETLY} -XX:ArchiveClassesAtExit={shlex.quote(str(made))}"
            spark = session(
                "class archive",
                config={**SHORT_RUN, JAVA_OPTIONS: options, "spark.sql.warehouse.dir": str(work)},
                log=work / "log",
            )
            try:
                _load_classes(spark, work)
            finally:
                end_session(spark, _MAKING_SECONDS)
            if not made.is_file():
                raise JesenskaError(
                    f"This Java made no archive of Spark's classes (it may have no archive of its own, or the disk "
                    f"below {path.parent} is full)."
                )
            made.replace(path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return path
    raise JesenskaError(
        "The archive of Spark's classes needs a folder that can be written, and none was found: set "
        "XDG_CACHE_HOME to such a folder."
    )


def _load_classes(spark: SparkSession, work: Path) -> None:
    """Runs work for which Spark loads the classes that most programs need: a query, Parquet files, Python functions on
    rows, and a stream that counts."""
    table = str(work / "table")
    counted = spark.range(100).selectExpr("id", "id % 7 AS key", "cast(id AS string) AS text").groupBy("key").count()
    with quiet_about_pandas():
        counted.mapInArrow(lambda batches: batches, "key bigint, count bigint").write.parquet(table)
    spark.read.parquet(table).orderBy("key").collect()
    stream = spark.readStream.schema("key bigint, count bigint").parquet(table).groupBy("key").count()
    query = stream.writeStream.format("memory").queryName("counted").outputMode("complete")
    query.option("checkpointLocation", str(work / "state")).trigger(availableNow=True).start().awaitTermination()


def main() -> int:
    try:
        path = make()
    except JesenskaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{path} ({path.stat().st_size / 1e6:.0f} MB): sessions start with it from now on.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
