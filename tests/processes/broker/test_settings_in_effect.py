"""Settings of the broker take effect in the right places: in the values of the logs, of directories and groups, and at
the broker itself."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import ManualClock, SystemClock
from jesenska.base.errors import InvalidConfigError
from jesenska.broker.coordinators.groups import group_settings_of
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.broker.settings.derived_settings import (
    check_rules_of,
    cleaner_settings_of,
    directory_settings_of,
    log_config_of,
)
from jesenska.broker.tree.zookeeper_home import ZooKeeperHome
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.log.compaction.log_cleaner import CleanerSettings
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.registration import ensure_paths
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)
from tests.raw_connection import RawConnection

_NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"log.segment.bytes": "2000"}, {"segment_bytes": 2000}),
        ({"log.roll.hours": "3"}, {"segment_ms": 3 * 3_600_000}),
        ({"log.roll.hours": "3", "log.roll.ms": "4000"}, {"segment_ms": 4000}),
        ({"log.roll.jitter.hours": "2"}, {"segment_jitter_ms": 2 * 3_600_000}),
        ({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "5"}, {"segment_jitter_ms": 5}),
        ({"log.index.size.max.bytes": "1200"}, {"segment_index_bytes": 1200}),
        ({"log.index.interval.bytes": "100"}, {"index_interval_bytes": 100}),
        ({"log.retention.hours": "2"}, {"retention_ms": 2 * 3_600_000}),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, {"retention_ms": 5 * 60_000}),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, {"retention_ms": 7}),
        ({"log.retention.ms": "-1"}, {"retention_ms": -1}),
        ({"log.retention.bytes": "12345"}, {"retention_bytes": 12345}),
        ({"jesenska.log.retention.policy": "whole-hours"}, {"retention_policy": "whole-hours"}),
        ({"log.flush.interval.messages": "9"}, {"flush_messages": 9}),
        ({"log.flush.scheduler.interval.ms": "800"}, {"flush_ms": 800}),
        ({"log.flush.scheduler.interval.ms": "800", "log.flush.interval.ms": "400"}, {"flush_ms": 400}),
        ({"log.segment.delete.delay.ms": "11"}, {"file_delete_delay_ms": 11}),
        ({"message.max.bytes": "1500"}, {"max_message_bytes": 1500}),
        ({"log.preallocate": "true"}, {"preallocate": True}),
        ({"log.cleanup.policy": "compact,delete"}, {"compact": True}),
        ({"log.cleaner.min.cleanable.ratio": "0.25"}, {"min_cleanable_dirty_ratio": 0.25}),
        ({"log.cleaner.min.compaction.lag.ms": "21"}, {"min_compaction_lag_ms": 21}),
        ({"log.cleaner.max.compaction.lag.ms": "22"}, {"max_compaction_lag_ms": 22}),
        ({"log.cleaner.delete.retention.ms": "23"}, {"delete_retention_ms": 23}),
        ({"log.message.timestamp.type": "LogAppendTime"}, {"log_append_time": True}),
        ({"log.message.format.version": "0.9.0"}, {"message_magic": 0}),
        ({"log.message.format.version": "0.10.2"}, {"message_magic": 1}),
        ({"log.message.downconversion.enable": "false"}, {"down_converts": False}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_topics_log_takes_what_it_does_not_say_itself_from_the_broker(
    settings: dict[str, str], changed: dict[str, Any]
) -> None:
    default = log_config_of(TopicConfig({}, BrokerConfig({})))
    found = log_config_of(TopicConfig({}, BrokerConfig(settings)))
    assert found == replace(default, **changed)
    assert found != default


#: The greatest distance of a time from now: Kafka refuses a time whose difference from now does not fit into 64 bits.
_EARLIEST_MS = _NOW_MS - (2**63 - 1)


@pytest.mark.parametrize(
    ("topic", "broker", "limits"),
    [
        ({}, {}, (_EARLIEST_MS, _NOW_MS + 3_600_000)),
        (
            {"message.timestamp.before.max.ms": "10"},
            {"log.message.timestamp.before.max.ms": "99"},
            (_NOW_MS - 10, _NOW_MS + 3_600_000),
        ),
        (
            {"message.timestamp.after.max.ms": "20"},
            {"log.message.timestamp.after.max.ms": "99"},
            (_EARLIEST_MS, _NOW_MS + 20),
        ),
        (
            {},
            {"log.message.timestamp.before.max.ms": "30", "log.message.timestamp.after.max.ms": "40"},
            (_NOW_MS - 30, _NOW_MS + 40),
        ),
        ({"message.timestamp.difference.max.ms": "50"}, {}, (_NOW_MS - 50, _NOW_MS + 50)),
        ({}, {"log.message.timestamp.difference.max.ms": "60"}, (_NOW_MS - 60, _NOW_MS + 60)),
        (
            {"message.timestamp.difference.max.ms": "50", "message.timestamp.after.max.ms": "7"},
            {},
            (_NOW_MS - 50, _NOW_MS + 7),
        ),
    ],
)
def test_timestamps_may_be_as_far_from_now_as_the_topic_says_else_the_broker(
    topic: dict[str, str], broker: dict[str, str], limits: tuple[int, int]
) -> None:
    config = TopicConfig(topic, BrokerConfig(broker))
    moving = check_rules_of(config, log_config_of(config))
    rules = moving.at(_NOW_MS)
    assert (rules.earliest_timestamp_ms, rules.latest_timestamp_ms) == limits
    earlier = moving.at(_NOW_MS - 1)
    moved = tuple(limit if abs(limit) >= 2**63 - 1 else limit - 1 for limit in limits)
    assert (earlier.earliest_timestamp_ms, earlier.latest_timestamp_ms) == moved


@pytest.mark.parametrize(
    ("settings", "codec", "level"),
    [
        ({}, -1, None),
        ({"compression.type": "uncompressed"}, 0, None),
        ({"compression.type": "snappy"}, 2, None),
        ({"compression.type": "gzip", "compression.gzip.level": "7"}, 1, 7),
        ({"compression.type": "lz4"}, 3, None),
        ({"compression.type": "lz4", "compression.lz4.level": "1"}, 3, 3),
        ({"compression.type": "lz4", "compression.lz4.level": "17"}, 3, 16),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, 4, -5),
    ],
)
def test_a_topics_batches_get_the_codec_and_level_that_it_or_the_broker_says(
    settings: dict[str, str], codec: int, level: int | None
) -> None:
    for topic, broker in ((settings, {}), ({}, settings)):
        config = TopicConfig(topic, BrokerConfig(broker))
        rules = check_rules_of(config, log_config_of(config)).at(_NOW_MS)
        assert (rules.codec, rules.level) == (codec, level)
        assert check_rules_of(config, log_config_of(config)).at(_NOW_MS + 5).codec == codec


def test_a_compacted_topic_rolls_as_soon_as_its_records_must_be_compacted() -> None:
    compacted = {"cleanup.policy": "compact", "segment.ms": "50", "max.compaction.lag.ms": "40"}
    assert log_config_of(TopicConfig(compacted, BrokerConfig({}))).segment_ms == 40
    assert log_config_of(TopicConfig({**compacted, "cleanup.policy": "delete"}, BrokerConfig({}))).segment_ms == 50


def test_the_cleaner_takes_its_settings_from_the_broker() -> None:
    settings = {
        "log.cleaner.enable": "false",
        "log.cleaner.threads": "3",
        "log.cleaner.backoff.ms": "4",
        "log.cleaner.dedupe.buffer.size": "5000000",
        "log.cleaner.io.buffer.size": "6000",
        "log.cleaner.io.buffer.load.factor": "0.7",
        "log.cleaner.io.max.bytes.per.second": "8000",
    }
    assert cleaner_settings_of(BrokerConfig(settings)) == CleanerSettings(False, 3, 4, 5_000_000, 6000, 0.7, 8000.0)


def test_directories_take_their_threads_and_intervals_from_the_broker() -> None:
    settings = {
        "num.recovery.threads.per.data.dir": "3",
        "log.flush.offset.checkpoint.interval.ms": "4",
        "log.flush.start.offset.checkpoint.interval.ms": "5",
        "replica.high.watermark.checkpoint.interval.ms": "6",
        "log.retention.check.interval.ms": "7",
        "producer.id.expiration.ms": "8",
        "producer.id.expiration.check.interval.ms": "9",
    }
    assert directory_settings_of(BrokerConfig(settings)) == DirectorySettings(3, 4, 5, 6, 7, 8, 9)


def test_groups_take_their_limits_and_times_from_the_broker() -> None:
    settings = {
        "group.min.session.timeout.ms": "1",
        "group.max.session.timeout.ms": "20",
        "group.initial.rebalance.delay.ms": "3",
        "group.max.size": "4",
        "offset.metadata.max.bytes": "5",
        "offsets.retention.minutes": "6",
        "offsets.retention.check.interval.ms": "7",
        "offsets.commit.timeout.ms": "8",
    }
    found = group_settings_of(BrokerConfig(settings))
    assert (found.min_session_timeout_ms, found.max_session_timeout_ms, found.initial_rebalance_delay_ms) == (1, 20, 3)
    assert (found.max_size, found.offset_metadata_max_bytes) == (4, 5)
    assert (found.offsets_retention_ms, found.offsets_retention_check_interval_ms, found.offsets_commit_timeout_ms) == (
        360_000,
        7,
        8,
    )


@pytest.mark.parametrize(("setting", "backlog"), [({"socket.listen.backlog.size": "7"}, 7), ({}, 1024)])
def test_a_broker_without_a_number_takes_one_above_the_reserved_ones_and_listens_with_its_backlog(
    tmp_path: Path, setting: dict[str, str], backlog: int
) -> None:
    async def main() -> None:
        given = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "reserved.broker.max.id": "5000"}
        broker = Broker(BrokerConfig(given | setting))
        try:
            await broker.start()
            assert broker.broker_id == 5001
            # For a listening socket, the system returns the backlog in the sixth number (tcpi_sacked).
            (listener,) = broker.serving.listeners
            told = listener._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            assert struct.unpack_from("=6I", told, 8)[5] == min(
                backlog, int(Path("/proc/sys/net/core/somaxconn").read_text())
            )
        finally:
            await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("number", [{}, {"broker.id": "-1"}])
def test_a_broker_that_may_not_take_a_number_needs_one(number: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match=r"set broker\.id"):
        BrokerConfig({"broker.id.generation.enable": "false", **number})
    for name in ("broker.id", "node.id"):
        BrokerConfig({"broker.id.generation.enable": "false", name: "0"})


def test_answers_list_as_many_partitions_and_requests_are_as_large_as_the_broker_allows(tmp_path: Path) -> None:
    settings = {"max.request.partition.size.limit": "3", "socket.request.max.bytes": "5000"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with RawConnection(broker.bootstrap) as connection:
            topic = CreateTopicsRequestTopic(name="t", num_partitions=5, replication_factor=1)
            connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
            request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequestTopic(name="t")])
            answer = connection.ask(request, 0, DescribeTopicPartitionsResponse)
            assert [item.partition_index for item in answer.topics[0].partitions] == [0, 1, 2]
            assert answer.next_cursor is not None
            assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 3)
            request.response_partition_limit = 2
            answer = connection.ask(request, 0, DescribeTopicPartitionsResponse)
            assert [item.partition_index for item in answer.topics[0].partitions] == [0, 1]
            connection.send(struct.pack(">i", 5001))
            assert connection.is_closed()
        with RawConnection(broker.bootstrap) as connection:
            name = "n" * 200
            fits = CreateTopicsRequest(
                topics=[CreateTopicsRequestTopic(name=f"{name}{number}", num_partitions=-2) for number in range(20)],
                timeout_ms=1000,
            )
            assert 4000 < len(connection.frame(fits, 7)) <= 5000
            assert len(connection.ask(fits, 7, CreateTopicsResponse).topics) == 20


def test_a_zookeeper_is_asked_so_many_things_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        server = ZooKeeperServer(tree, SystemClock(), ServerConfig())
        await server.start(listening_socket("127.0.0.1", 0))
        try:
            home = await ZooKeeperHome.open(
                f"127.0.0.1:{server.port}", BrokerConfig({"zookeeper.max.in.flight.requests": "3"}), Machine()
            )
            try:
                await ensure_paths(home.store)
                for number in range(20):
                    await home.store.create(paths.topic(f"t{number}"), b'{"version":1,"partitions":{}}')
                counting = _Counting(home.store)
                home.store = counting
                assert len((await home.facts()).topics) == 20
                assert counting.most == 3
            finally:
                await home.close()
        finally:
            await server.stop()

    asyncio.run(main())


class _Counting:
    """A store that notes the number of reads that run at the same time."""

    def __init__(self, store: Any) -> None:
        self._store, self._now, self.most = store, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, *arguments: Any) -> Any:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await self._store.get(*arguments)
        finally:
            self._now -= 1
