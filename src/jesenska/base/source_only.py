"""Chooses whether the modules of the request path run compiled or as source (no compiler was there, or
JESENSKA_PURE=1, which is for tests that compare the two and for debuggers). The file `compiled-modules` in the
project's root lists them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class _SourceFinder:
    """Finds the source of jesenska's modules before their compiled files are found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("jesenska."):
            return None
        for directory in path or ():
            spec = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname, target)
            if spec is not None:
                return spec
        return None


def source_is_asked_for() -> bool:
    """True if JESENSKA_PURE in the environment says that no compiled code is to be used."""
    return os.environ.get("JESENSKA_PURE", "") not in ("", "0")


def use_source_only() -> None:
    """From here on modules of jesenska are imported from source; those imported already stay what they are."""
    sys.meta_path.insert(0, _SourceFinder())


def request_path_is_compiled() -> bool:
    """True if the modules of the request path run compiled: all of them do, or none."""
    return not str(import_module("jesenska.base.clock").__file__).endswith(".py")
