"""The election of leaders in a tree in which other brokers have led. A broker that lacks committed records is not
elected, unless that is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, NotLeaderOrFollowerError
from jesenska.broker.server import Broker
from jesenska.controller.plans.config_changes import ConfigOp
from jesenska.log.disk.checkpoints import CLEAN_SHUTDOWN
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.store import Store
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from tests.processes.broker.test_shared_tree import broker_on, goes_round, on, tool, until
from tests.raw_connection import RawConnection
from tests.served_tree import served

#: The broker that led and does not return, and the broker that starts.
GONE, HERE = 5, 0


async def write_topic(
    store: Store, replicas: tuple[int, ...], isr: tuple[int, ...], settings: dict[str, str] | None = None
) -> None:
    """Writes a topic of one partition that broker 5 has led."""
    for path in ("/brokers", paths.TOPICS, paths.CONFIG, f"{paths.CONFIG}/topics"):
        await store.create(path, b"")
    await store.create(paths.topic_config("t"), nodes.encode_config(settings or {}))
    await store.create(paths.topic("t"), nodes.TopicNode({0: replicas}, None).encode())
    await store.create(paths.partitions("t"), b"")
    await store.create(paths.partition("t", 0), b"")
    await store.create(paths.partition_state("t", 0), PartitionStateNode(GONE, 7, isr, 1).encode())


async def state(store: Store) -> tuple[int, int, tuple[int, ...]]:
    """The leader, the leader epoch, and the in-sync replicas."""
    found = PartitionStateNode.decode((await store.get(paths.partition_state("t", 0)))[0])
    return found.leader, found.leader_epoch, found.isr


def run(
    tmp_path: Path,
    isr: tuple[int, ...],
    settings: dict[str, str] | None,
    test: Callable[[Broker, Store], Awaitable[None]],
    crashed: bool = False,
) -> None:
    """Starts a broker on a directory with a log of the partition, after an orderly stop or a crash."""
    (tmp_path / "t-0").mkdir()
    if not crashed:
        (tmp_path / CLEAN_SHUTDOWN).touch()

    async def main() -> None:
        async with served() as server, tool(f"127.0.0.1:{server.port}") as store:
            await write_topic(store, (GONE, HERE), isr, settings)
            async with broker_on(tmp_path, on(server)) as broker:
                await test(broker, store)

    asyncio.run(main())


def ask_for_metadata(broker: Broker) -> tuple[ErrorCode, int]:
    host, port = broker.endpoint_for("PLAINTEXT")
    with RawConnection(f"{host}:{port}") as connection:
        answer = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9, MetadataResponse)
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code), partition.leader_id


def test_a_replica_that_was_in_sync_leads_when_the_leader_is_gone(tmp_path: Path) -> None:
    async def test(broker: Broker, store: Store) -> None:
        assert await state(store) == (HERE, 8, (HERE,))
        await goes_round(broker, "t", 0, b"value")

    run(tmp_path, (GONE, HERE), None, test)


def test_a_replica_that_was_in_sync_and_may_have_lost_what_it_had_waits_for_another(tmp_path: Path) -> None:
    async def test(broker: Broker, store: Store) -> None:
        assert await state(store) == (-1, 8, (GONE,))

    run(tmp_path, (GONE, HERE), None, test, crashed=True)


def test_a_replica_that_was_in_sync_alone_leads_again_after_a_crash(tmp_path: Path) -> None:
    async def test(broker: Broker, store: Store) -> None:
        assert await state(store) == (HERE, 8, (HERE,))

    run(tmp_path, (HERE,), None, test, crashed=True)


def test_a_replica_that_was_not_in_sync_does_not_lead_until_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker, store: Store) -> None:
        assert await state(store) == (-1, 8, (GONE,))
        assert "topic t has partitions that nobody leads (0)" in caplog.text
        with pytest.raises(NotLeaderOrFollowerError):
            broker.view.topics["t"].partitions[0].leader_log()
        assert await asyncio.to_thread(ask_for_metadata, broker) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        await broker.control.controller.alter_topic(
            "t", [ConfigOp("unclean.leader.election.enable", 0, "true")], validate_only=False
        )
        await until(lambda: broker.view.topics["t"].partitions[0].is_served)
        assert await state(store) == (HERE, 9, (HERE,))
        assert await asyncio.to_thread(ask_for_metadata, broker) == (ErrorCode.NONE, HERE)
        await goes_round(broker, "t", 0, b"value")

    run(tmp_path, (GONE,), None, test)


def test_a_topic_that_allows_it_is_led_by_whoever_is_up(tmp_path: Path) -> None:
    async def test(broker: Broker, store: Store) -> None:
        assert await state(store) == (HERE, 8, (HERE,))

    run(tmp_path, (GONE,), {"unclean.leader.election.enable": "true"}, test)


def test_an_administrator_lets_a_replica_lead_that_was_not_in_sync(tmp_path: Path) -> None:
    def elect(broker: Broker, election_type: int) -> ErrorCode:
        host, port = broker.endpoint_for("PLAINTEXT")
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=[ElectLeadersRequestTopic(topic="t", partitions=[0])],
            timeout_ms=5_000,
        )
        with RawConnection(f"{host}:{port}") as connection:
            answer = connection.ask(request, 2, ElectLeadersResponse)
        return ErrorCode(answer.replica_election_results[0].partition_result[0].error_code)

    async def test(broker: Broker, store: Store) -> None:
        preferred, unclean = 0, 1
        assert await asyncio.to_thread(elect, broker, preferred) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert await asyncio.to_thread(elect, broker, unclean) is ErrorCode.NONE
        assert await state(store) == (HERE, 9, (HERE,))
        await goes_round(broker, "t", 0, b"value")
        assert await asyncio.to_thread(elect, broker, unclean) is ErrorCode.ELECTION_NOT_NEEDED

    run(tmp_path, (GONE,), None, test)
