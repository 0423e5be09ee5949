"""kafka-preferred-replica-election: through the tree, and through a broker of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from jesenska.cli.kafka.cluster import kafka_preferred_replica_election
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.store import Store
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from tests.peers.apache_kafka import free_port
from tests.processes.cli.conftest import Result, Tool
from tests.processes.cli.groups import fill
from tests.served_tree import ServedTree

Value = TypeVar("Value")


def in_tree(address: str, work: Callable[[Store], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        store = await connect(address, session_timeout_ms=4000)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


@pytest.fixture
def tree() -> Iterator[str]:
    """A tree with two topics and no broker, so requests stay in it."""

    async def write(store: Store) -> None:
        for path in ("/admin", "/brokers", paths.TOPICS):
            await store.create(path)
        await store.create(paths.topic("a"), TopicNode({0: (1, 2), 1: (2, 1)}, None).encode())
        await store.create(paths.topic("b"), TopicNode({0: (2, 1)}, None).encode())

    with ServedTree() as running:
        in_tree(running.address, write)
        yield running.address


def asked(address: str) -> bytes | None:
    """The requested election in the tree, or None."""

    async def look(store: Store) -> bytes | None:
        if await store.exists(paths.PREFERRED_REPLICA_ELECTION) is None:
            return None
        return (await store.get(paths.PREFERRED_REPLICA_ELECTION))[0]

    return in_tree(address, look)


def run(tool: Tool, address: str, *arguments: str) -> Result:
    return tool(kafka_preferred_replica_election.main, "--zookeeper", address, *arguments)


def file_of(directory: Path, *partitions: tuple[str, int]) -> str:
    file = directory / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": number} for topic, number in partitions]}))
    return str(file)


def test_all_partitions_are_asked_for_in_the_tree(tool: Tool, tree: str) -> None:
    written = '{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"a","partition":1},{"topic":"b","partition":0}]}'  # noqa: E501
    assert run(tool, tree) == Result(
        0,
        f"Created preferred replica election path with {written}\nSuccessfully started preferred replica election "
        f"for partitions Set(a-0, a-1, b-0)\n",
        "",
    )
    assert asked(tree) == written.encode()


def test_while_one_is_under_way_no_other_is_begun(tool: Tool, tree: str, tmp_path: Path) -> None:
    assert run(tool, tree, "--path-to-json-file", file_of(tmp_path, ("b", 0))).code == 0
    before = asked(tree)
    again = run(tool, tree)
    assert (again.code, again.out) == (1, "")
    assert "Preferred replica leader election currently in progress for b-0" in again.err
    assert asked(tree) == before


def test_partitions_that_do_not_exist_are_skipped(tool: Tool, tree: str, tmp_path: Path) -> None:
    named = file_of(tmp_path, ("a", 1), ("a", 2), ("c", 0))
    result = run(tool, tree, "--path-to-json-file", named)
    assert result.code == 1
    assert result.lines == [
        'Created preferred replica election path with {"version":1,"partitions":[{"topic":"a","partition":1}]}',
        "Successfully started preferred replica election for partitions Set(a-1)",
        "Skipping preferred replica leader election for partition a-2 since it doesn't exist.",
        "Skipping preferred replica leader election for partition c-0 since it doesn't exist.",
    ]
    assert "2 of the partitions do not exist (the first is a-2)" in result.err
    assert asked(tree) == b'{"version":1,"partitions":[{"topic":"a","partition":1}]}'


@pytest.mark.parametrize("name", ["c", "a/partitions", "", "..", "../ids"])
def test_where_none_of_them_exists_nothing_is_asked_for(tool: Tool, tree: str, tmp_path: Path, name: str) -> None:
    result = run(tool, tree, "--path-to-json-file", file_of(tmp_path, (name, 0)), "--output", "json")
    assert result.code == 1
    assert json.loads(result.out) == [{"topic": name, "partition": 0, "asked": False}]
    assert asked(tree) is None


def test_the_controller_takes_the_wish_away(tool: Tool, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path / "data", settings={"jesenska.zookeeper.listener": address}) as broker:
        fill(broker, "t", 2, 0)
        result = run(tool, address, "--output", "json")
        assert (result.code, result.err) == (0, "")
        assert json.loads(result.out) == [{"topic": "t", "partition": number, "asked": True} for number in range(2)]

        async def until_gone(store: Store) -> None:
            async with asyncio.timeout(60):
                gone = asyncio.Event()
                while await store.exists(paths.PREFERRED_REPLICA_ELECTION, lambda _: gone.set()) is not None:
                    await gone.wait()
                    gone.clear()

        in_tree(address, until_gone)


def test_a_broker_is_asked_and_says_what_became_of_each(at: Tool, broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker, "preferred", 2, 0)
    result = at(
        kafka_preferred_replica_election.main,
        "--path-to-json-file",
        file_of(tmp_path, ("preferred", 1), ("preferred", 0)),
    )
    assert result == Result(0, "Preferred replica already elected for partitions preferred-0, preferred-1\n", "")
    result = at(kafka_preferred_replica_election.main, "--path-to-json-file", file_of(tmp_path, ("preferred", 2)))
    assert result.code == 1
    assert result.lines == [
        "Error completing preferred leader election for partition: preferred-2: "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such partition as preferred-2"
    ]
    assert "1 preferred replica(s) could not be elected" in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--bootstrap-server", "h:1", "--zookeeper", "h:2"],
            "Exactly one of --bootstrap-server and --zookeeper must be provided",
        ),
        (["--path-to-json-file", "/nowhere"], "The file /nowhere cannot be read"),
        (["--output", "json"], "No broker is named"),
        (["--zookeeper", "h:2", "--admin.config", "f"], "can only be used with --bootstrap-server"),
        (["--zookeeper", "127.0.0.1:1"], "No ZooKeeper answers at 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(tool: Tool, arguments: list[str], says: str) -> None:
    result = tool(kafka_preferred_replica_election.main, *arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err.splitlines()[-1]
