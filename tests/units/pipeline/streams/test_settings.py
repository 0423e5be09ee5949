"""Every setting of Kafka Streams, of 1.0 and of 4.3, has its effect or an answer."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    Serdes,
    SettingError,
    StreamsBuilder,
    StreamsConfig,
    TopologyTestDriver,
    log_and_continue,
    log_and_fail,
    wallclock_timestamp,
)
from jesenska.pipeline.streams.settings import SETTINGS, Effect, as_markdown

PAGE = Path(__file__).parents[4] / "docs" / "streams.md"

#: The names of the table in the documentation of Kafka 1.0.
_TABLE_OF_1_0 = """
application.id application.server bootstrap.servers buffered.records.per.partition cache.max.bytes.buffering client.id commit.interval.ms
connections.max.idle.ms default.deserialization.exception.handler default.key.serde default.timestamp.extractor default.value.serde key.serde
metadata.max.age.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms num.standby.replicas num.stream.threads
partition.grouper poll.ms processing.guarantee receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms replication.factor request.timeout.ms
retry.backoff.ms rocksdb.config.setter security.protocol send.buffer.bytes state.cleanup.delay.ms state.dir timestamp.extractor value.serde
windowstore.changelog.additional.retention.ms zookeeper.connect
"""
OF_1_0 = frozenset(_TABLE_OF_1_0.split())
#: The settings in StreamsConfig.configDef() of Apache Kafka 4.3.1.
_OF_4_3 = """
acceptable.recovery.lag allow.os.group.write.access application.id application.server bootstrap.servers buffered.records.per.partition
built.in.metrics.version cache.max.bytes.buffering client.id commit.interval.ms config.providers connections.max.idle.ms default.client.supplier
default.deserialization.exception.handler default.dsl.store default.key.serde default.list.key.serde.inner default.list.key.serde.type
default.list.value.serde.inner default.list.value.serde.type default.production.exception.handler default.timestamp.extractor default.value.serde
deserialization.exception.handler dsl.store.format dsl.store.suppliers.class enable.metrics.push ensure.explicit.internal.resource.naming
errors.dead.letter.queue.topic.name group.protocol log.summary.interval.ms max.task.idle.ms max.warmup.replicas metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.standby.replicas num.stream.threads poll.ms probing.rebalance.interval.ms processing.exception.handler
processing.exception.handler.global.enabled processing.guarantee processor.wrapper.class production.exception.handler
rack.aware.assignment.non_overlap_cost rack.aware.assignment.strategy rack.aware.assignment.tags rack.aware.assignment.traffic_cost
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms repartition.purge.interval.ms replication.factor request.timeout.ms
retry.backoff.ms rocksdb.config.setter security.protocol send.buffer.bytes state.cleanup.delay.ms state.cleanup.dir.max.age.ms state.dir
statestore.cache.max.bytes task.assignor.class task.timeout.ms topology.optimization upgrade.from window.size.ms windowed.inner.class.serde
windowstore.changelog.additional.retention.ms
"""
OF_4_3 = frozenset(_OF_4_3.split())


def test_every_setting_of_the_table_is_known() -> None:
    assert {setting.name for setting in SETTINGS} == OF_1_0 | OF_4_3 | {"application.server.token"}
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_an_earlier_name_is_the_name_of_today() -> None:
    for kind in ("deserialization", "production"):
        assert (
            StreamsConfig({f"default.{kind}.exception.handler": "log_and_continue"}).handler(kind) is log_and_continue
        )
        both = {f"default.{kind}.exception.handler": "log_and_continue", f"{kind}.exception.handler": "log_and_fail"}
        assert StreamsConfig(both).handler(kind) is log_and_fail
    assert StreamsConfig().handler("processing") is log_and_fail


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_without_an_effect_says_what_to_set_instead(setting: Any) -> None:
    if setting.effect is Effect.INSTEAD:
        (answer,) = StreamsConfig({setting.name: 12345}).answers
        assert answer.startswith(f"{setting.name} has no effect here: ")
        assert answer.count(".") >= 2 and answer.endswith(".")
    else:
        assert setting.says


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(as_markdown()) in text


def test_an_answer_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        StreamsConfig({"num.stream.threads": 4})
    assert "num.stream.threads has no effect here: Spark runs the tasks: choose the master" in caplog.text


def test_a_default_that_is_written_down_needs_no_answer() -> None:
    assert StreamsConfig({"num.stream.threads": 1, "poll.ms": 100}).answers == []


def test_deprecated_names_stand_for_their_successors() -> None:
    config = StreamsConfig({"key.serde": "string", "value.serde": "long", "timestamp.extractor": wallclock_timestamp})
    assert (config.key_serde, config.value_serde) == (Serdes.string(), Serdes.long())
    assert config.timestamp_extractor is wallclock_timestamp
    assert config.answers[0] == "key.serde is deprecated and stands for default.key.serde: set that instead."
    assert StreamsConfig({"default.key.serde": "json", "key.serde": "string"}).key_serde is Serdes.json()


def test_default_serdes_and_application_id_are_used_where_the_program_names_none() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
    config = {"application.id": "shop", "default.key.serde": "string", "default.value.serde": "json"}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in").pipe_input("a", {"n": 1}, 5)
        assert driver.create_output_topic("out", value=Serdes.long()).read_key_value() == ("a", 1)
        assert driver.produced_topic_names() == {"out", "shop-counts-changelog"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"application.id": "my app"}, "application.id is 'my app', but topics are named after it"),
        (
            {"bootstrap.servers": "localhost"},
            "bootstrap.servers has 'localhost' in it, which is not an address: write host:port",
        ),
        ({"processing.guarantee": "often"}, "processing.guarantee is 'often': set at_least_once"),
        ({"security.protocol": "TLS"}, "security.protocol: Invalid value TLS for configuration security.protocol"),
        ({"ssl.keystore.locations": "x"}, "the setting ssl.keystore.locations is not known"),
        (
            {"application.server.ssl.keystore.locations": "x"},
            "the setting application.server.ssl.keystore.locations is not known: did you mean "
            "application.server.ssl.keystore.location?",
        ),
        ({"application.server.token": "short"}, "application.server.token is not a token: give at least 16"),
        ({"commit.interval.ms": "soon"}, "commit.interval.ms is 'soon': give a whole number"),
        ({"commit.interval.ms": -1}, "commit.interval.ms is -1: give at least 0"),
        ({"default.value.serde": "xml"}, "default.value.serde is 'xml', which names no serde"),
        ({"default.timestamp.extractor": "Mine"}, "default.timestamp.extractor is 'Mine', which names no extractor"),
        (
            {"default.deserialization.exception.handler": "Mine"},
            "names no handler: give a function, or one of log_and_continue, log_and_fail",
        ),
        (
            {"ensure.explicit.internal.resource.naming": "yes"},
            "ensure.explicit.internal.resource.naming is 'yes': set true or false",
        ),
        (
            {"dsl.store.format": "HEADERS"},
            "dsl.store.format is 'HEADERS', but stores keep only values and their timestamps",
        ),
        ({"errors.dead.letter.queue.topic.name": "a b"}, "'a b'"),
        ({"commit.interval": 5}, "the setting commit.interval is not known: did you mean commit.interval.ms?"),
        ({"producer.ack": "all"}, "the setting producer.ack is not known: did you mean producer.acks?"),
        (
            {"consumer.nonsense": 1},
            "the setting consumer.nonsense is not known: nonsense is not a setting of a consumer.",
        ),
        ({"topic.retention.ms": "long"}, "topic.retention.ms: Invalid value long for configuration retention.ms"),
        ({"foo": 5}, "the setting foo is not known; docs/streams.md has all that are."),
    ],
)
def test_values_that_cannot_be_are_refused_with_a_remedy(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)):
        StreamsConfig(settings)


def test_settings_of_clients_and_topics_are_kept_by_their_prefix() -> None:
    config = StreamsConfig({"producer.acks": "1", "consumer.max.partition.fetch.bytes": 1000, "topic.retention.ms": 5})
    assert (config["producer.acks"], config["consumer.max.partition.fetch.bytes"], config["topic.retention.ms"]) == (
        "1",
        1000,
        5,
    )


def test_settings_for_tls_and_logins_need_no_prefix() -> None:
    config = StreamsConfig({"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM"})
    assert (config["security.protocol"], config["ssl.truststore.type"]) == ("SASL_SSL", "PEM")


def test_kafkas_class_names_are_understood() -> None:
    config = StreamsConfig(
        {
            "default.deserialization.exception.handler": "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
            "default.timestamp.extractor": "org.apache.kafka.streams.processor.WallclockTimestampExtractor",
            "bootstrap.servers": ["a:1", "b:2"],
        }
    )
    assert config.handler("deserialization") is log_and_continue
    assert config.timestamp_extractor is wallclock_timestamp
    assert config["bootstrap.servers"] == "a:1,b:2"
