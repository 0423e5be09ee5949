"""Pickles the functions of the user's program for Spark's workers.

By default a function is pickled by reference: its module and its name, which the worker imports. A worker can import
installed modules, but not a module in the program's own directory. So functions of such a module are sent by value:
the code, and the objects that the code uses. cloudpickle can do this for whole modules.

    by reference    the standard library, installed modules (site-packages), extension modules, jesenska and PySpark
    by value        every other module that the program has imported

A function that uses an object that cannot be pickled, such as a lock of its module, cannot be sent by value. Then all
functions are sent by reference: a worker may still find the module in its working directory, or in PYTHONPATH.
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
    """Returns the pickled value, including functions and classes of the user's program. Raises StreamsError if it
    cannot be pickled."""
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
    """Returns the value from the bytes that `pickled` returned. Called in a worker. Raises StreamsError if the value
    needs a module that the worker cannot import."""
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
    """Makes cloudpickle pickle by value, within the `with` block, all modules that workers may not have."""
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
    """Returns True if the module belongs to the user's program: it is not installed, and not part of the standard
    library."""
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
