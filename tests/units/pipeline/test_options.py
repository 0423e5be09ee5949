"""Options of the source and the sink: their meaning, and the sentence for values without meaning."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.pipeline.connector.options import (
    COLUMNS,
    COLUMNS_WITH_HEADERS,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    columns_of,
    sink_options,
    source_options,
)

BROKER = {"kafka.bootstrap.servers": "h:1"}
READ = {**BROKER, "subscribe": "a"}


def test_the_defaults_are_sparks() -> None:
    batch = source_options(READ, streaming=False)
    assert (batch.start.everywhere, batch.end.everywhere) == (EARLIEST_OFFSET, LATEST_OFFSET)
    assert source_options(READ, streaming=True).start.everywhere == LATEST_OFFSET
    assert (batch.fail_on_data_loss, batch.columns, batch.min_partitions, batch.max_offsets_per_trigger) == (
        True,
        COLUMNS,
        None,
        None,
    )
    assert (batch.read_committed, batch.latest_if_no_record_at_time) == (False, False)


def test_names_are_taken_in_any_case() -> None:
    options = source_options(
        {**BROKER, "SUBSCRIBE": "a, b,a", "failondataloss": "FALSE", "MinPartitions": "4"}, streaming=False
    )
    assert (options.subscription.topics, options.fail_on_data_loss, options.min_partitions) == (("a", "b"), False, 4)


def test_offsets_by_partition_are_read() -> None:
    options = source_options({**READ, "startingOffsets": '{"a": {"0": 23, "1": -2}}'}, streaming=False)
    assert options.start.by_partition == {TopicPartition("a", 0): 23, TopicPartition("a", 1): EARLIEST_OFFSET}
    assert not options.start.is_time


def test_a_time_for_all_beats_times_by_partition_which_beat_offsets() -> None:
    texts = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"a": {"0": 5}}', "startingTimestamp": "7"}
    found = source_options({**READ, **texts}, streaming=True).start
    assert (found.option, found.everywhere, found.is_time) == ("startingTimestamp", 7, True)
    del texts["startingTimestamp"]
    found = source_options({**READ, **texts}, streaming=True).start
    assert (found.option, found.by_partition, found.is_time) == (
        "startingOffsetsByTimestamp",
        {TopicPartition("a", 0): 5},
        True,
    )


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "assign and subscribe are set"),
        ({}, "none of them is set"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a/b"}, "'a/b' in the option subscribe cannot be the name of a topic"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"assign": "a"}, "The option assign is not JSON"),
        ({"assign": "[]"}, "The option assign is not a JSON object"),
        ({"assign": '{"a": [-1]}'}, "does not list partition numbers"),
        ({"assign": '{"a": [true]}'}, "does not list partition numbers"),
        ({"assign": "{}"}, "assign names no partition"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be latest in a batch query"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot be earliest in a batch query"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "cannot be -1 for a-0 in a batch query"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "has -3 for a-0"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 1}}'}, "has 'x' where a partition"),
        ({"subscribe": "a", "startingOffsets": '{"a": 1}'}, "holds no partitions for the topic a"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "The option startingOffsets is not JSON"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "write milliseconds since 1970"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"}, "write error or latest"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions is '0': write a whole number from 1 up"),
        (
            {"subscribe": "a", "maxRecordsPerPartition": "x"},
            "maxRecordsPerPartition is 'x': write a whole number from 1 up",
        ),
        (
            {"subscribe": "a", "fetchOffset.numRetries": "-1"},
            "fetchOffset.numRetries is '-1': write a whole number from 0 up",
        ),
        (
            {"subscribe": "a", "fetchOffset.retryIntervalMs": "1s"},
            "fetchOffset.retryIntervalMs is '1s': write a whole number from 0 up",
        ),
        (
            {"subscribe": "a", "kafkaConsumer.pollTimeoutMs": "0"},
            "kafkaConsumer.pollTimeoutMs is '0': write a whole number from 1 up",
        ),
        (
            {"subscribe": "a", "minPartitions": "9223372036854775808"},
            "write a whole number from 1 up, 9223372036854775807 at most",
        ),
        ({"subscribe": "a", "startingTimestamp": "9223372036854775808"}, "write milliseconds since 1970"),
        ({"subscribe": "a", "failOnDataLoss": "1"}, "failOnDataLoss is '1': write true or false"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "write true or false"),
        (
            {"subscribe": "a", "columns": "value,offsets"},
            "columns names 'offsets', which a row does not have: choose from key, value",
        ),
        ({"subscribe": "a", "columns": " "}, "columns names no column"),
        ({"subscribe": "a", "columns": "value", "includeHeaders": "true"}, "columns does not name headers"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "write a time such as 15m"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "startingofsets is not known; did you mean startingOffsets"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"subscribe": "a", "kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI needs a login"),
        ({"subscribe": "a", "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no"}, "/no"),
        (
            {"subscribe": "a", "kafka.fetch.max.wait.ms": "soon"},
            "Invalid value soon for configuration fetch.max.wait.ms",
        ),
        ({"subscribe": "a", "path": "x"}, "A topic is not a path"),
        ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_a_batch_query_cannot_mean_is_said_in_one_sentence(extra: dict[str, str], sentence: str) -> None:
    with pytest.raises(JesenskaError) as error:
        source_options({**BROKER, **extra}, streaming=False)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_stream_refuses_an_end_and_limits_that_contradict_each_other() -> None:
    with pytest.raises(JesenskaError, match="endingOffsets does not go with a stream"):
        source_options({**READ, "endingOffsets": "latest"}, streaming=True)
    with pytest.raises(JesenskaError, match="no trigger could meet both"):
        source_options({**READ, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, streaming=True)


def test_numbers_may_be_as_large_as_javas() -> None:
    largest = str(2**63 - 1)
    assert (
        source_options({**READ, "maxOffsetsPerTrigger": largest}, streaming=True).max_offsets_per_trigger == 2**63 - 1
    )
    assert source_options({**READ, "startingTimestamp": largest}, streaming=True).start.everywhere == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15m", 900_000), ("30s", 30_000), ("250 ms", 250), ("2h", 7_200_000), ("7", 7)]
)
def test_delays_are_read(text: str, milliseconds: int) -> None:
    assert source_options({**READ, "maxTriggerDelay": text}, streaming=True).max_trigger_delay_ms == milliseconds


def test_limits_per_trigger_have_no_effect_in_a_batch_query_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source_options({**READ, "maxOffsetsPerTrigger": "5"}, streaming=False)
    assert "maxOffsetsPerTrigger has no effect here" in caplog.text


def test_a_prefix_of_consumer_groups_is_accepted_and_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source_options({**READ, "groupIdPrefix": "g"}, streaming=True)
    assert "The option groupIdPrefix has no effect here: the source reads without a consumer group" in caplog.text


def test_a_group_is_where_a_stream_commits_and_has_no_effect_on_a_batch_query(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert source_options({**READ, "kafka.group.id": "g"}, streaming=True).group_id == "g"
        assert not caplog.text
        assert source_options({**READ, "kafka.group.id": "g"}, streaming=False).group_id is None
    assert "The option kafka.group.id has no effect here: only streams commit" in caplog.text


@pytest.mark.parametrize("name", ["client.rack", "fetch.min.bytes", "group.instance.id", "session.timeout.ms"])
def test_settings_of_the_client_that_the_source_does_not_read_are_named(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING):
        source_options({**READ, f"kafka.{name}": "1"}, streaming=True)
    assert caplog.text.count(f"The option kafka.{name} has no effect here") == 1


@pytest.mark.parametrize("name", ["linger.ms", "max.in.flight.requests.per.connection", "retries"])
def test_settings_of_the_client_that_the_sink_does_not_read_are_named(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING):
        sink_options({**BROKER, f"kafka.{name}": "1"})
    assert caplog.text.count(f"The option kafka.{name} has no effect here") == 1


def test_a_setting_of_the_client_that_is_not_known_is_named_with_the_nearest_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        source_options({**READ, "kafka.isolation.levl": "x"}, streaming=False)
    told = "The setting kafka.isolation.levl is not known and has no effect; did you mean kafka.isolation.level?"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_settings_that_are_read_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    both = {"client.id": "x", "request.timeout.ms": "1", "retry.backoff.ms": "1", "metadata.max.age.ms": "1"}
    read = {
        **both,
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": "5",
        "fetch.max.wait.ms": "5",
        "check.crcs": "false",
    }
    write = {
        **both,
        "acks": "1",
        "batch.size": "5",
        "buffer.memory": "5",
        "max.request.size": "5",
        "delivery.timeout.ms": "5",
        "compression.zstd.level": "1",
    }
    with caplog.at_level(logging.WARNING):
        source_options({**READ, **{f"kafka.{name}": text for name, text in read.items()}}, streaming=True)
        sink_options({**BROKER, **{f"kafka.{name}": text for name, text in write.items()}})
    assert not caplog.text


@pytest.mark.parametrize(
    ("given_options", "columns"),
    [
        ({}, COLUMNS),
        ({"includeHeaders": "true"}, COLUMNS_WITH_HEADERS),
        ({"columns": "value, offset,value"}, ("value", "offset")),
        ({"columns": "headers", "includeHeaders": "true"}, ("headers",)),
    ],
)
def test_columns_are_chosen(given_options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert source_options({**READ, **given_options}, streaming=True).columns == columns
    assert columns_of({**READ, **given_options}) == columns


def test_the_offsets_of_a_progress_are_taken_as_they_are() -> None:
    options = source_options({**READ, "startingOffsets": '{"a": {"0": 23, "topicId": "x"}}'}, streaming=True)
    assert options.start.by_partition == {TopicPartition("a", 0): 23}


def test_a_login_is_kept_and_not_shown() -> None:
    texts = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="sEcret";'
        ),
    }
    options = source_options({**READ, **texts}, streaming=True)
    assert dict(options.client.security)["sasl.mechanism"] == "PLAIN"
    assert "sEcret" not in repr(options)
    assert source_options(READ, streaming=True).client.security == ()


def test_the_service_of_kerberos_goes_to_the_tasks_with_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    # No tickets are asked for here, so that the library is not needed.
    monkeypatch.setattr("jesenska.security.kerberos.logins.Library.load", lambda: None)
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;",
        "kafka.sasl.kerberos.service.name": "kafka",
    }
    found = dict(source_options({**READ, **login}, streaming=True).client.security)
    assert found["sasl.kerberos.service.name"] == "kafka"


def test_patience_is_read() -> None:
    texts = {"fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "5", "kafkaConsumer.pollTimeoutMs": "7"}
    options = source_options({**READ, **texts}, streaming=True)
    assert (options.offset_retries, options.offset_retry_interval_ms, options.poll_timeout_ms) == (0, 5, 7)
    options = source_options(READ, streaming=True)
    assert (options.offset_retries, options.offset_retry_interval_ms, options.poll_timeout_ms) == (None, None, None)


def test_internal_topics_match_a_pattern_only_when_asked_for() -> None:
    pattern = {**BROKER, "subscribePattern": ".*"}
    assert not source_options(pattern, streaming=True).subscription.with_internal
    assert source_options(
        {**pattern, "kafka.exclude.internal.topics": "false"}, streaming=True
    ).subscription.with_internal


def test_settings_of_the_client_are_passed_on_and_unknown_ones_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    texts = {
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "me",
        "kafka.request.timeout.ms": "5",
        "kafka.fetch.min.byte": "1",
    }
    with caplog.at_level(logging.WARNING):
        options = source_options({**READ, **texts}, streaming=False)
    assert (options.read_committed, options.client.connections.client_id) == (True, "me")
    assert options.client.connections.request_timeout_seconds == 0.005
    assert "did you mean kafka.fetch.min.bytes" in caplog.text


def test_the_sinks_settings_are_read() -> None:
    options = sink_options(
        {
            **BROKER,
            "topic": "t",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "7",
        }
    )
    assert (options.topic, options.acks, options.compression, options.compression_level) == ("t", 1, "zstd", 7)
    assert sink_options({**BROKER, "checkpointLocation": "x", "queryName": "q"}).topic is None


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"subscribe": "a"}, "subscribe is not known"),
        ({"topic": "a b"}, "cannot be the name of a topic"),
        ({"kafka.acks": "2"}, "Invalid value 2 for configuration acks"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.partitioner.class": "x.Y"}, "give the rows a column partition"),
        ({"kafka.transactional.id": "t"}, "ExactlyOnce"),
        ({"kafka.value.serializer": "x"}, "cast the column value"),
    ],
)
def test_what_the_sink_cannot_do_is_said(extra: dict[str, str], sentence: str) -> None:
    with pytest.raises(JesenskaError) as error:
        sink_options({**BROKER, **extra})
    assert sentence in str(error.value)


@given(
    st.text(max_size=40),
    st.sampled_from(
        ["assign", "startingOffsets", "startingOffsetsByTimestamp", "subscribePattern", "startingTimestamp"]
    ),
)
def test_no_text_of_an_option_causes_anything_but_a_sentence(text: str, name: str) -> None:
    given_options = {**BROKER, name: text} if name in ("assign", "subscribePattern") else {**READ, name: text}
    try:
        source_options(given_options, streaming=False)
    except JesenskaError as error:
        assert str(error)


def test_the_connection_takes_the_clients_settings() -> None:
    given = {
        "kafka.socket.connection.setup.timeout.ms": "1",
        "kafka.socket.connection.setup.timeout.max.ms": "2",
        "kafka.retry.backoff.ms": "3",
        "kafka.retry.backoff.max.ms": "4",
        "kafka.reconnect.backoff.ms": "5",
        "kafka.reconnect.backoff.max.ms": "6",
        "kafka.send.buffer.bytes": "7",
        "kafka.receive.buffer.bytes": "8",
    }
    for client in (source_options({**READ, **given}, streaming=True).client, sink_options({**BROKER, **given}).client):
        assert client.connections == ClientConfig(
            client_id="jesenska-spark",
            connect_timeout_seconds=0.001,
            connect_timeout_max_seconds=0.002,
            retry_backoff_seconds=0.003,
            retry_backoff_max_seconds=0.004,
            reconnect_backoff_seconds=0.005,
            reconnect_backoff_max_seconds=0.006,
            send_buffer_bytes=7,
            receive_buffer_bytes=8,
        )


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_codec_takes_its_own_level(codec: str) -> None:
    levels = {
        "kafka.compression.gzip.level": "2",
        "kafka.compression.lz4.level": "3",
        "kafka.compression.zstd.level": "4",
    }
    options = sink_options({**BROKER, "kafka.compression.type": codec, **levels})
    assert (options.compression, options.compression_level) == (codec, {"gzip": 2, "lz4": 3, "zstd": 4}[codec])
    assert sink_options({**BROKER, "kafka.compression.type": codec}).compression_level is None


def test_keys_have_no_part_in_choosing_the_partition_where_that_is_asked_for() -> None:
    assert sink_options({**BROKER, "kafka.partitioner.ignore.keys": "true"}).ignore_keys
    assert not sink_options(BROKER).ignore_keys
