"""`jesenska balance`, `decommission` and `recommission` on a cluster of four brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.base.errors import InvalidReplicationFactorError, KafkaError
from jesenska.cli.jesenska import main as jesenska
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from tests.cluster.cluster import BrokerCluster, until
from tests.processes.cli.conftest import Tool, tool

__all__ = ["tool"]

_QUICK = ("--sample-seconds", "0.01")


@pytest.fixture(scope="module")
def _four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("four"), brokers=4, session_ms=60_000) as running:
        yield running


@pytest.fixture
def four(_four: BrokerCluster) -> BrokerCluster:
    """Four brokers that all take new replicas."""
    _four.heal()
    for broker_id in _four.brokers:
        jesenska(["recommission", str(broker_id), "--bootstrap-server", _four.bootstrap])
    return _four


def _answer(tool: Tool, *words: str, cluster: BrokerCluster) -> Any:
    done = tool(jesenska, *words, "--bootstrap-server", cluster.bootstrap, "--output", "json", *_QUICK)
    assert done.code == 0, done.err
    return json.loads(done.out)


def _replicas_on(cluster: BrokerCluster, broker_id: int) -> int:
    view = cluster.view()
    return sum(broker_id in item.replicas for partitions in view.topics.values() for item in partitions)


def test_replicas_and_leaders_become_even(four: BrokerCluster, tool: Tool) -> None:
    topic = four.create("uneven", placed=[[1, 2]] * 12)
    for number in range(12):
        four.write(topic, [bytes(1000)] * (20 + 10 * number), partition=number)
    shown = _answer(tool, "balance", cluster=four)
    assert (shown["executed"], len(shown["partitions"]) > 0) == (False, True)
    assert _replicas_on(four, 3) == 0 or four.view().of(topic).replicas == (1, 2)
    done = _answer(tool, "balance", "--execute", "--throttle", "100M", cluster=four)
    assert done["executed"]
    after = _answer(tool, "balance", cluster=four)["brokers"]
    for of in ("size_bytes", "leaders"):
        loads = [broker["before"][of] for broker in after.values()]
        assert max(loads) <= 1.15 * sum(loads) / 4, (of, loads)
    led = [item.leader for item in four.view().topics[topic]]
    assert max(led.count(broker_id) for broker_id in four.brokers) <= 4
    for number in range(12):
        assert len(four.values(topic, number)) == 20 + 10 * number


def test_a_broker_is_emptied_gets_nothing_new_and_takes_part_again(four: BrokerCluster, tool: Tool) -> None:
    topic = four.create("emptied", partitions=6, replicas=2)
    four.write(topic, [b"x"] * 10)
    assert tool(jesenska, "decommission", "2", "--bootstrap-server", four.bootstrap, *_QUICK).code == 0
    assert _replicas_on(four, 2) > 0
    done = tool(jesenska, "decommission", "2", "--execute", "--bootstrap-server", four.bootstrap, *_QUICK)
    assert done.code == 0, done.err
    assert "Broker 2 has no replicas, and gets no new ones: stop it" in done.out
    until(lambda: _replicas_on(four, 2) == 0, "broker 2 keeps replicas")
    four.create("afterwards", partitions=6, replicas=3)
    assert _replicas_on(four, 2) == 0
    assert len(four.values(topic)) == 10

    async def too_many(client: Cluster) -> KafkaError | None:
        return (await Admin(client).create_topics([NewTopic("too_many", 1, 4)]))["too_many"]

    assert isinstance(four.ask(too_many), InvalidReplicationFactorError)
    assert tool(jesenska, "recommission", "2", "--bootstrap-server", four.bootstrap).code == 0
    _answer(tool, "balance", "--execute", cluster=four)
    assert _replicas_on(four, 2) > 0


def test_an_interrupted_balance_goes_on_with_the_same_command(four: BrokerCluster, tool: Tool) -> None:
    topic = four.create("interrupted", placed=[[3, 4]] * 8)
    for number in range(8):
        four.write(topic, [bytes(1000)] * 300, partition=number)
    words = ("decommission", "3", "--execute", "--at-once", "1", "--throttle", "50K")
    with subprocess.Popen(
        [sys.executable, "-m", "jesenska", *words, "--bootstrap-server", four.bootstrap, *_QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "partitions moved" in line)
        assert " of " in line
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 130
    assert "The moves that have begun go on." in rest
    assert _replicas_on(four, 3) > 0
    done = tool(jesenska, *words[:3], "--throttle", "100M", "--bootstrap-server", four.bootstrap, *_QUICK)
    assert done.code == 0, done.err
    until(lambda: _replicas_on(four, 3) == 0, "broker 3 keeps replicas")
    assert all(len(four.values(topic, number)) == 300 for number in range(8))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("decommission", "9"), "There is no broker 9: the cluster has 1, 2, 3, 4."),
        (
            ("balance", "--goals", "beauty"),
            "--goals beauty is not a list of goals: write one or more of bytes, rates, leaders, separated by commas.",
        ),
        (("balance", "--throttle", "fast"), "'fast' is not a rate: write bytes a second, such as 50M"),
        (("balance", "--tolerance", "-1"), "'-1' is not a percentage"),
        (("balance", "--at-once", "0"), "'0' is not a number of partitions"),
    ],
)
def test_a_mistake_is_one_sentence(four: BrokerCluster, tool: Tool, words: tuple[str, ...], says: str) -> None:
    done = tool(jesenska, *words, "--bootstrap-server", four.bootstrap, *_QUICK)
    assert done.code == 1
    assert says in done.err


def test_a_broker_that_is_gone_is_replaced_by_the_others(four: BrokerCluster, tool: Tool) -> None:
    topic = four.create("gone", placed=[[4, 1], [1, 4], [4, 2], [3, 4]])
    four.write(topic, [b"x"] * 10)
    four.brokers[4].stop()
    four.until(lambda view: 4 not in view.brokers)
    done = tool(jesenska, "decommission", "4", "--execute", "--bootstrap-server", four.bootstrap, *_QUICK)
    assert done.code == 0, done.err
    four.until(lambda view: all(item.is_whole and 4 not in item.replicas for item in view.topics[topic]))
    four.brokers[4].start()
    four.until_whole()
    until(lambda: not any(four.brokers[4].data.glob(f"{topic}-*")), "broker 4 keeps logs")
    assert len(four.values(topic)) == 10


def test_a_broker_that_nobody_can_replace_stays(four: BrokerCluster, tool: Tool) -> None:
    four.create("everywhere", replicas=4)
    try:
        done = tool(jesenska, "decommission", "1", "--execute", "--bootstrap-server", four.bootstrap, *_QUICK)
        assert done.code == 1
        assert "Broker 1 cannot be emptied: 1 partitions, such as everywhere-0, have a replica on every broker" in (
            done.err
        )
        assert _replicas_on(four, 1) > 1
    finally:
        four.ask(lambda client: Admin(client).delete_topics(["everywhere"]))
