"""Every API that the wire room can speak, by key. What a broker announces is a choice of these (`broker.gate`), never
more."""

from __future__ import annotations

import importlib
import pkgutil
from typing import NamedTuple

from jesenska.wire import messages
from jesenska.wire.language import REQUEST, RESPONSE, Message


class Api(NamedTuple):
    """A request and its response, with the versions of both and the first flexible one."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible: int | None

    def request_header_version(self, version: int) -> int:
        """2 with flexible versions, 1 before; version 0 of ControlledShutdown alone comes without a client id."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.flexible is not None and version >= self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Version 0 for every answer to ApiVersions, so that a client that asked too high can still read it."""
        return 1 if self.key != API_VERSIONS and self.flexible is not None and version >= self.flexible else 0


CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18


def _load() -> dict[int, Api]:
    found: dict[int, dict[str, type[Message]]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        if not module.name.startswith("k"):
            continue
        for value in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and value.kind in (REQUEST, RESPONSE):
                found.setdefault(value.api_key, {})[value.kind] = value
    apis = {}
    for key, pair in sorted(found.items()):
        request, response = pair[REQUEST], pair[RESPONSE]
        low, high = request.versions
        apis[key] = Api(key, request.__name__.removesuffix("Request"), request, response, low, high, request.flexible)
    return apis


#: Every API by its key.
APIS: dict[int, Api] = _load()
