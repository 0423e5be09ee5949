"""Source and sink on a broker with TLS and logins: Spark's workers have the login, and nothing shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.testing import BrokerProcess
from tests.processes.broker.secured import ANNA_SECRET, AUTHORITY, broker_settings, login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = broker_settings(tmp_path, listeners="SASL_SSL://127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        yield broker


def test_rows_go_in_and_out_through_tls_with_a_login(
    spark: SparkSession, secured: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text(AUTHORITY.pem)
    options = {
        "kafka.bootstrap.servers": secured.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(trusted),
        **{f"kafka.{name}": value for name, value in login("anna", ANNA_SECRET).items()},
    }
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
