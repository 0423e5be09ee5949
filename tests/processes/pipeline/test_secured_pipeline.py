"""Source, sink and Streams applications on a broker with TLS and logins: Spark's workers have the login, and nothing
shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.testing import BrokerProcess
from tests.processes.broker.secured import ANNA_SECRET, AUTHORITY, broker_settings, login
from tests.processes.pipeline.streams_on_spark.word_count import settings, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = broker_settings(tmp_path, listeners="SASL_SSL://127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        yield broker


def secured_client(broker: BrokerProcess, tmp_path: Path) -> dict[str, str]:
    """The settings of a client that logs in as anna."""
    trusted = tmp_path / "ca.pem"
    trusted.write_text(AUTHORITY.pem)
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        **login("anna", ANNA_SECRET),
    }


def test_rows_go_in_and_out_through_tls_with_a_login(
    spark: SparkSession, secured: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {f"kafka.{name}": value for name, value in secured_client(secured, tmp_path).items()}
    spark.range(100).selectExpr("cast(id as string) as value").write.format("jesenska").options(
        **options, topic="t"
    ).mode("append").save()
    rows = spark.read.format("jesenska").options(**options, subscribe="t").load()
    assert sorted(int(row.value) for row in rows.select("value").collect()) == list(range(100))
    rows.explain(True)
    wrong = options | {f"kafka.{name}": value for name, value in login("anna", "wrong").items()}
    with pytest.raises(Exception, match="Authentication failed"):
        spark.read.format("jesenska").options(**wrong, subscribe="t").load().collect()
    said = capfd.readouterr()
    assert ANNA_SECRET not in said.out + said.err


@pytest.mark.timeout(240)
def test_an_application_of_streams_logs_in(
    spark: SparkSession, secured: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = secured_client(secured, tmp_path)
    options = {f"kafka.{name}": value for name, value in client.items()}
    lines = spark.createDataFrame([("one two",), ("two",)], ["value"])
    lines.write.format("jesenska").options(**options, topic="lines").mode("append").save()
    config = {**settings(secured.bootstrap, tmp_path / "state", "secured-count"), **client}
    with KafkaStreams(word_count("lines", "counts"), config, spark=spark) as streams:
        streams.process_available()
        assert streams.store("counts").get("two") == 2
    counts = spark.read.format("jesenska").options(**options, subscribe="counts").load()
    assert {bytes(row.key): int.from_bytes(row.value) for row in counts.select("key", "value").collect()} == {
        b"one": 1,
        b"two": 2,
    }
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert any("checkpoint" in path.parts for path in files)
    assert [path for path in files if ANNA_SECRET.encode() in path.read_bytes()] == []
    said = capfd.readouterr()
    assert ANNA_SECRET not in said.out + said.err
