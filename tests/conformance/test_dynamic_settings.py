"""Which of a broker's settings can be changed while it runs: the same question about every one, to Apache Kafka 3.9.1
and to us, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.table import Setting, value_text
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection

pytestmark = pytest.mark.conformance

_BROKER = 4
_OF_RELEASE = "4.3"  # not known to 3.9
_SAMPLES = {"INT": "1", "LONG": "1", "SHORT": "1", "DOUBLE": "0.5", "BOOLEAN": "true"}
#: Settings for which we answer otherwise, and why.
_OTHERWISE = {
    **dict.fromkeys(
        (
            "advertised.host.name",
            "advertised.port",
            "controller.message.queue.size",
            "host.name",
            "kafka.csv.metrics.reporter.enabled",
            "port",
            "quota.consumer.default",
            "quota.producer.default",
            "replica.lag.max.messages",
            "zookeeper.sync.time.ms",
        ),
        "of older releases: 3.9 keeps them as names that it does not know",
    ),
    **dict.fromkeys(
        ("allow.everyone.if.no.acl.found", "super.users"),
        "of an authorizer: Kafka keeps what its own table does not have",
    ),
    "config.providers": "of the files that a broker starts with: Kafka's table does not have it",
    **dict.fromkeys(("jesenska.zookeeper.listener", "jesenska.zookeeper.login.file"), "ours"),
    **dict.fromkeys(
        ("listeners", "listener.security.protocol.map"),
        "listeners are opened at the start and stay: a changed list would be stored and not be so",
    ),
    **dict.fromkeys(
        (
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.reader.threads",
        ),
        "can be changed from 4.0 on",
    ),
    "sasl.jaas.config": "holds passwords, which nothing encrypts here yet",
}


def _value(setting: Setting) -> str:
    return value_text(setting.default) or _SAMPLES.get(setting.type.name, "x")


def _answers(bootstrap: str, resource: str) -> dict[str, ErrorCode]:
    """The code for each setting, changed alone and only checked."""
    codes = {}
    with RawConnection(bootstrap) as connection:
        for setting in BROKER_SETTINGS:
            change = IncrementalAlterConfigsRequestConfig(name=setting.name, config_operation=0, value=_value(setting))
            asked = [
                IncrementalAlterConfigsRequestResource(resource_type=_BROKER, resource_name=resource, configs=[change])
            ]
            (answer,) = connection.ask(
                IncrementalAlterConfigsRequest(resources=asked, validate_only=True), 1, IncrementalAlterConfigsResponse
            ).responses
            codes[setting.name] = ErrorCode(answer.error_code)
    return codes


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    need("java", "mvn")
    directory: Path = tmp_path_factory.mktemp("dynamic")
    with (
        ApacheKafka("3.9.1", directory / "kafka", zookeeper=True, heap="384m") as kafka,
        BrokerProcess(directory / "data", settings={"broker.id": "0"}) as broker,
    ):
        yield kafka.bootstrap, broker.bootstrap


@pytest.mark.parametrize("resource", ["0", ""], ids=["one broker", "every broker"])
def test_the_same_settings_can_be_changed_as_in_kafka(both: tuple[str, str], resource: str) -> None:
    theirs, ours = (_answers(bootstrap, resource) for bootstrap in both)
    other = {
        setting.name: (theirs[setting.name].name, ours[setting.name].name)
        for setting in BROKER_SETTINGS
        if setting.release != _OF_RELEASE
        and theirs[setting.name] is not ours[setting.name]
        and setting.name not in _OTHERWISE
    }
    assert other == {}
    if resource:
        assert [name for name in _OTHERWISE if theirs[name] is ours[name]] == [], "these need no reason any more"
