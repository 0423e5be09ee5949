"""The raw answers to AlterPartitionReassignments and ListPartitionReassignments, of Apache Kafka 4.3.1 and of our
brokers: error codes, messages, and what is under way after each request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)
from tests.cluster.cluster import BrokerCluster
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.cli.groups import ask
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

_SETTINGS = {"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}
_ThePartitions = Sequence[tuple[int, Sequence[int] | None]]


class _Side:
    """Three brokers 0 to 2. The topic `small` has no records; `big` has some, and followers that do not catch up."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.told: list[Any] = []

    def prepare(self) -> None:
        async def work(cluster: Cluster) -> None:
            admin = Admin(cluster)
            topics = [NewTopic("small", assignment=[[0, 1], [1, 2]]), NewTopic("big", assignment=[[0, 1], [1, 0]])]
            assert set((await admin.create_topics(topics)).values()) == {None}
            async with Producer(cluster, acks=-1) as producer:
                for number in range(400):
                    await producer.send("big", os.urandom(10_000), partition=number % 2)
            await admin.alter_configs(TOPIC, "big", [ConfigChange("follower.replication.throttled.replicas", "*")])
            for broker_id in range(3):
                changes = [ConfigChange("follower.replication.throttled.rate", "1")]
                await admin.alter_configs(BROKER, str(broker_id), changes)

        ask(self, work)

    def _answer(self, request: Any, version: int, response: type[Any]) -> Any:
        """The answer of the controller."""
        for address in self.bootstrap.split(","):
            with RawConnection(address) as connection:
                answer = connection.ask(request, version, response)
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                return answer
        raise AssertionError("no broker is the controller")

    def alter(self, *topics: tuple[str, _ThePartitions], version: int = 1, **more: Any) -> None:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=10_000,
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name=name,
                    partitions=[
                        AlterPartitionReassignmentsRequestPartition(
                            partition_index=number, replicas=None if replicas is None else list(replicas)
                        )
                        for number, replicas in partitions
                    ],
                )
                for name, partitions in topics
            ],
            **more,
        )
        answer = self._answer(request, version, AlterPartitionReassignmentsResponse)
        self.told.append(
            (
                ErrorCode(answer.error_code).name,
                answer.error_message,
                answer.allow_replication_factor_change,
                [
                    (topic.name, item.partition_index, ErrorCode(item.error_code).name, item.error_message)
                    for topic in answer.responses
                    for item in topic.partitions
                ],
            )
        )

    def list(self, *topics: tuple[str, Sequence[int]], names_all: bool = False) -> None:
        asked = [ListPartitionReassignmentsRequestTopic(name=name, partition_indexes=list(of)) for name, of in topics]
        request = ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None if names_all else asked)
        answer = self._answer(request, 0, ListPartitionReassignmentsResponse)
        self.told.append(
            (
                ErrorCode(answer.error_code).name,
                answer.error_message,
                sorted(
                    (topic.name, item.partition_index, item.replicas, item.adding_replicas, item.removing_replicas)
                    for topic in answer.topics
                    for item in topic.partitions
                ),
            )
        )


def _refused(side: _Side) -> None:
    """Requests with mistakes, and requests that change nothing."""
    side.alter()
    side.alter(("small", []))
    for name in ("never-was", "", "a/b"):
        side.alter((name, [(0, [1, 2])]))
        side.alter((name, [(0, None)]))
    for number in (9, -1, 2**31 - 1):
        side.alter(("small", [(number, [1, 2])]))
        side.alter(("small", [(number, None)]))
    side.alter(("small", [(0, None)]))
    for replicas in ([], [1, 1], [1, 1, 9], [0, 9, 9], [1, 9], [-1, 1], list(range(3, 5003)), [0] * 5000):
        side.alter(("small", [(0, replicas)]))
    forbidden: tuple[Sequence[int] | None, ...] = ([1], [0, 1, 2], [], [1, 2, 9], None, [0, 1])
    for target in forbidden:
        side.alter(("small", [(0, target)]), allow_replication_factor_change=False)
    side.alter(("small", [(0, [0, 1])]), version=0)
    side.alter(("small", [(0, [0, 1]), (0, [0, 1])]))
    side.alter(("small", [(number, [0, 1, 2]) for number in range(2, 4002)]))


def _moving(side: _Side) -> None:
    """Requests about partitions that move, and do not arrive."""
    side.alter(("big", [(0, [2, 1]), (0, [0, 2])]))
    side.list(names_all=True)
    side.alter(("big", [(0, None)]))
    side.list(names_all=True)
    side.alter(("big", [(0, [2, 1])]), ("big", [(1, [2, 0])]))
    side.list(names_all=True)
    side.alter(("big", [(0, None)]), ("big", [(0, None)]), ("big", [(1, None)]))
    side.list(names_all=True)
    side.alter(("big", [(0, [2, 1]), (7, [2, 1]), (1, [9])]), ("never-was", [(0, [1])]))
    side.list(names_all=True)
    side.list()
    for numbers in ([0, 1], [], [0, 0], [-1, 7]):
        side.list(("big", numbers))
    side.list(("never-was", [0]))
    side.list(("big", [0]), ("big", [0]))
    side.alter(("big", [(0, [2, 0])]), allow_replication_factor_change=False)
    side.list(names_all=True)
    side.alter(("big", [(0, [2, 0, 1])]), allow_replication_factor_change=False)
    side.list(names_all=True)
    side.alter(("big", [(0, None)]))


def _answers(bootstrap: str) -> list[Any]:
    side = _Side(bootstrap)
    side.prepare()
    _refused(side)
    _moving(side)
    return side.told


def test_the_same_requests_get_the_same_answers(tmp_path: Path) -> None:
    need("java", "mvn")
    with ApacheKafka("4.3.1", tmp_path / "kafka", nodes=3, heap="384m", settings=_SETTINGS) as kafka:
        theirs = _answers(kafka.bootstrap)
    cluster = BrokerCluster(tmp_path / "ours", session_ms=60_000, settings=_SETTINGS)
    try:
        ours = _answers(cluster.begin(range(3)).bootstrap)
    finally:
        cluster.end()
    assert len(ours) == len(theirs)
    for number, (our_answer, their_answer) in enumerate(zip(ours, theirs, strict=True)):
        assert our_answer == their_answer, number
