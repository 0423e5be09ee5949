"""The table of all APIs that the package `wire` can encode and decode, by key. A broker announces a subset of these
APIs (`broker.requests.served`).

A program uses few APIs, so the file of an API is imported when the API is first used."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jesenska.wire import messages
from jesenska.wire.language import REQUEST, RESPONSE, Message


class Api(NamedTuple):
    """An API: its request and response classes, their versions, and the first flexible version (KIP-482)."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible: int | None

    def request_header_version(self, version: int) -> int:
        """Returns the version of the request header: 2 for flexible versions of the API, else 1. Only
        ControlledShutdown version 0 has header version 0, which has no client id."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.flexible is not None and version >= self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Returns the version of the response header: 1 for flexible versions of the API, else 0. ApiVersions always
        has 0, so that a client can read the response even if its request had a version that the broker does not
        support."""
        return 1 if self.key != API_VERSIONS and self.flexible is not None and version >= self.flexible else 0


CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18
PRODUCE = 0


def modules_by_key(package: str, path: Iterable[str]) -> dict[int, str]:
    """Returns the names of a package's modules by API key, in the order of the keys. The package has one file per API,
    named `kNN_….py`."""
    names = sorted(module.name for module in pkgutil.iter_modules(path) if module.name.startswith("k"))
    return {int(name[1:].partition("_")[0]): f"{package}.{name}" for name in names}


class _Apis(Mapping[int, Api]):
    """A mapping from key to API, in the order of the keys. A single API is imported when it is looked up; iteration
    imports all APIs."""

    def __init__(self) -> None:
        self._modules = modules_by_key(messages.__name__, messages.__path__)
        self._found: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _api(key, self._modules[key])
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules


def _api(key: int, module: str) -> Api:
    declared = vars(importlib.import_module(module)).values()
    pair = {
        value.kind: value
        for value in declared
        if isinstance(value, type) and issubclass(value, Message) and value.api_key == key
    }
    request, response = pair[REQUEST], pair[RESPONSE]
    low, high = request.versions
    return Api(key, request.__name__.removesuffix("Request"), request, response, low, high, request.flexible)


#: Every API by its key.
APIS: Mapping[int, Api] = _Apis()
