"""The compiled record codec and its pure twin, one put in the place of the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from jesenska.records import codec
from jesenska.records.pure import _pcolumns, _pcompaction, _pmessages, _precords, _pscan

COMPILED: ModuleType | None
try:
    COMPILED = import_module("jesenska.records._crecords")
except ImportError:
    COMPILED = None

TWINS = [
    pytest.param("compiled", marks=pytest.mark.skipif(COMPILED is None, reason="the compiled codec is not built")),
    "pure",
]
#: The twins that are there, for tests that compare them.
BUILT = ["pure"] if COMPILED is None else ["compiled", "pure"]


def _function(twin: str, name: str) -> Any:
    if twin == "compiled":
        return getattr(COMPILED, name)
    return next(
        getattr(module, name)
        for module in (_precords, _pcolumns, _pscan, _pmessages, _pcompaction)
        if hasattr(module, name)
    )


@contextmanager
def using(twin: str) -> Iterator[None]:
    """Makes everything in `jesenska.records` use this twin during the block."""
    names = [name for name in codec.__all__ if name != "COMPILED"]
    before = {name: getattr(codec, name) for name in names}
    try:
        for name in names:
            setattr(codec, name, _function(twin, name))
        yield
    finally:
        for name, value in before.items():
            setattr(codec, name, value)
