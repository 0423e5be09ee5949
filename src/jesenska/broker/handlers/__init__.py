"""One file per API key, `kNN_….py`: a handler, which registers itself at the gate. `broker.requests.served` has the
versions."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys

from jesenska.wire.registry import modules_by_key

logger = logging.getLogger(__name__)

#: The pause between the imports of two handlers, so that requests are served meanwhile.
_PAUSE_SECONDS = 0.02

_MODULES = modules_by_key(__name__, __path__)


def load(key: int) -> None:
    """Imports the handler of an API key. Raises KeyError if there is none."""
    importlib.import_module(_MODULES[key])


def all_keys() -> list[int]:
    """Returns the API keys that have a handler."""
    return list(_MODULES)


async def load_all() -> None:
    """Imports every handler, one at a time between other work: the files of a package may be replaced while a broker
    runs, and a broker must not mix two releases."""
    for key in all_keys():
        if _MODULES[key] in sys.modules:
            continue
        await asyncio.sleep(_PAUSE_SECONDS)
        try:
            load(key)
        except (ImportError, OSError) as error:
            logger.warning(
                "the handler of API key %d cannot be imported now; the first request will try again: %s", key, error
            )
