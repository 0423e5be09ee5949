"""Every client writes with each codec that it knows, and every client reads what every other has written.

All topics are written first, each by one client in one codec; then each client reads all of them in one run. A cell of
the matrix is a reader and a topic: the same keys and values in the same order, and times and headers where the formats
of both have them. A reader that does not know zstd must be told so.

JESENSKA_MATRIX=3.9.1 runs it against Apache Kafka of that release, to compare.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

from jesenska.base.errors import ErrorCode
from jesenska.base.regions import FileRegion
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.records.batch import iter_headers
from jesenska.records.header import Codec, read_header
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from tests.conformance.conftest import refuse
from tests.conformance.every_client import (
    CLIENTS,
    READERS,
    WRITTEN,
    Client,
    Console,
    Kcat,
    Read,
    Talker,
    now_ms,
    topic_of,
)
from tests.peers.apache_kafka import ApacheKafka, free_port
from tests.peers.clients import MissingError
from tests.peers.python.conversation import Row
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]

#: The topic of which old consumers are refused the codec.
_IN_ZSTD = "jesenska.zstd"
#: So many clients at a time.
_SIDE_BY_SIDE = 2
Outcome = TypeVar("Outcome")


class Matrix:
    """Everything written and read, once; what went wrong for a client is kept for its cells."""

    def __init__(self, bootstrap: str, tree: str, written: Collection[tuple[Client, str]]) -> None:
        self.bootstrap = bootstrap
        self._tree = tree
        self.begun_ms = now_ms()
        self._wrong: dict[str, BaseException] = {}
        self._started: dict[str, Talker | Kcat | Console] = {}
        self._rows = {
            topic_of(writer, codec): writer.rows(topic_of(writer, codec), self.begun_ms) for writer, codec in written
        }
        self._written: dict[str, str | None] = {}
        self._ends: dict[str, int] = {}
        self._read: dict[str, dict[str, Read]] = {}
        self.ended_ms = 0

    def run(self) -> None:
        asyncio.run(self._create())
        with ExitStack() as running:
            self._each(CLIENTS, lambda client: self._start(client, running))
            self._each(CLIENTS, self._write)
            self.ended_ms = now_ms()
            self._look_at_ends()
            self._each(READERS, self._read_all)

    async def _create(self) -> None:
        cluster = Cluster(self.bootstrap)
        try:
            failed = await Admin(cluster).create_topics([NewTopic(topic, 1, 1) for topic in self._rows])
            assert not [error for error in failed.values() if error], failed
        finally:
            await cluster.close()

    def _each(self, clients: tuple[Client, ...], work: Callable[[Client], None]) -> None:
        def guarded(client: Client) -> None:
            if client.name not in self._wrong:
                try:
                    work(client)
                except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
                    self._wrong[client.name] = error

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            list(pool.map(guarded, clients))

    def _start(self, client: Client, running: ExitStack) -> None:
        started = self._started[client.name] = client.start()
        running.callback(started.close)
        if isinstance(started, Console):
            started.tree = self._tree

    def _write(self, client: Client) -> None:
        topics = {topic: codec for codec in client.codecs if (topic := topic_of(client, codec)) in self._rows}
        asked = [(topic, codec, self._rows[topic]) for topic, codec in topics.items()]
        self._written |= self._started[client.name].write(self.bootstrap, asked)

    def _look_at_ends(self) -> None:
        with RawConnection(self.bootstrap) as connection:
            for topic in self._rows:
                asked = ListOffsetsRequestTopic(
                    name=topic, partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
                )
                (part,) = (
                    connection.ask(ListOffsetsRequest(topics=[asked]), 1, ListOffsetsResponse).topics[0].partitions
                )
                self._ends[topic] = part.offset

    def _read_all(self, client: Client) -> None:
        """What was written wrong is left out: who reads it would wait."""
        right = [(topic, len(rows)) for topic, rows in self._rows.items() if len(rows) == self._ends[topic]]
        self._read[client.name] = self._started[client.name].read(self.bootstrap, right)

    def _look(self, client: Client) -> None:
        error = self._wrong.get(client.name)
        if isinstance(error, MissingError):
            refuse([str(error)])
        if error is not None:
            raise error

    def written(self, writer: Client, codec: str) -> list[Row]:
        """What stands in a topic."""
        self._look(writer)
        topic = topic_of(writer, codec)
        assert self._written[topic] is None
        assert self._ends[topic] == len(self._rows[topic])
        return self._rows[topic]

    def read(self, reader: Client, topic: str) -> Read:
        self._look(reader)
        return self._read[reader.name][topic]


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    written = _asked_for(request.session.items)
    directory = tmp_path_factory.mktemp("matrix")
    release = os.environ.get("JESENSKA_MATRIX")
    if release:
        with ApacheKafka(release, directory, zookeeper=True) as kafka:
            found = Matrix(kafka.bootstrap, str(kafka.zookeeper_connect), written)
            found.run()
            yield found
        return
    tree = f"127.0.0.1:{free_port()}"
    with BrokerProcess(directory / "data", settings={"jesenska.zookeeper.listener": tree}) as broker:
        found = Matrix(broker.bootstrap, tree, written)
        found.run()
        yield found


def _asked_for(items: Sequence[pytest.Item]) -> list[tuple[Client, str]]:
    """The topics that the tests of this run read, and those that each of them needs."""
    cells = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    asked = {(cell["writer"], cell["codec"]) for cell in cells if "writer" in cell and "codec" in cell}
    return [
        (writer, codec) for writer, codec in WRITTEN if (writer, codec) in asked or topic_of(writer, codec) == _IN_ZSTD
    ]


def _in_two_codecs() -> Iterator[ParameterSet]:
    """Every client with every codec that it knows. Two of each, other ones from client to client, are not the
    hour's."""
    for number, client in enumerate(CLIENTS):
        count = len(client.codecs)
        two = {client.codecs[number % count], client.codecs[(number + 1 + number // count) % count]}
        for codec in client.codecs:
            yield pytest.param(
                client, codec, marks=() if codec in two else pytest.mark.hour("tests/conformance/every_client.py")
            )


_CELLS = list(_in_two_codecs())


def _name(value: object) -> str:
    return value.name if isinstance(value, Client) else str(value)


@pytest.mark.parametrize(("writer", "codec"), _CELLS, ids=_name)
def test_every_record_is_written_once_in_the_codec(matrix: Matrix, writer: Client, codec: str) -> None:
    matrix.written(writer, codec)
    with RawConnection(matrix.bootstrap) as connection:
        records = _records(_fetch(connection, topic_of(writer, codec), 4))
    found = {Codec(header.attributes & 7).name.lower() for _, header in iter_headers(records)}
    assert codec in found
    assert found <= {codec, "none"}, "some send a batch as it is where compressing makes it no smaller"


@pytest.mark.parametrize(("writer", "codec"), _CELLS, ids=_name)
@pytest.mark.parametrize("reader", READERS, ids=_name)
def test_each_client_reads_what_each_has_written(matrix: Matrix, reader: Client, writer: Client, codec: str) -> None:
    rows = matrix.written(writer, codec)
    found, error = matrix.read(reader, topic_of(writer, codec))
    if codec == "zstd" and reader.without_zstd is not None:
        assert found == []
        assert error is not None
        assert re.search(reader.without_zstd, error), error
        return
    assert error is None
    assert [(row.key, row.value) for row in found] == [
        (_shown(row.key, reader), _shown(row.value, reader)) for row in rows
    ]
    assert [row.headers for row in found] == [_headers(row, reader, writer) for row in rows]
    for row, given in zip(found, rows, strict=True):
        if not reader.shows_times:
            assert row.timestamp_ms is None
        elif writer.form == 0:
            assert row.timestamp_ms == -1
        elif given.timestamp_ms is not None:
            assert row.timestamp_ms == given.timestamp_ms
        else:
            assert row.timestamp_ms is not None
            assert matrix.begun_ms <= row.timestamp_ms <= matrix.ended_ms


def _shown(data: bytes | None, reader: Client) -> bytes | None:
    return b"null" if data is None and not reader.shows_null else data


def _headers(row: Row, reader: Client, writer: Client) -> list[tuple[str, bytes]] | None:
    if not reader.shows_headers:
        return None
    return row.headers if reader.form == writer.form == 2 else []


@pytest.mark.parametrize("version", range(13))
def test_zstd_is_refused_to_consumers_of_message_sets_and_sent_as_it_is_to_all_others(
    matrix: Matrix, version: int
) -> None:
    """Apache Kafka 3.9.1 does the same: from Fetch 4 on a batch goes out as it lies in the log, whether the consumer
    knows its codec or not."""
    with RawConnection(matrix.bootstrap) as connection:
        part = _fetch(connection, _IN_ZSTD, version)
    if version < 4:
        assert (part.error_code, _records(part)) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")
    else:
        assert part.error_code == ErrorCode.NONE
        assert Codec(read_header(_records(part)).attributes & 7) == Codec.ZSTD


def _fetch(connection: RawConnection, topic: str, version: int) -> FetchResponsePartition:
    part = FetchRequestPartition(partition=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    return connection.ask(request, version, FetchResponse).responses[0].partitions[0]


def _records(part: FetchResponsePartition) -> bytes:
    assert not isinstance(part.records, FileRegion)
    return bytes(part.records or b"")
