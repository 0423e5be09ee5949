"""The tools read a client's settings."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.cli.kafka.records import kafka_console_consumer
from jesenska.cli.kafka.records.console_reading import fetch_options, group_options
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.client.client_config import ClientConfig, client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.table import Table
from tests.processes.cli.conftest import Tool

_TABLES = pytest.mark.parametrize(
    "table", [PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS], ids=lambda table: table.kind
)


@_TABLES
def test_a_connection_takes_the_times_and_sizes_that_are_given(table: Table) -> None:
    given = {
        "client.id": "me",
        "request.timeout.ms": "1000",
        "socket.connection.setup.timeout.ms": "2000",
        "socket.connection.setup.timeout.max.ms": "3000",
        "retry.backoff.ms": "4000",
        "retry.backoff.max.ms": "5000",
        "reconnect.backoff.ms": "6000",
        "reconnect.backoff.max.ms": "7000",
        "connections.max.idle.ms": "8000",
        "metadata.max.age.ms": "9000",
        "send.buffer.bytes": "10000",
        "receive.buffer.bytes": "11000",
    }
    found = client_config(table, given)
    assert found == ClientConfig(
        client_id="me",
        request_timeout_seconds=1,
        connect_timeout_seconds=2,
        connect_timeout_max_seconds=3,
        retry_backoff_seconds=4,
        retry_backoff_max_seconds=5,
        reconnect_backoff_seconds=6,
        reconnect_backoff_max_seconds=7,
        connections_max_idle_seconds=8,
        metadata_max_age_seconds=9,
        metadata_max_idle_seconds=300 if table is PRODUCER_SETTINGS else None,
        send_buffer_bytes=10000,
        receive_buffer_bytes=11000,
    )
    assert Cluster("h:1", found, chance=lambda: 0.5).retry_pause_seconds(1) == 4


@_TABLES
def test_what_is_not_given_is_kafkas_but_for_the_buffers_which_are_the_systems(table: Table) -> None:
    found = client_config(table, {})
    assert (found.client_id, found.reconnect_backoff_max_seconds) == ("jesenska", 1)
    assert (found.send_buffer_bytes, found.receive_buffer_bytes) == (-1, -1)
    with pytest.raises(InvalidConfigError, match=r"retry\.backoff\.ms"):
        client_config(table, {"retry.backoff.ms": "soon"})


def test_a_producer_forgets_topics_that_it_does_not_use() -> None:
    assert client_config(PRODUCER_SETTINGS, {"metadata.max.idle.ms": "7000"}).metadata_max_idle_seconds == 7


def settings(**given: str) -> dict[str, Any]:
    texts = {name.replace("_", "."): value for name, value in given.items()}
    return {setting.name: setting.default for setting in CONSUMER_SETTINGS} | CONSUMER_SETTINGS.parse(texts)


def test_a_consumer_takes_the_limits_that_are_given() -> None:
    found = fetch_options(
        settings(
            fetch_max_wait_ms="1000",
            fetch_min_bytes="2",
            fetch_max_bytes="3",
            max_partition_fetch_bytes="4",
            max_poll_records="5",
            check_crcs="false",
            client_rack="b",
        )
    )
    assert found == {
        "max_wait_seconds": 1,
        "min_bytes": 2,
        "max_bytes": 3,
        "max_partition_bytes": 4,
        "max_poll_records": 5,
        "auto_offset_reset": "latest",
        "isolation_level": 0,
        "check_crcs": False,
        "rack": "b",
    }


def test_a_member_takes_the_times_that_are_given() -> None:
    found = group_options(
        settings(
            session_timeout_ms="9000",
            max_poll_interval_ms="8000",
            heartbeat_interval_ms="2000",
            auto_commit_interval_ms="7000",
        )
    )
    membership = found["membership"]
    assert (membership.session_timeout_seconds, membership.max_poll_interval_seconds) == (9, 8)
    assert (membership.heartbeat_seconds, found["auto_commit_seconds"]) == (2, 7)
    assert group_options(settings(enable_auto_commit="false"))["auto_commit_seconds"] is None


def test_a_topic_that_is_read_is_created_unless_a_setting_forbids_it(at: Tool) -> None:
    arguments = ("--topic", "read-and-created", "--timeout-ms", "1")
    waited = at(kafka_console_consumer.main, *arguments, "--consumer-property", "allow.auto.create.topics=false")
    assert (waited.code, "read-and-created does not exist yet: waiting for it" in waited.err) == (0, True)
    assert "read-and-created" not in at(kafka_topics.main, "--list").lines
    at(kafka_console_consumer.main, *arguments)
    assert "read-and-created" in at(kafka_topics.main, "--list").lines
