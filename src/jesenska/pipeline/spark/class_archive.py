"""Finds the archive of Java classes (class data sharing, JEP 350) and the JVM options that name it. With this archive
a Spark session starts in about half the time. `python -m jesenska.pipeline.spark.make_class_archive` makes the
archive.

Spark's JVM reads and checks about fifteen thousand classes when it starts. With an archive it maps the prepared
classes into memory. `session()` uses the archive that was made for its Java and its Spark. Without an archive, or with
an archive that does not match its classes, the JVM starts as usual.

    <cache of the user>/jesenska/classes-<digest of Java and Spark's jars>.jsa
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jesenska.pipeline.spark.java import cache_folders, java_home

#: The Spark setting that contains options of the driver's JVM.
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: JVM options: if the archive cannot be used, the JVM starts without it and logs nothing about it.
QUIETLY: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def options_with_archive(java_options: str | None, environment: Mapping[str, str]) -> str | None:
    """Returns the JVM options `java_options`, with the options that name the class archive added. Returns them
    unchanged if there is no archive for this Java and Spark."""
    if java_options is not None and ("SharedArchiveFile" in java_options or "ArchiveClassesAtExit" in java_options):
        return java_options  # another archive is set, or is being made
    for path in archive_paths(environment):
        if path.is_file():
            return f"{QUIETLY} -XX:SharedArchiveFile={shlex.quote(str(path))} {java_options or ''}".rstrip()
    return java_options


def archive_paths(environment: Mapping[str, str]) -> list[Path]:
    """Returns the paths at which the archive for this Java and this Spark may be. The archive is made in the first
    folder that is writable. Returns an empty list if Java or Spark is not found."""
    name = _name(environment)
    return [] if name is None else [folder / name for folder in cache_folders(environment)]


def _name(environment: Mapping[str, str]) -> str | None:
    """Returns the archive's file name, which contains a digest of the Java release and Spark's jars. Returns None if
    Java or Spark is not found."""
    from pyspark.find_spark_home import _find_spark_home

    home = java_home(environment)
    found = (
        shutil.which("java", path=environment.get("PATH", os.defpath)) if home is None else str(home / "bin" / "java")
    )
    jars = Path(environment.get("SPARK_HOME") or _find_spark_home()) / "jars"
    if found is None or not jars.is_dir():
        return None
    java = Path(found).resolve()
    release = java.parent.parent / "release"
    facts = [str(java), release.read_text(encoding="utf-8", errors="replace") if release.is_file() else "", str(jars)]
    facts += [f"{jar.name} {jar.stat().st_size}" for jar in sorted(jars.iterdir())]
    return f"classes-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
