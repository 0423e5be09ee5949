"""The gate checks each request when it arrives (in), and counts it when its answer is sent (out).

    in     checks that the API key is served in this version, that header and body can be read, and that the body names
           no more elements than can exist
    out    counts requests, the time in each stage, and bytes

`broker.requests.served` lists the API keys and versions that are served; ApiVersions announces exactly these. The file
of a handler is imported at the first request with its key, if it has not been imported before. It registers the
handler here (`handles`). Unknown keys, unsupported versions and malformed requests raise an exception, and the
connection is closed, which tells old clients that the broker does not support the version. The exception is
ApiVersions, which is answered UNSUPPORTED_VERSION in the format of version 0.

The time of each request is taken at the same points as in Kafka: frame read, handler begins, handler ends, answer
ready, last byte written. `Stages` adds up the times by API.

The user is authenticated before the gate is called (`authentication`). Rights and quotas are checked afterwards
(`connection`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from jesenska.base.errors import ErrorCode
from jesenska.base.limits import CREATION_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from jesenska.broker import handlers
from jesenska.broker.requests.served import VERSIONS
from jesenska.broker.requests.unserved_log import UnservedRequests
from jesenska.wire.codec import MalformedMessageError, decoder
from jesenska.wire.headers import FIXED, read_client_id, skip_header_tags
from jesenska.wire.language import Message
from jesenska.wire.messages.k18_api_versions import ApiVersionsResponse, ApiVersionsResponseApiKey
from jesenska.wire.registry import API_VERSIONS, APIS, Api

#: A handler, called with the parts of its family, the request and its context. `connection` lists its possible
#: results.
Handler = Callable[[Any, Any, Any], Any]
H = TypeVar("H", bound=Handler)

#: Requests that describe partitions with their replicas: CreateTopics, CreatePartitions, AlterPartitionReassignments,
#: and the controller's requests to brokers.
_DESCRIBING: Final = frozenset({4, 5, 6, 19, 37, 45})
#: The API key of ControlledShutdown, whose version 0 has a header without a client id.
_WITHOUT_CLIENT_ID: Final = 7
#: The size in bytes of key, version and correlation id. The client id follows them.
_HEADER_MIN_BYTES: Final = 8


class Served:
    """A registered handler, the versions that it serves, and its family (the class of the broker's parts that it
    gets)."""

    __slots__ = ("api", "family", "handler", "keeps", "max_version", "min_version")

    def __init__(self, api: Api, handler: Handler, family: type, min_version: int, max_version: int) -> None:
        #: True if the handler reads the request after it has returned, so the request's bytes must be its own: the
        #: buffer of a connection then has bytes of other requests.
        self.keeps = inspect.iscoroutinefunction(handler)
        self.api, self.handler, self.family, self.min_version, self.max_version = (
            api,
            handler,
            family,
            min_version,
            max_version,
        )


#: The imported handlers by API key. Importing a handler's file adds it.
_HANDLERS: Final[dict[int, Served]] = {}


def handles(request: type[Message], family: type) -> Callable[[H], H]:
    """Registers the decorated function as the handler of a request. The handler gets the parts of this family
    (`broker.requests.families`) as its first argument."""

    def register(handler: H) -> H:
        api = APIS[request.api_key]
        low, high = VERSIONS[api.key]
        if not (api.min_version <= low <= high <= api.max_version):
            raise ValueError(f"{api.name} {low}-{high} is not in the wire room ({api.min_version}-{api.max_version})")
        _HANDLERS[api.key] = Served(api, handler, family, low, high)
        return handler

    return register


def served_by(key: int) -> Served | None:
    """Returns the handler of an API key with its versions, or None if the key is not served."""
    found = _HANDLERS.get(key)
    if found is None and key in VERSIONS:
        handlers.load(key)
        found = _HANDLERS[key]
    return found


class Stages:
    """The total time, in seconds, that the requests of one API spent in each stage."""

    __slots__ = ("count", "local", "queue", "remote", "response_bytes", "send")

    def __init__(self) -> None:
        self.count = 0
        self.queue = 0.0
        self.local = 0.0
        self.remote = 0.0
        self.send = 0.0
        self.response_bytes = 0


class UnknownApiVersionsError(Exception):
    """Raised for ApiVersions in a version that is too new for this broker. The answer, in version 0, contains the
    supported versions of this key."""

    def __init__(self, correlation_id: int) -> None:
        super().__init__(correlation_id)
        self.correlation_id = correlation_id


class Gate:
    """The gate of one broker. `partition_count` returns the number of existing partitions: a request may name all
    partitions, and some more."""

    def __init__(self, partition_count: Callable[[], int]) -> None:
        self._partition_count = partition_count
        self.stages: dict[int, Stages] = {key: Stages() for key in VERSIONS}
        self.unserved = UnservedRequests()
        low, high = VERSIONS[API_VERSIONS]
        own_range = ApiVersionsResponseApiKey(api_key=API_VERSIONS, min_version=low, max_version=high)
        #: The answer to ApiVersions in an unsupported version. It contains the supported versions of this key, with
        #: which the client asks again.
        self.api_versions_refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own_range])

    def admit(self, view: memoryview, client_host: str) -> tuple[Served, int, int, str | None, Any]:
        """Decodes a frame. Returns its handler, version, correlation id, client id and request. Raises
        MalformedMessageError, struct.error or UnicodeDecodeError if the connection must be closed. Raises
        UnknownApiVersionsError if the caller must answer `api_versions_refusal`."""
        limit = len(view)
        if limit < _HEADER_MIN_BYTES:
            raise MalformedMessageError("a request is shorter than its header")
        key, version, correlation_id = FIXED.unpack_from(view, 0)
        served = _HANDLERS.get(key) or served_by(key)
        if served is None:
            self.unserved.tell(client_host, view, key, version)
            raise MalformedMessageError(f"API key {key} is not served")
        if not served.min_version <= version <= served.max_version:
            if key == API_VERSIONS and version > served.max_version:
                raise UnknownApiVersionsError(correlation_id)
            self.unserved.tell(client_host, view, key, version)
            raise MalformedMessageError(f"{served.api.name} version {version} is not served")
        api = served.api
        if served.keeps:
            view = memoryview(bytes(view))
        if version == 0 and key == _WITHOUT_CLIENT_ID:
            client_id, position = None, _HEADER_MIN_BYTES
        else:
            client_id, position = read_client_id(view, _HEADER_MIN_BYTES, limit)
        if api.flexible is not None and version >= api.flexible:
            position = skip_header_tags(view, position, limit)
        if limit > REQUEST_ELEMENTS_MAX:
            # Only a request of this size can name too many elements, because each takes at least a byte.
            room = CREATION_ELEMENTS_MAX if key in _DESCRIBING else REQUEST_ELEMENTS_MAX
            request, position = decoder(api.request, version)(view, position, limit, room + self._partition_count())
        else:
            request, position = decoder(api.request, version)(view, position, limit)
        return served, version, correlation_id, client_id, request

    def left(
        self, key: int, received_at: float, begun_at: float, ended_at: float, ready_at: float, size_bytes: int
    ) -> Stages:
        """Counts a request whose answer is ready. `ended_at` is the time at which its handler returned, if the answer
        came later; 0.0 means that the answer was ready when the handler returned."""
        stages = self.stages[key]
        stages.count += 1
        stages.queue += begun_at - received_at
        stages.local += (ended_at or ready_at) - begun_at
        if ended_at:
            stages.remote += ready_at - ended_at
        stages.response_bytes += size_bytes
        return stages
