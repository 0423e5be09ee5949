"""Serves interactive queries over HTTP, at the address of application.server. Responses are JSON. Requests cannot
change the stores. With a key store (`application.server.ssl.keystore.…`) the server has TLS. With a token
(`application.server.token`) each request must have the header `Authorization: Bearer TOKEN`; other requests get status
401. With neither, every client that reaches the address can read the stores.

    GET /                               the application and its state
    GET /topology                       the topology, as describe() shows it
    GET /stores                         the stores that can be queried
    GET /stores/NAME/KEY                key-value: the key's value; status 404 if the key has no value
                                        window: the key's windows that begin from=MS to=MS; session: its sessions
    GET /stores/NAME                    key-value: keys from=KEY to=KEY, all keys without these options
                                        window: windows of all keys that begin from=MS to=MS; session: all sessions

A key is percent-encoded text: a string unchanged, a number in digits, a JSON key as JSON, bytes in base64. Bytes in
responses are also in base64. At most `limit` records are returned, by default 1,000; `more` is true if the store has
more records."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from jesenska.base.errors import InvalidConfigError, JesenskaError
from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.records import Windowed
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams_on_spark.queries.interactive_queries import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
)
from jesenska.security.tls import TlsContexts, tls_settings

logger = logging.getLogger(__name__)

_LIMIT, _LIMIT_MAX = 1_000, 100_000
_REQUESTS_AT_A_TIME = 16
_IDLE_SECONDS = 10.0
_TIME_MAX = 2**63 - 1
_KINDS = ("key-value", "window", "session")


class Application(Protocol):
    """The application whose stores are queried."""

    def queried_stores(self) -> Mapping[str, Store]:
        """Returns the application's stores by name."""

    def key_serde_of(self, store: Store) -> Serde:
        """Returns the serde of a store's keys."""

    def store(self, name: str) -> Any:
        """Returns the read-only store of this name."""

    def summary(self) -> dict[str, Any]:
        """Returns the application's id and state, for the path /."""

    def description(self) -> str:
        """Returns the text of `Topology.describe()`."""


class _RefusedError(Exception):
    """The error for a request that is refused: an HTTP status and a message."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpSecurity:
    """The protection of the HTTP server. `contexts` is None without TLS, `token` is None if clients need no token."""

    contexts: TlsContexts | None = None
    token: str | None = field(default=None, repr=False)


def http_security(config: StreamsConfig) -> HttpSecurity:
    """Returns the protection that an application's settings ask for. Raises SettingError if the key store or the trust
    store cannot be used."""
    prefix = "application.server."
    names = {name.removeprefix(prefix) for name in config.values if name.startswith(f"{prefix}ssl.")}
    if not names:
        return HttpSecurity(None, config["application.server.token"])
    settings = tls_settings(lambda name: config.values.get(prefix + name))
    try:
        contexts = TlsContexts(
            settings,
            lambda sentence: logger.error(
                "The changed certificate is not used, and the old one stays in use: %s", sentence
            ),
        )
    except InvalidConfigError as error:
        raise SettingError(f"the ssl. settings of application.server are not valid: {error}") from error
    return HttpSecurity(contexts, config["application.server.token"])


class HttpQueries:
    """The HTTP server for interactive queries. It listens from its creation until `close`. Raises StreamsError if the
    address cannot be used."""

    def __init__(self, address: str, application: Application, security: HttpSecurity = HttpSecurity()) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), application, security)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such port"
            raise StreamsError(
                f"application.server is {address}, where nothing can listen ({reason}): set another host:port of "
                f"this machine."
            ) from error
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="interactive queries", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], application: Application, security: HttpSecurity) -> None:
        self.application = application
        self.security = security
        self._free = threading.BoundedSemaphore(_REQUESTS_AT_A_TIME)
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a new thread. Closes it at once if 16 connections are being served already."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            secured = self._secured(request, client_address)
            if secured is not None:
                super().process_request_thread(secured, client_address)
        finally:
            self._free.release()

    def _secured(self, request: Any, client_address: Any) -> Any:
        """Returns the connection, after the TLS handshake if the server has TLS. Closes the connection and returns
        None if the handshake fails, or does not end in time."""
        contexts = self.security.contexts
        if contexts is None:
            return request
        contexts.look()
        request.settimeout(_IDLE_SECONDS)
        try:
            return contexts.current().wrap_socket(request, server_side=True)
        except (OSError, ValueError):
            self.handle_error(request, client_address)
            self.shutdown_request(request)
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs an error of a connection only as a debug message. Clients may disconnect, or send something that is not
        HTTP."""
        logger.debug("A query over HTTP has failed.", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = _IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        try:
            self._check_token()
            status, answer = HTTPStatus.OK, _answer(self.server.application, self.path)
        except _RefusedError as error:
            status, answer = error.status, {"error": str(error)}
        except JesenskaError as error:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except Exception:
            logger.exception("A query over HTTP has failed.")
            status, answer = (
                HTTPStatus.INTERNAL_SERVER_ERROR,
                {"error": "the query has failed: the application's log says why."},
            )
        body = json.dumps(answer, ensure_ascii=False, default=_as_json, separators=(",", ":")).encode()
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _check_token(self) -> None:
        """Raises _RefusedError if the server has a token, and the request does not have the same one."""
        token = self.server.security.token
        if token is None:
            return
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise _RefusedError(HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN.")

    def version_string(self) -> str:
        """Returns the value of the Server header."""
        return "jesenska"

    def log_message(self, format: str, *arguments: Any) -> None:
        logger.debug(format, *arguments)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The part of a URL after /stores/NAME: the key, and the options of the query string."""

    key: str | None
    options: Mapping[str, str]

    @property
    def limit(self) -> int:
        return self.number("limit", _LIMIT, 1, _LIMIT_MAX)

    def number(self, name: str, default: int, lowest: int, highest: int) -> int:
        text = self.options.get(name)
        if text is None:
            return default
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or not lowest <= int(text) <= highest:
            raise _RefusedError(
                HTTPStatus.BAD_REQUEST, f"{name} is {text[:50]!r}: give a whole number from {lowest} to {highest}."
            )
        return int(text)

    @property
    def times(self) -> tuple[int, int]:
        return self.number("from", 0, 0, _TIME_MAX), self.number("to", _TIME_MAX, 0, _TIME_MAX)


def _answer(application: Application, target: str) -> Any:
    """Returns the response to a request for this path. Raises _RefusedError if the path is unknown, or if the key has
    no value."""
    try:
        url = urlsplit(target)
        options = dict(parse_qsl(url.query, keep_blank_values=True, max_num_fields=10))
    except ValueError as error:
        raise _RefusedError(
            HTTPStatus.BAD_REQUEST, "the path cannot be read: ask for /stores or /stores/NAME/KEY."
        ) from error
    # A key may be empty, and may contain an encoded slash.
    steps = [unquote(step) for step in url.path.removeprefix("/").split("/", 2)]
    match steps:
        case [""]:
            return application.summary()
        case ["topology"]:
            return {"topology": application.description()}
        case ["stores"] | ["stores", ""]:
            return [{"name": name, "kind": store.kind} for name, store in sorted(_stores(application).items())]
        case ["stores", name, *key]:
            if strange := sorted(options.keys() - {"from", "to", "limit"}):
                raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{strange[0]} is not known: there are from, to and limit.")
            return _of_store(application, name, _Asked(key[0] if key else None, options))
    raise _RefusedError(HTTPStatus.NOT_FOUND, "there is nothing here: ask for /stores or /stores/NAME/KEY.")


def _stores(application: Application) -> dict[str, Store]:
    return {name: store for name, store in application.queried_stores().items() if store.kind in _KINDS}


def _of_store(application: Application, name: str, asked: _Asked) -> Any:
    known = _stores(application)
    if name not in known:
        raise _RefusedError(HTTPStatus.NOT_FOUND, f"there is no store {name}: /stores lists those that there are.")
    serde = application.key_serde_of(known[name])
    store, limit = application.store(name), asked.limit
    key = None if asked.key is None else _key(asked.key, serde)
    if isinstance(store, ReadOnlyKeyValueStore):
        if asked.key is not None:
            found = store.get(key)
            if found is None:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "the key has no value.")
            return {"key": key, "value": found}
        first, last = (_key(asked.options[side], serde) if side in asked.options else None for side in ("from", "to"))
        records: Iterator[Any] = iter(store.range(first, last, limit=limit + 1))
    elif isinstance(store, ReadOnlyWindowStore):
        if asked.key is not None:
            records = (
                {"start": start, "value": value} for start, value in store.fetch(key, *asked.times, limit=limit + 1)
            )
        else:
            records = iter(store.fetch_all(*asked.times, limit=limit + 1))
    else:
        assert isinstance(store, ReadOnlySessionStore)
        records = iter(store.fetch(key, limit=limit + 1) if asked.key is not None else store.all(limit=limit + 1))
    given = [record if isinstance(record, dict) else _record(*record) for record in records]
    return {"records": given[:limit], "more": len(given) > limit}


def _record(key: Any, value: Any) -> dict[str, Any]:
    if isinstance(key, Windowed):
        return {"key": key.key, "start": key.window.start, "end": key.window.end, "value": value}
    return {"key": key, "value": value}


def _key(text: str, serde: Serde) -> Any:
    """Returns the key that the text in a URL represents."""
    parse = _PARSERS.get(type(serde))
    if parse is None:
        raise _RefusedError(
            HTTPStatus.BAD_REQUEST, "the keys of this store cannot be written in a URL: ask with KafkaStreams.store."
        )
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        raise _RefusedError(
            HTTPStatus.BAD_REQUEST,
            f"{text[:50]!r} is not a key of this store: write a key that the store's key serde can have.",
        ) from error


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


#: The function that parses a key's text, by the type of the key's serde.
_PARSERS: dict[type[Serde], Callable[[str], Any]] = {
    type(Serdes.string()): str,
    type(Serdes.long()): int,  # and that of int
    type(Serdes.double()): float,
    type(Serdes.json()): json.loads,
    type(Serdes.bytes()): _decoded,
}


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if hasattr(value, "DESCRIPTOR"):  # a message of Protocol Buffers
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
