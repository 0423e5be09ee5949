"""A Spark session in which `format("jesenska")` works, on a machine with no more than Python: `session()`.

It finds Java (java.py), makes Spark's workers run this Python, stays on this machine's loopback, keeps times in UTC and says only what is an error.
Everything else is Spark's own; a program that makes its session otherwise can use the source as well, as long as its workers can import jesenska.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Enough for one machine: every shuffle partition of a stream is a task and a state file per micro-batch.
_SHUFFLE_PARTITIONS = 4

_JVM_END_SECONDS = 20.0

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Larger Arrow batches than Spark's 10,000 rows: fewer, fuller record batches per partition in the sink.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.metricsEnabled": "false",
}

#: For `config`, of programs that end within minutes: Java then compiles less thoroughly and collects garbage in one thread, which takes half of the CPU time of
#: a short run (the demo: 35 instead of 40 s; 2,000 of its flights, beside other work: 34 instead of 56 s).
SHORT_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(app_name: str = "jesenska", master: str = "local[2]", config: Mapping[str, str] | None = None, *, log: Path | None = None) -> SparkSession:
    """The running session, or a new one. `config` holds Spark settings, which beat those set here; `log` is a file for what Spark's JVM says.

    JesenskaError with one sentence if PySpark or Java is missing."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError:
        raise JesenskaError('PySpark is not installed: pip install "jesenska[spark]" (in a clone: pip install ".[spark]").') from None
    prepare_environment()
    settings = {name: str(value) for name, value in {**_SETTINGS, **(config or {})}.items()}
    with warnings.catch_warnings():
        # PySpark looks at whatever pandas is there, which nothing here uses, and may warn of its version.
        warnings.simplefilter("ignore", FutureWarning)
        if log is not None and SparkContext._active_spark_context is None:
            conf = SparkConf().setAppName(app_name).setMaster(master).setAll(list(settings.items()))
            with log.open("ab") as output:
                gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def end_session(spark: SparkSession) -> None:
    """Stops the session and ends its JVM, which would otherwise live (and keep its memory) as long as this program."""
    from pyspark import SparkContext

    spark.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # the JVM ends with its standard input
    try:
        process.wait(_JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def prepare_environment() -> None:
    """Sets JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP for the JVM that is about to start."""
    home = java_home(os.environ)
    if home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
