"""Interactive queries over HTTP: every kind of store, limits, and requests that are refused."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.pipeline.streams import (
    Serdes,
    SessionWindows,
    SettingError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    Topology,
)
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.pipeline.streams_on_spark.queries.http_queries import HttpQueries, http_security
from jesenska.pipeline.streams_on_spark.queries.interactive_queries import parts_of, read_only_store
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, process
from tests.processes.broker.secured import AUTHORITY, certificate
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.word_count import settings, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stores() -> Topology:
    """One sub-topology with a store of each kind, and one for each serde that a key in a URL may have."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=Serdes.string(), value=Serdes.long())
    grouped = stream.group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows(10)).count(store="windows", retention=1000)
    grouped.windowed_by(SessionWindows(5)).count(store="sessions", retention=1000)
    for name, serde in {
        "longs": Serdes.long(),
        "json": Serdes.json(),
        "bytes": Serdes.bytes(),
        "own": Serde.of(bytes, bytes),
    }.items():
        builder.table(name, key=serde, value=Serdes.bytes(), store=name)
    return builder.build()


class State:
    """The stores after one micro-batch of each sub-topology."""

    def __init__(self, directory: Path) -> None:
        self.topology = stores()
        self.config = StreamsConfig({"application.id": "app"})
        self.directory = directory
        records = [
            *(
                RawRecord("in", number, key.encode(), bytes(8), at)
                for number, (key, at) in enumerate([("a", 0), ("b c/d", 3), ("a", 9), ("é", 25)])
            ),
            RawRecord("longs", 0, (-7).to_bytes(8, signed=True), b"l", 0),
            RawRecord("json", 0, b'{"x": 1}', b"j", 0),
            RawRecord("bytes", 0, b"\xff", b"b", 0),
            RawRecord("own", 0, b"o", b"o", 0),
        ]
        for number in range(len(self.topology.processors.sub_topologies())):
            work = Work.of(self.topology, number, self.config, {})
            topics = {topic for name in work.names for topic in getattr(work.processors.nodes[name], "topics", ())}
            process(work, 0, 0, [record for record in records if record.topic in topics], directory / str(number), 0)

    def queried_stores(self) -> Mapping[str, Store]:
        return self.topology.processors.stores

    def key_serde_of(self, store: Store) -> Serde:
        return store.key or self.config.key_serde

    def store(self, name: str) -> Any:
        spec = self.topology.processors.stores[name]
        sub_topologies = self.topology.processors.sub_topologies()
        number = next(
            number
            for number, names in enumerate(sub_topologies)
            if any(name in getattr(self.topology.processors.nodes[node], "stores", ()) for node in names)
        )
        return read_only_store(
            spec, lambda: parts_of(spec, self.topology.plan, self.config, self.directory / str(number)), False
        )

    def summary(self) -> dict[str, Any]:
        return {"application": "app", "state": "RUNNING"}

    def description(self) -> str:
        return self.topology.describe()


Answer = tuple[int, Any]


def get(address: str, path: str, method: str = "GET") -> Answer:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if response.headers.get_content_type() == "application/json" else body
    finally:
        connection.close()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    return State(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def address(state: State) -> Iterator[str]:
    queries = HttpQueries("127.0.0.1:0", state)
    yield queries.address
    queries.close()


def test_the_application_and_its_stores_are_told(address: str) -> None:
    assert get(address, "/") == (200, {"application": "app", "state": "RUNNING"})
    assert get(address, "/topology") == (200, {"topology": stores().describe()})
    status, listed = get(address, "/stores")
    assert (status, {store["name"]: store["kind"] for store in listed}) == (
        200,
        {
            "bytes": "key-value",
            "counts": "key-value",
            "json": "key-value",
            "longs": "key-value",
            "own": "key-value",
            "sessions": "session",
            "windows": "window",
        },
    )


def test_a_key_value_store_is_asked_by_key_and_by_range(address: str) -> None:
    assert get(address, "/stores/counts/a") == (200, {"key": "a", "value": 2})
    assert get(address, "/stores/counts/b%20c%2Fd") == (200, {"key": "b c/d", "value": 1})
    assert get(address, "/stores/counts/%C3%A9") == (200, {"key": "é", "value": 1})
    assert get(address, "/stores/counts/nobody")[0] == 404
    every = [{"key": "a", "value": 2}, {"key": "b c/d", "value": 1}, {"key": "é", "value": 1}]
    assert get(address, "/stores/counts") == (200, {"records": every, "more": False})
    assert get(address, "/stores/counts?from=b&to=c") == (200, {"records": every[1:2], "more": False})
    assert get(address, "/stores/counts?limit=2") == (200, {"records": every[:2], "more": True})
    assert get(address, "/stores/counts?limit=3") == (200, {"records": every, "more": False})


def test_windows_and_sessions_are_asked_by_key_and_by_time(address: str) -> None:
    assert get(address, "/stores/windows/a") == (200, {"records": [{"start": 0, "value": 2}], "more": False})
    assert get(address, "/stores/windows/a?from=1") == (200, {"records": [], "more": False})
    assert get(address, "/stores/windows?from=20&to=20") == (
        200,
        {"records": [{"key": "é", "start": 20, "end": 30, "value": 1}], "more": False},
    )
    assert get(address, "/stores/sessions/a") == (
        200,
        {
            "records": [{"key": "a", "start": 0, "end": 0, "value": 1}, {"key": "a", "start": 9, "end": 9, "value": 1}],
            "more": False,
        },
    )
    assert get(address, "/stores/sessions?limit=1")[1]["more"] is True


def test_a_key_is_written_as_its_serde_has_it(address: str) -> None:
    assert get(address, "/stores/longs/-7") == (200, {"key": -7, "value": "bA=="})
    assert get(address, "/stores/json/%7B%22x%22:1%7D") == (200, {"key": {"x": 1}, "value": "ag=="})
    assert get(address, "/stores/bytes/%2Fw%3D%3D") == (200, {"key": "/w==", "value": "Yg=="})
    for wrong in ("longs/x", "json/%7B", "bytes/%2F", "own/o", f"json/{'[' * 30_000}"):
        status, answer = get(address, f"/stores/{wrong}")
        assert (status, list(answer)) == (400, ["error"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/stores/nobody", 404),
        ("/stores/counts?limit=0", 400),
        ("/stores/counts?limit=100001", 400),
        ("/stores/counts?limit=" + "9" * 5000, 400),
        ("/stores/counts?form=a", 400),
        ("/stores/windows?from=-1", 400),
        ("/stores/counts?" + "from=a&" * 20, 400),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(address: str, path: str, status: int) -> None:
    found, answer = get(address, path)
    assert (found, list(answer)) == (status, ["error"])


def test_a_method_of_another_kind_of_store_is_answered_with_this_ones(state: State) -> None:
    with pytest.raises(AttributeError, match=r"ReadOnlyWindowStore has no get: write fetch\(key, start\)\."):
        state.store("windows").get("a")
    with pytest.raises(AttributeError, match=r"ReadOnlySessionStore has no get: write fetch\(key\)\."):
        state.store("sessions").get("a")


def test_nothing_can_be_changed(address: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert get(address, "/stores/counts/a", method)[0] == 501


def test_clients_that_say_nothing_do_not_keep_others_out_for_long(address: str) -> None:
    """Opens as many connections as are served at a time. The next one is closed at once, and when one ends there is
    room again."""
    host, _, port = address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(16)]
    try:
        with socket.create_connection((host, int(port)), timeout=20) as refused:
            assert refused.recv(1) == b""
        silent.pop().close()
        answers: set[int] = set()
        while 200 not in answers:
            try:
                answers.add(get(address, "/")[0])
            except (ConnectionError, http.client.HTTPException):
                pass  # the one that has gone is still counted
    finally:
        for one in silent:
            one.close()


def test_an_address_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    state, sentence = State(tmp_path), r"application.server is 127.0.0.1:\d+, where nothing can listen"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StreamsError, match=sentence):
        HttpQueries(f"127.0.0.1:{taken.getsockname()[1]}", state)
    with pytest.raises(SettingError, match="write host:port"):
        StreamsConfig({"application.server": "http://here:80"})


TOKEN = "a-token-of-the-test"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        ("Bearer \u00fc", 401),
        (None, 401),
    ],
)
def test_a_request_needs_the_token(state: State, header: str | None, status: int) -> None:
    queries = HttpQueries("127.0.0.1:0", state, http_security(StreamsConfig({"application.server.token": TOKEN})))
    try:
        connection = http.client.HTTPConnection(queries.address, timeout=20)
        connection.request("GET", "/stores", headers={} if header is None else {"Authorization": header})
        response = connection.getresponse()
        assert response.status == status
        assert response.headers["WWW-Authenticate"] == (None if status == 200 else "Bearer")
        assert TOKEN.encode() not in response.read()
        connection.close()
    finally:
        queries.close()


def _shown_certificate(address: str) -> bytes | None:
    """The certificate that the server shows, after a request over TLS."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    connection = http.client.HTTPSConnection(address, timeout=20, context=context)
    connection.connect()
    shown: bytes | None = connection.sock.getpeercert(binary_form=True)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()
    return shown


def test_queries_over_tls_and_a_new_certificate(state: State, tmp_path: Path) -> None:
    keys = tmp_path / "server.pem"
    keys.write_text(certificate("server", "127.0.0.1"))
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    config = StreamsConfig({f"application.server.{name}": value for name, value in settings.items()})
    queries = HttpQueries("127.0.0.1:0", state, http_security(config))
    try:
        first = _shown_certificate(queries.address)
        with pytest.raises((OSError, http.client.HTTPException)):
            get(queries.address, "/")
        keys.write_text(certificate("server", "127.0.0.1"))
        assert _shown_certificate(queries.address) != first
        keys.write_text("nothing")
        assert _shown_certificate(queries.address) != first
    finally:
        queries.close()


def test_a_key_store_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    config = StreamsConfig({"application.server.ssl.keystore.location": str(tmp_path / "missing.jks")})
    with pytest.raises(SettingError, match=r"the ssl. settings of application.server are not valid: .*missing"):
        http_security(config)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_an_application_is_asked_while_it_runs(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(), topics.create()
    topics.send(source, [b"one two", b"two"])
    config = {**settings(topics.bootstrap, tmp_path, f"asked-{source}"), "application.server": "127.0.0.1:0"}
    streams = KafkaStreams(word_count(source, sink), config, spark=spark)
    with streams:
        streams.process_available()
        address = streams.application_server
        assert address is not None
        assert get(address, "/") == (200, {"application": f"asked-{source}", "state": "RUNNING"})
        assert get(address, "/stores/counts/two") == (200, {"key": "two", "value": 2})
    with pytest.raises(OSError, match="refused"):
        get(address, "/")
