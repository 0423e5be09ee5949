"""Connections of the client, and the metadata that it keeps."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import Clock, ManualClock
from jesenska.base.errors import NetworkException
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from tests.peers.apache_kafka import free_port


def on_cluster(
    bootstrap: str, work: Callable[[Cluster], Awaitable[None]], *, clock: Clock | None = None, **options: Any
) -> None:
    async def main() -> None:
        cluster = Cluster(bootstrap, ClientConfig(**options), clock=clock)
        try:
            async with asyncio.timeout(60):
                await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(main())


def test_connection_that_nobody_waits_for_any_more_is_closed_with_the_client(tmp_path: Path) -> None:
    """A socket that is left open is a ResourceWarning, which fails the run."""

    async def give_up(bootstrap: str, turns: int) -> None:
        cluster = Cluster(bootstrap)
        asking = asyncio.create_task(cluster.any_channel())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        openings = list(cluster._opening.values())
        if turns % 2 and openings:
            await asyncio.wait(openings)
        await cluster.close()
        assert not cluster._opening
        assert all(opening.cancelled() or opening.result().closed for opening in openings)

    with BrokerProcess(tmp_path / "data") as broker:
        for turns in range(20):
            asyncio.run(give_up(broker.bootstrap, turns))


def test_the_pause_before_connecting_again_grows_with_each_failure() -> None:
    async def work(cluster: Cluster) -> None:
        began = asyncio.get_running_loop().time()
        took = []
        for _ in range(4):
            with pytest.raises(NetworkException, match="No broker answers"):
                await cluster.any_channel()
            took.append(asyncio.get_running_loop().time() - began)
        # The first attempt is made at once; the pauses are 0.1, 0.2 and 0.25 s, less a fifth.
        assert took[1] >= 0.08
        assert took[2] >= 0.08 + 0.16
        assert took[3] >= 0.08 + 0.16 + 0.2

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        on_cluster(
            f"127.0.0.1:{deaf.getsockname()[1]}",
            work,
            reconnect_backoff_seconds=0.1,
            reconnect_backoff_max_seconds=0.25,
        )


def test_a_broker_that_may_be_asked_at_once_is_asked_before_one_that_was_just_tried_in_vain(
    broker: BrokerProcess,
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        host, port = "127.0.0.1", deaf.getsockname()[1]

        async def work(cluster: Cluster) -> None:
            with pytest.raises(NetworkException):
                await cluster._channel_to(host, port)
            assert (await cluster.any_channel()).port == broker.port

        # The pause of a minute would run into the test's limit.
        on_cluster(
            f"{host}:{port},{broker.bootstrap}", work, reconnect_backoff_seconds=120, reconnect_backoff_max_seconds=120
        )


def test_the_limit_for_connecting_grows_with_each_failure() -> None:
    async def work(cluster: Cluster) -> None:
        limits = []
        for _ in range(3):
            with pytest.raises(NetworkException) as error:
                await cluster.any_channel()
            found = re.search(r"within ([0-9.]+) s", str(error.value))
            assert found is not None
            limits.append(float(found[1]))
        assert 0.04 <= limits[0] <= 0.06
        assert 0.08 <= limits[1] <= 0.12
        assert limits[2] == 0.15

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        on_cluster(
            bootstrap, work, connect_timeout_seconds=0.05, connect_timeout_max_seconds=0.15, reconnect_backoff_seconds=0
        )


def test_pauses_before_a_request_is_sent_again_grow() -> None:
    cluster = Cluster("h:1", ClientConfig(retry_backoff_seconds=0.1, retry_backoff_max_seconds=0.3))
    assert 0.08 <= cluster.retry_pause_seconds(1) <= 0.12
    assert 0.16 <= cluster.retry_pause_seconds(2) <= 0.24
    assert cluster.retry_pause_seconds(9) == 0.3


def test_buffers_of_the_sockets_are_those_that_are_asked_for(broker: BrokerProcess) -> None:
    def sizes(sock: socket.socket) -> tuple[int, int]:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), sock.getsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF
        )

    with socket.socket() as sized, socket.create_connection((broker.host, broker.port)) as plain:
        sized.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 5000)
        sized.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 6000)
        wanted, system = sizes(sized), sizes(plain)
    found = []

    async def work(cluster: Cluster) -> None:
        transport: Any = (await cluster.any_channel())._connection.transport
        found.append(sizes(transport.sock))

    on_cluster(broker.bootstrap, work, send_buffer_bytes=5000, receive_buffer_bytes=6000)
    on_cluster(broker.bootstrap, work)
    assert wanted != system
    assert found == [wanted, system]


def test_a_connection_that_is_not_used_is_closed_and_one_that_waits_is_not(broker: BrokerProcess) -> None:
    clock = ManualClock()

    async def work(cluster: Cluster) -> None:
        channel = await cluster.any_channel()
        clock.advance(9_999)
        cluster._close_idle()
        assert not channel.closed
        assert await cluster.any_channel() is channel
        clock.advance(9_999)
        cluster._close_idle()
        assert not channel.closed
        asking = asyncio.create_task(cluster.refresh([]))
        while not channel.is_waiting:
            await asyncio.sleep(0)
        clock.advance(20_000)
        cluster._close_idle()
        assert not channel.closed
        await asking
        clock.advance(10_000)
        cluster._close_idle()
        closed: list[bool] = [channel.closed]
        assert closed == [True]
        assert not (await cluster.any_channel()).closed

    on_cluster(broker.bootstrap, work, connections_max_idle_seconds=10, clock=clock)


def test_an_unused_connection_is_closed_without_being_asked(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        channel = await cluster.any_channel()
        while not channel.closed:
            await asyncio.sleep(0.005)

    on_cluster(broker.bootstrap, work, connections_max_idle_seconds=0.05)


def keeping(cluster: Cluster, topic: str) -> list[str]:
    """The names of the attributes that still contain something about a topic."""
    return [name for name, kept in vars(cluster).items() if isinstance(kept, dict) and topic in kept]


@pytest.mark.parametrize("asked", [["gone"], None], ids=["one", "all"])
def test_nothing_is_kept_of_a_topic_that_there_is_no_more(broker: BrokerProcess, asked: list[str] | None) -> None:
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topics([NewTopic("gone", 1, 1)])
        await cluster.topic("gone")
        assert keeping(cluster, "gone") != []
        await admin.delete_topics(["gone"])
        async with asyncio.timeout(20):
            await cluster.refresh(asked)
            while cluster.known("gone") is not None:
                await cluster.refresh(asked)
        assert keeping(cluster, "gone") == []

    on_cluster(broker.bootstrap, work)


def test_a_topic_that_is_not_used_is_forgotten(broker: BrokerProcess) -> None:
    clock = ManualClock()

    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic(name, 1, 1) for name in ("forget-used", "forget-unused")])
        for name in ("forget-used", "forget-unused"):
            await cluster.topic(name)
        clock.advance(6_000)
        await cluster.topic("forget-used")
        clock.advance(4_000)
        await cluster.refresh(["forget-used"])
        assert cluster.known("forget-used") is not None
        assert cluster.known("forget-unused") is None
        assert keeping(cluster, "forget-unused") == []
        assert len(keeping(cluster, "forget-used")) == 6

    on_cluster(broker.bootstrap, work, metadata_max_idle_seconds=10, clock=clock)


def test_a_broker_that_is_away_for_long_is_told_of_in_the_log_and_one_that_answers_soon_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    async def work(cluster: Cluster) -> None:
        told = []
        for seconds in (0, 1, 1, 1, 8, 1, 1):
            clock.advance(seconds * 1000)
            with pytest.raises(NetworkException):
                await cluster.any_channel()
            told.append([record.getMessage() for record in caplog.records])
            caplog.clear()
        port = cluster.bootstrap[0][1]
        said = [
            f"127.0.0.1:{port} cannot be reached ({attempts} attempts in {seconds} s): it is tried again."
            for attempts, seconds in ((3, 2), (6, 12))
        ]
        assert told == [[], [], [said[0]], [], [], [said[1]], []]

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        on_cluster(f"127.0.0.1:{deaf.getsockname()[1]}", work, clock=clock, reconnect_backoff_seconds=0)


def test_an_address_that_a_broker_tells_and_nobody_reaches_is_said_to_be_the_brokers(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        advertised = f"127.0.0.1:{deaf.getsockname()[1]}"

        async def work(cluster: Cluster) -> None:
            await cluster.refresh([])
            says = (
                f"Broker 1 tells its clients to connect to {advertised}, which cannot be reached from here "
                f"(Connection refused): start it, or correct its "
            )
            with pytest.raises(NetworkException, match=f"^{re.escape(says)}advertised.listeners.$"):
                await cluster.channel_of(1)

        address = f"127.0.0.1:{free_port()}"
        settings = {"listeners": f"PLAINTEXT://{address}", "advertised.listeners": f"PLAINTEXT://{advertised}"}
        with BrokerProcess(tmp_path / "data", settings=settings, warm=True):
            on_cluster(address, work)
