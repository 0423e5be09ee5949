"""Topics that keep their records in formats v0 and v1, as Apache Kafka 1.0.2 keeps them: read as rows like others, and
written without idempotence."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.connector.options import sink_options
from jesenska.pipeline.connector.sink import JesenskaWriter
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(240)]

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need("java", "mvn")
    with ApacheKafka("1.0.2", tmp_path_factory.mktemp("kafka"), heap="384m") as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def theirs(kafka: str) -> Iterator[Topics]:
    client = Topics(kafka)
    yield client
    client.close()


@pytest.fixture
def there(reading: Reading, kafka: str) -> Reading:
    return Reading(reading.spark, kafka)


@pytest.mark.parametrize(("release", "kind"), [("0.9.0", -1), ("0.10.2", 0)])
def test_records_of_old_formats_are_read(there: Reading, theirs: Topics, release: str, kind: int) -> None:
    topic = theirs.create(message_format_version=release)
    theirs.send(
        topic,
        [(b"v%d" % number, b"k", None, T0 + number) for number in range(100)],
        enable_idempotence=False,
        batch_size=300,
    )
    rows = there.batch(subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert [(row.offset, row.value, row.key, row.headers) for row in rows] == [
        (number, b"v%d" % number, b"k", []) for number in range(100)
    ]
    assert {row.timestampType for row in rows} == {kind}


def _write(bootstrap: str, topic: str, headers: bool = False, **options: str) -> None:
    """A task in this process."""
    fields = [StructField("value", StringType())]
    columns = {"value": pa.array(["a", "b"])}
    if headers:
        kind = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(kind)))
        columns["headers"] = pa.array(
            [[], [{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        **{name.replace("__", "."): text for name, text in options.items()},
    }
    JesenskaWriter(sink_options(settings), StructType(fields)).write(iter([pa.record_batch(columns)]))


@pytest.mark.parametrize("release", ["0.9.0", "0.10.2"])
def test_topics_in_old_formats_are_written_without_idempotence_which_is_said_once(
    kafka: str, theirs: Topics, caplog: pytest.LogCaptureFixture, release: str
) -> None:
    topic = theirs.create(message_format_version=release)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            _write(kafka, topic)
    assert theirs.offsets(topic)[0] == (0, 6)
    assert caplog.text.count("it is written without idempotence") == 1


def test_what_an_old_format_cannot_hold_is_said(kafka: str, theirs: Topics) -> None:
    topic = theirs.create(message_format_version="0.10.2")
    with pytest.raises(
        JesenskaError, match=r"leave out kafka\.enable\.idempotence, or give the topic message\.format\.version"
    ):
        _write(kafka, topic, kafka__enable__idempotence="true")
    with pytest.raises(JesenskaError, match="which has no headers: leave the column headers out of the rows"):
        _write(kafka, topic, headers=True)


def test_a_stream_reads_a_broker_without_topic_ids(
    there: Reading, theirs: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = theirs.create(message_format_version="0.10.2")
    theirs.send(topic, [b"a", b"b"], enable_idempotence=False)
    frame, state = there.stream(subscribe=topic, startingOffsets="earliest"), tmp_path_factory.mktemp("state")
    assert there.run(frame, state) == {(topic, 0): [0, 1]}
    theirs.send(topic, [b"c"], enable_idempotence=False)
    assert there.run(frame, state) == {(topic, 0): [0, 1, 2]}
