"""Rewords errors for users of Spark: an error is one sentence without a Python traceback, and its remedy names Spark's
options.

A failing worker writes its traceback for Spark, and Spark prints it before the message. The traceback does not help
with an error that jesenska explains in a sentence, so it is hidden by a switch of PySpark. The switch stays set, but
the worker process ends with this error anyway. Error messages of the client name the flags of Kafka's tools; here they
are replaced by the matching options of Spark."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from jesenska.base.errors import JesenskaError
from jesenska.base.source_only import source_is_asked_for
from jesenska.records import codec

logger = logging.getLogger(__name__)

#: PySpark's own environment variable. If it is set when PySpark writes an error for Spark, the traceback is left out.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_REMEDIES = (
    (
        re.compile(r"create it with kafka-topics --create --topic \S+?\.(?=\s|$)"),
        "create it, or name another one in the option {topic}.",
    ),
    (re.compile(r"name another with --bootstrap-server"), "name another in the option kafka.bootstrap.servers"),
    (re.compile(r"give --bootstrap-server host:port"), "set the option kafka.bootstrap.servers to host:port"),
)


@contextmanager
def plainly(topic_option: str) -> Iterator[None]:
    """Catches a JesenskaError that the `with` block raises, and raises it again with a message for Spark's users.
    `topic_option` is the Spark option that names the topic."""
    try:
        yield
    except JesenskaError as error:
        error.args = (in_sparks_words(str(error), topic_option), *error.args[1:])
        if _is_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def in_sparks_words(sentence: str, topic_option: str) -> str:
    """Returns the error message with Spark's options in place of the flags of Kafka's tools."""
    for pattern, remedy in _REMEDIES:
        sentence = pattern.sub(remedy.format(topic=topic_option), sentence)
    return sentence


@cache
def say_if_slow() -> None:
    """Logs a warning, once per process, if the compiled record codec is missing. It is missing if jesenska was sent
    with --py-files, since these send only the source."""
    if not codec.COMPILED and not source_is_asked_for():
        logger.warning(
            "jesenska was installed on %s without its compiled modules, so reading and writing topics takes many "
            "times longer: install its wheel there, and do "
            "not send its source with --py-files.",
            socket.gethostname(),
        )


def _is_worker() -> bool:
    """Returns True in a process that Spark started, such as `python -m pyspark.daemon`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
