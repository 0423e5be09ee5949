"""The handlers of requests: one file `kNN_….py` for each API key. Importing a file registers its handler in
`broker.requests.gate`, which calls the handler for each request. `broker.requests.served` has the supported versions.
In the table at the top of a file, each line is a version and what that version adds."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys

from jesenska.wire.registry import modules_by_key

logger = logging.getLogger(__name__)

#: The pause between the imports of two handlers, so that requests are served in between.
_PAUSE_SECONDS = 0.02

_MODULES = modules_by_key(__name__, __path__)


def load(key: int) -> None:
    """Imports the handler of an API key. Raises KeyError if there is none."""
    importlib.import_module(_MODULES[key])


def all_keys() -> list[int]:
    """Returns the API keys that have a handler."""
    return list(_MODULES)


async def load_all() -> None:
    """Imports every handler, with pauses in which requests are served. All handlers are imported soon after the start:
    the package's files may be replaced while a broker runs, and a broker must not mix two releases."""
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
