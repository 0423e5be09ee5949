"""One file per API key: the listing is what this broker serves. Each file registers its handler; ApiVersions announces
what is registered."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Imports every handler of this folder, which registers it."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("k"):
            importlib.import_module(f"{__name__}.{module.name}")
