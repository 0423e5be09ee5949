"""Sending the functions of a program to Spark's workers.

A function is pickled by reference: its module and its name, which the worker imports. A worker can import modules that
are installed where it runs, but not a module beside the program. So functions of such a module are sent by value
(cloudpickle has that for whole modules): the code, and the objects that it names.

    by reference    the standard library, installed modules (site-packages), extension modules, jesenska and PySpark
    by value        every other module that the program has imported

A function that names something that cannot be pickled, such as a lock of its module, cannot be sent by value. Then all
are sent by reference, as a worker may still have the module: from its working directory, or from PYTHONPATH.
"""

from __future__ import annotations

import pickle
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from jesenska.pipeline.streams.errors import StreamsError

_INSTALLED = ("site-packages", "dist-packages")
_WORKERS_HAVE = ("jesenska", "pyspark_jesenska", "pyspark", "py4j")


def pickled(value: Any) -> bytes:
    """Returns the value with the functions and classes of the program. StreamsError if that is not possible."""
    from pyspark import cloudpickle

    try:
        with _by_value():
            found: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception:
        try:
            found = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise StreamsError(
                f"the topology cannot be sent to Spark's tasks, since something that a function of it uses cannot be "
                f"pickled ({error}): "
                "make connections and locks within the function, or in a processor's init."
            ) from error
    return found


def unpickled(sent: bytes) -> Any:
    """Returns the pickled value, in a worker. StreamsError if it needs a module that the worker does not have."""
    try:
        return pickle.loads(sent)  # noqa: S301  what the program itself has sent
    except ModuleNotFoundError as error:
        raise StreamsError(
            f"Spark's workers cannot import {error.name}, which a function of the topology uses: install it where "
            f"they run, or send it with the setting "
            "spark.submit.pyFiles."
        ) from error


@contextmanager
def _by_value() -> Iterator[None]:
    """In this block, cloudpickle pickles modules by value that workers may not have."""
    from pyspark import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    mine = [
        module for name, module in list(sys.modules.items()) if name not in known and _is_the_programs(name, module)
    ]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_the_programs(name: str, module: ModuleType) -> bool:
    """True if the module is not installed."""
    file = getattr(module, "__file__", None)
    if (
        name == "__main__"
        or not file
        or name.partition(".")[0] in _WORKERS_HAVE
        or getattr(module, "__name__", None) != name
    ):
        return False
    path = Path(file)
    library = Path(sysconfig.get_path("stdlib"))
    return (
        path.suffix == ".py" and not path.is_relative_to(library) and not any(part in _INSTALLED for part in path.parts)
    )
