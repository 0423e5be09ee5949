"""Chooses between compiled modules and their Python source. The source is used if no compiler was available, or if
JESENSKA_PURE=1 is set. The variable is for debuggers, and for tests that compare the compiled modules with their
source. The file `compiled-modules` in the project's root lists the modules that are compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class _SourceFinder:
    """An import finder that finds the Python source of jesenska's modules before their compiled files."""

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
    """Returns true if the environment variable JESENSKA_PURE asks for Python source instead of compiled modules."""
    return os.environ.get("JESENSKA_PURE", "") not in ("", "0")


def use_source_only() -> None:
    """Makes all further imports of jesenska's modules load Python source. Modules that are already imported do not
    change."""
    sys.meta_path.insert(0, _SourceFinder())


def request_path_is_compiled() -> bool:
    """Returns true if jesenska's compiled modules are in use. Either all modules that are listed in `compiled-modules`
    are in use as compiled modules, or none of them."""
    return not str(import_module("jesenska.base.clock").__file__).endswith(".py")
