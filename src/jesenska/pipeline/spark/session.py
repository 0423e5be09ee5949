"""Starts or returns a Spark session in which `format("jesenska")` works: `session()`. The machine needs only Python.

`session()` finds Java (java.py), makes Spark's workers run this Python, sets the time zone to UTC and logs only
errors. With a local master (local[2], local-cluster[...]) all connections are on this machine's loopback address. On a
cluster the executors reach the driver by its own host name. The executors run the Python that PYSPARK_PYTHON or
spark.pyspark.python names.

Spark can find the data source by its name without registration. But then Spark starts the source's tasks with the
driver's Python, and without the files of --py-files. So `session()` registers the source if Spark runs on a cluster,
or if files are sent.

A session that was not made by `session()` also finds the source by its name, if the Python that Spark starts
(PYSPARK_PYTHON, else python3) can import jesenska. Calling `session()` in a program with a running session registers
the source in this session."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.spark.class_archive import JAVA_OPTIONS, options_with_archive
from jesenska.pipeline.spark.java import java_home
from jesenska.pipeline.spark.ready_python import ReadyPython, ready_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: The first PySpark release whose Python data sources support read limits and Arrow writers for streams.
_PYSPARK_MIN = (4, 2)
#: A small number of shuffle partitions is enough for one machine. Every shuffle partition of a stream costs a task and
#: a state file per micro-batch.
_SHUFFLE_PARTITIONS = 4

_SOURCES_SENT = "spark.submit.pyFiles"
_EXECUTORS_PYTHON = "spark.pyspark.python"
_DRIVERS_PYTHON = "spark.pyspark.driver.python"
_PYTHON_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_JVM_END_SECONDS = 20.0
#: The longest path of a directory for sockets. A socket's path has 107 bytes at most, and Spark appends "/.UUID.sock".
_SOCKETS_DIRECTORY_BYTES_MAX = 60

#: Settings for masters on this machine only: executors on other machines could not reach a driver at 127.0.0.1.
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Larger Arrow batches than Spark's default of 10,000 rows: the sink then writes fewer, larger record batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.metricsEnabled": "false",
}

#: Settings to pass as `config` in programs that end within minutes. Java then compiles less thoroughly and collects
#: garbage in one thread, which takes half of the CPU time of a short run. The demo takes 35 instead of 40 s; with
#: 2,000 flights, beside other work, it takes 34 instead of 56 s.
SHORT_RUN = {JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(
    app_name: str = "jesenska",
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    *,
    log: Path | None = None,
) -> SparkSession:
    """Returns the running Spark session, or starts a new session. `config` contains Spark settings, which take
    precedence over the settings made here. `log` is a file for the output of Spark's JVM.

    Raises JesenskaError if PySpark or Java is missing, or if PySpark is too old."""
    require_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context is not None
    settings = settings_for(master, config or {})
    ready = None if running else _ready_for(master, settings)
    if not running:
        if ready is not None:
            settings = {**_socket_settings(ready.directory), **settings}
        prepare_environment(master, settings.get(_EXECUTORS_PYTHON))
        java_options = options_with_archive(settings.get(JAVA_OPTIONS), os.environ)
        if java_options is not None:
            settings[JAVA_OPTIONS] = java_options
    with quiet_about_pandas(), _workers_python(ready):
        if log is not None and not running:
            conf = SparkConf().setAppName(app_name).setMaster(master).setAll(list(settings.items()))
            with log.open("ab") as output:
                gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        if running or settings.get(_SOURCES_SENT) or not _is_local(master):
            _make_known(spark)
        return spark


def require_pyspark() -> None:
    """Raises JesenskaError if PySpark is missing, or too old for the source and the sink."""
    try:
        import pyspark
        import pyspark.sql
    except ImportError:
        raise JesenskaError(
            'PySpark is not installed: pip install "jesenska[spark]" (in a clone: pip install ".[spark]").'
        ) from None
    release = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if release < _PYSPARK_MIN:
        needed = ".".join(map(str, _PYSPARK_MIN))
        raise JesenskaError(
            f"PySpark {pyspark.__version__} is installed, which is too old for jesenska: it works with PySpark "
            f"{needed} and newer, which "
            f'pip install --upgrade "pyspark>={needed}" brings.'
        )


def settings_for(master: str, config: Mapping[str, str]) -> dict[str, str]:
    """Returns Spark's settings for a session. Settings in `config` take precedence over the defaults made here."""
    return {
        name: str(value)
        for name, value in {**(_LOCAL_SETTINGS if _is_local(master) else {}), **_SETTINGS, **config}.items()
    }


def _is_local(master: str) -> bool:
    return master.startswith("local")


#: The fork server with which the running JVM starts its Python workers; None without one.
_ready: ReadyPython | None = None


def _ready_for(master: str, settings: Mapping[str, str]) -> ReadyPython | None:
    """Returns a fork server for Spark's Python workers on this machine (ready_python.py). Returns None if the workers
    would import other code than this process. This is so on a cluster, with another Python or Spark, or if files are
    sent."""
    global _ready
    from pyspark.find_spark_home import _find_spark_home

    if not _is_local(master) or master.startswith("local-cluster"):
        return None
    if any(settings.get(name) for name in (_SOURCES_SENT, _EXECUTORS_PYTHON, _DRIVERS_PYTHON)):
        return None
    import pyspark

    if Path(_find_spark_home()).resolve() != Path(pyspark.__file__).parent.resolve():
        return None
    if _ready is None:
        _ready = ready_python()
    return _ready


def _socket_settings(directory: Path) -> dict[str, str]:
    """Returns settings with which Spark and its Python workers communicate through Unix sockets in `directory`. Only
    this user may enter the directory, so no secret is needed. With TCP most tasks would wait 40 ms for a delayed
    acknowledgement. Returns no settings if the directory's path is too long for sockets."""
    if len(os.fsencode(directory)) > _SOCKETS_DIRECTORY_BYTES_MAX:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(directory)}


@contextmanager
def _workers_python(ready: ReadyPython | None) -> Iterator[None]:
    """Makes a JVM and a SparkContext that are started in this block use the fork server for their Python workers.
    After the block, the program's environment variables are as before."""
    if ready is None:
        yield
        return
    before = {name: os.environ[name] for name in _PYTHON_VARIABLES}
    os.environ.update(dict.fromkeys(_PYTHON_VARIABLES, ready.program))
    try:
        yield
    finally:
        os.environ.update(before)


def _make_known(spark: SparkSession) -> None:
    """Registers the data source with Spark. The source's tasks then run with the session's Python and the files of
    --py-files. Nothing is registered on a cluster whose executors' Python is not on this machine: Spark plans the
    queries of a registered source here, and could not start the executors' Python."""
    from jesenska.pipeline.connector.source import JesenskaDataSource

    context = spark.sparkContext
    if _is_local(str(context.master)):
        if _ready is None or context.pythonExec != _ready.program:
            context.pythonExec = sys.executable
    elif shutil.which(context.pythonExec) is None:
        return
    spark.dataSource.register(JesenskaDataSource)


@contextmanager
def quiet_about_pandas() -> Iterator[None]:
    """Hides PySpark's warnings about the installed pandas, which jesenska does not use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def end_session(spark: SparkSession, seconds: float = _JVM_END_SECONDS) -> None:
    """Stops the session and ends its JVM, which would otherwise run (and use memory) until the end of this program.
    Kills the JVM if its end takes longer than `seconds`."""
    global _ready
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
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if _ready is not None:
        _ready.close()
        _ready = None


def prepare_environment(master: str = "local", executors_python: str | None = None) -> None:
    """Sets JAVA_HOME, PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON and SPARK_LOCAL_IP for the JVM that is about to start."""
    home = java_home(os.environ)
    if home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = str(home)
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        return
    python = executors_python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    if shutil.which(python) is None:
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        logger.warning(
            "The executors' Python, %s, is not on this machine: Spark starts the tasks that read and write "
            "topics with the driver's Python, %s. Install Python under the same path on the executors.",
            python,
            sys.executable,
        )
