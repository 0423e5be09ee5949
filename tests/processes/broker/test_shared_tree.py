"""A broker whose tree is on a ZooKeeper server (ours, on the test's loop), and a broker that serves its own tree:
changes by other programs, sessions that end, and servers that fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.handlers.k22_init_producer_id import handle
from jesenska.broker.server import Broker
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST
from jesenska.client.producer import Producer
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.topics import TopicCreation
from jesenska.metadata import nodes, paths
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, NodeExistsError
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.served_tree import served

#: As 0.8.2's tools write a topic: no id, version 1.
OLD_TOPIC = b'{"version":1,"partitions":{"1":[0],"0":[0]}}'


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def broker_on(data: Path, settings: dict[str, str]) -> AsyncIterator[Broker]:
    broker = Broker(
        BrokerConfig(
            {
                "log.dirs": str(data),
                "broker.id": "0",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "offsets.topic.num.partitions": "1",
            }
            | settings
        )
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


def on(server: ZooKeeperServer, path: str = "", session_ms: int = 4000) -> dict[str, str]:
    return {"zookeeper.connect": f"127.0.0.1:{server.port}{path}", "zookeeper.session.timeout.ms": str(session_ms)}


@contextlib.asynccontextmanager
async def tool(address: str) -> AsyncIterator[Store]:
    """Another program that writes in the tree."""
    store = await connect(address, session_timeout_ms=4000)
    try:
        yield store
    finally:
        await store.close()


async def until_gone(store: Store, path: str) -> None:
    gone = asyncio.Event()

    def changed(_: WatchEvent) -> None:
        gone.set()

    while await store.exists(path, changed) is not None:
        await gone.wait()
        gone.clear()


async def goes_round(broker: Broker, topic: str, partition: int, value: bytes) -> None:
    host, port = broker.endpoint_for("PLAINTEXT")
    cluster = Cluster(f"{host}:{port}")
    try:
        async with Producer(cluster) as producer:
            await (await producer.send(topic, value, partition=partition))
        key = TopicPartition(topic, partition)
        async with Consumer(cluster) as consumer:
            await consumer.assign({key: EARLIEST})
            found = await consumer.poll(5, 10)
            assert found[key][-1].value == value
    finally:
        await cluster.close()


def test_a_topic_that_others_write_is_made_grows_and_is_deleted(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            served() as server,
            broker_on(tmp_path, on(server, "/kafka")) as broker,
            tool(f"127.0.0.1:{server.port}/kafka") as store,
        ):
            topics = broker.view.topics
            await store.create(paths.topic_config("old"), nodes.encode_config({"retention.ms": "12345"}))
            await store.create(paths.topic("old"), OLD_TOPIC)
            await until(lambda: "old" in topics)
            assert topics["old"].config.integer("retention.ms") == 12345
            # Tools of 0.8 look for the leader in the state of each partition.
            state = nodes.PartitionStateNode.decode((await store.get(paths.partition_state("old", 1)))[0])
            assert (state.leader, state.isr) == (0, (0,))
            await goes_round(broker, "old", 1, b"first")
            topic_id = topics["old"].topic_id
            assert nodes.TopicNode.decode((await store.get(paths.topic("old")))[0]).topic_id == topic_id

            # Old tools replace the node, without the id, which they do not know.
            await store.set(paths.topic("old"), b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0]}}')
            await until(lambda: len(topics["old"].partitions) == 3)
            await goes_round(broker, "old", 2, b"second")
            assert topics["old"].topic_id == topic_id
            assert topics["old"].partitions[1].high_watermark == 1

            await store.set(paths.topic_config("old"), nodes.encode_config({"retention.ms": "777"}))
            await store.create(paths.CONFIG_CHANGE_PREFIX, b'"old"', sequential=True)  # 0.8.2's form
            await until(lambda: topics["old"].config.integer("retention.ms") == 777)
            await store.set(paths.topic_config("old"), nodes.encode_config({"retention.ms": "888"}))
            await store.create(
                paths.CONFIG_CHANGE_PREFIX, b'{"version":1,"entity_type":"topics","entity_name":"old"}', sequential=True
            )
            await until(lambda: topics["old"].config.integer("retention.ms") == 888)

            await store.create(paths.delete_topic("old"))
            await until(lambda: "old" not in broker.control.controller.facts.topics)
            for path in (paths.topic("old"), paths.topic_config("old"), paths.delete_topic("old")):
                assert await store.exists(path) is None
            assert not [name for name in tmp_path.iterdir() if name.name in ("old-0", "old-1", "old-2")]

    run(work)


def test_topics_that_the_broker_made_are_others_to_change_and_the_reverse(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            served() as server,
            broker_on(tmp_path, on(server)) as broker,
            tool(f"127.0.0.1:{server.port}") as store,
        ):
            await broker.control.controller.create(TopicCreation("mine", 1, 1))
            data, stat = await store.get(paths.topic("mine"))
            await store.set(paths.topic("mine"), data.replace(b'{"0":[0]}', b'{"0":[0],"1":[0]}'), stat.version)
            await until(lambda: len(broker.view.topics["mine"].partitions) == 2)
            await goes_round(broker, "mine", 1, b"value")
            await broker.control.controller.expand("mine", 3, None)

            await store.create(paths.topic("theirs"), OLD_TOPIC)
            await until(lambda: "theirs" in broker.view.topics)
            await broker.control.controller.expand("theirs", 3, None)
            await broker.control.controller.alter_topic("theirs", {"retention.ms": "5"}, validate_only=False)
            assert nodes.decode_config((await store.get(paths.topic_config("theirs")))[0]) == {"retention.ms": "5"}
            await goes_round(broker, "theirs", 2, b"value")
            await broker.control.controller.delete("theirs")
            assert await store.exists(paths.topic("theirs")) is None

    run(work)


def test_what_cannot_be_done_is_said_and_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with (
            served() as server,
            broker_on(tmp_path, on(server) | {"delete.topic.enable": "false"}) as broker,
            tool(f"127.0.0.1:{server.port}") as store,
        ):
            await broker.control.controller.create(TopicCreation("mine", 2, 1))
            await store.create(paths.topic("not json"), b"{")
            await store.create(paths.topic("broken"), b"{")
            await store.create(paths.topic("gap"), b'{"version":1,"partitions":{"0":[0],"2":[0]}}')
            await store.create(paths.topic("elsewhere"), b'{"version":1,"partitions":{"0":[7]}}')
            await until(lambda: "elsewhere" in broker.view.topics)
            assert broker.view.topics["elsewhere"].partitions[0].leader == -1
            assert broker.view.topics.keys() == {"mine", "elsewhere"}
            for name in ("mine", "never-was"):
                await store.create(paths.delete_topic(name))
            await store.create(paths.PREFERRED_REPLICA_ELECTION, nodes.encode_partitions([TopicPartition("mine", 0)]))
            await store.create(
                paths.REASSIGN_PARTITIONS,
                nodes.encode_reassignment({TopicPartition("mine", 0): (7,), TopicPartition("other", 0): (0,)}),
            )
            for path in (
                paths.delete_topic("mine"),
                paths.delete_topic("never-was"),
                paths.PREFERRED_REPLICA_ELECTION,
                paths.REASSIGN_PARTITIONS,
            ):
                await until_gone(store, path)
            await goes_round(broker, "mine", 0, b"still here")

    run(work)
    said = caplog.text
    for words in (
        "/brokers/topics/broken is ignored",
        "/brokers/topics/gap is ignored",
        "not json is ignored",
        "delete.topic.enable=false",
        "mine-0 cannot get the replicas [7]",
    ):
        assert words in said


def test_an_expired_session_is_replaced_and_the_place_taken_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            served() as server,
            broker_on(tmp_path, on(server)) as broker,
            tool(f"127.0.0.1:{server.port}") as store,
        ):
            await broker.control.controller.create(TopicCreation("before", 1, 1))
            before, epoch = broker.place.store.session_id, broker.control.controller.facts.controller_epoch
            states: list[SessionState] = []
            broker.place.store.on_state(states.append)
            server.close_session(before, lambda _: None)
            # A tool writes a topic while the broker is not connected.
            await store.create(paths.topic("meanwhile"), OLD_TOPIC)
            await until(lambda: SessionState.CONNECTED in states)
            assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
            assert broker.place.store.session_id != before
            await until(lambda: "meanwhile" in broker.view.topics)
            for path in (paths.broker(0), paths.CONTROLLER):
                stat = await store.exists(path)
                assert stat is not None and stat.ephemeral_owner == broker.place.store.session_id
            assert broker.control.controller.facts.controller_epoch == epoch + 1
            await broker.control.controller.create(TopicCreation("after", 1, 1))
            for topic in ("before", "meanwhile", "after"):
                await goes_round(broker, topic, 0, b"value")

    run(work)


def test_records_are_taken_while_the_server_is_away_and_topics_are_not(tmp_path: Path) -> None:
    async def work() -> None:
        tree = tmp_path / "tree.db"
        async with contextlib.AsyncExitStack() as first:
            server = await first.enter_async_context(served(tree))
            port = server.port
            async with broker_on(tmp_path / "data", on(server)) as broker:
                await broker.control.controller.create(TopicCreation("t", 1, 1))
                await goes_round(broker, "t", 0, b"before")  # now it has ids for producers
                session_id = broker.place.store.session_id
                await first.aclose()
                await until(lambda: broker.place.store.state is not SessionState.CONNECTED)
                await goes_round(broker, "t", 0, b"while it is away")
                with pytest.raises(KafkaStorageError):
                    await broker.control.controller.create(TopicCreation("refused", 1, 1))
                async with served(tree, port=port):
                    await until(lambda: broker.place.store.state is SessionState.CONNECTED)
                    assert broker.place.store.session_id == session_id  # suspended is not expired
                    await broker.control.controller.create(TopicCreation("taken", 1, 1))
                    await goes_round(broker, "taken", 0, b"value")
                    assert "refused" not in broker.view.topics

    run(work)


def test_producers_without_an_id_are_told_to_try_again_while_the_tree_is_away(tmp_path: Path) -> None:
    async def work() -> None:
        async with contextlib.AsyncExitStack() as first:
            server = await first.enter_async_context(served())
            async with broker_on(tmp_path / "data", on(server)) as broker:
                await first.aclose()
                await until(lambda: broker.place.store.state is not SessionState.CONNECTED)
                uses: Any = SimpleNamespace(producer_ids=broker.control.producer_ids)
                context: Any = None
                outcome = handle(uses, InitProducerIdRequest(transactional_id=None), context)
                assert isinstance(outcome, Awaitable)
                answer = await outcome
                assert isinstance(answer, InitProducerIdResponse)
                assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)

    run(work)


def test_a_controller_that_was_taken_away_is_claimed_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            served() as server,
            broker_on(tmp_path, on(server)) as broker,
            tool(f"127.0.0.1:{server.port}") as store,
        ):
            epoch = broker.control.controller.facts.controller_epoch
            await store.delete(paths.CONTROLLER)
            await until(
                lambda: (
                    broker.control.controller.is_controller
                    and broker.control.controller.facts.controller_epoch == epoch + 1
                )
            )
            await broker.control.controller.create(TopicCreation("t", 1, 1))

    run(work)


def test_a_topic_that_is_too_large_for_one_request_is_made_in_pieces(tmp_path: Path) -> None:
    async def work() -> None:
        async with served() as server, broker_on(tmp_path, on(server)) as broker:
            broker.control.controllership.runtime._change_max_bytes = 2000
            zxid = server.tree.tree.last_zxid
            await broker.control.controller.create(TopicCreation("t", 60, 1))
            assert server.tree.tree.last_zxid - zxid > 5
            await broker.control.controller.expand("t", 90, None)
            assert len(server.tree.tree.children(paths.partitions("t"))[0]) == 90
            await goes_round(broker, "t", 89, b"value")
            await broker.control.controller.delete("t")
            assert server.tree.tree.exists(paths.topic("t")) is None

    run(work)


def test_what_a_crash_left_is_waited_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(config=ServerConfig(tick_ms=100)) as server, tool(f"127.0.0.1:{server.port}") as crashed:
            for path in ("/brokers", paths.BROKER_IDS):
                await crashed.create(path)
            node = nodes.BrokerRegistration((), 0)
            await crashed.create(paths.broker(0), node.encode(), ephemeral=True)
            told: list[str] = []
            broker = Broker(
                BrokerConfig(
                    {"log.dirs": str(tmp_path), "broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0"}
                    | on(server, session_ms=2000)
                )
            )
            starting = asyncio.ensure_future(broker.start(told.append))
            await until(lambda: bool(told))
            assert "/brokers/ids/0 is held by a session that may be ending" in told[0]
            server.close_session(crashed.session_id, lambda _: None)
            await starting
            assert server.tree.tree.children(paths.BROKER_IDS)[0] == ["0"]
            await broker.stop()
            assert server.tree.tree.children(paths.BROKER_IDS)[0] == []

    run(work)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "200"},
            "There is no ZooKeeper at 127.0.0.1:1",
        ),
        ({"zookeeper.connect": "localhost:port"}, "zookeeper.connect=localhost:port is not understood"),
        ({"jesenska.zookeeper.listener": "2181"}, "jesenska.zookeeper.listener=2181 is not an address"),
    ],
)
def test_a_tree_that_cannot_be_had_stops_the_start(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    async def work() -> None:
        with pytest.raises(JesenskaError, match=words):
            async with broker_on(tmp_path, settings):
                pass

    run(work)


def test_the_tree_takes_as_many_connections_of_a_host_as_the_broker_does(tmp_path: Path) -> None:
    """Tools of 0.8 do not close their connections. ZooKeeper's own limit of 60 would end them."""

    async def work() -> None:
        async with (
            broker_on(tmp_path, {"jesenska.zookeeper.listener": "127.0.0.1:0"}) as broker,
            contextlib.AsyncExitStack() as tools,
        ):
            assert broker.tree_served_at is not None
            for _ in range(70):
                await tools.enter_async_context(tool("{}:{}".format(*broker.tree_served_at)))
        async with broker_on(
            tmp_path, {"jesenska.zookeeper.listener": "127.0.0.1:0", "max.connections.per.ip": "2"}
        ) as broker:
            assert broker.tree_served_at is not None
            address = "{}:{}".format(*broker.tree_served_at)
            async with tool(address), tool(address):
                with pytest.raises(ConnectionLossError):
                    await connect(address, session_timeout_ms=4000, connect_timeout_ms=300)

    run(work)


def test_the_broker_serves_its_own_tree(tmp_path: Path) -> None:
    async def work() -> None:
        for turn in range(2):
            async with broker_on(tmp_path, {"jesenska.zookeeper.listener": "127.0.0.1:0"}) as broker:
                assert broker.tree_served_at is not None
                async with tool("{}:{}".format(*broker.tree_served_at)) as store:
                    found = nodes.BrokerRegistration.decode((await store.get(paths.broker(0)))[0])
                    assert (found.endpoints[0].host, found.endpoints[0].port) == broker.endpoint_for("PLAINTEXT")
                    name = f"turn-{turn}"
                    await store.create(paths.topic(name), OLD_TOPIC)
                    await until(partial(broker.view.topics.__contains__, name))
                    await goes_round(broker, name, 1, b"value")
                    assert len(broker.view.topics) == turn + 1
                    with pytest.raises(NodeExistsError):
                        await store.create(paths.topic(name), OLD_TOPIC)

    run(work)
