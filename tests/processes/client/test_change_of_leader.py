"""A leader fails, or a broker names an earlier leader: the client's behaviour until it has found the right one."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.on_a_loop import on_a_loop
from tests.processes.client.scripted_broker import ScriptedBroker

TOPIC_ID = uuid.UUID(int=3)
KEY = TopicPartition("t", 0)


@dataclass
class Script:
    """Two brokers that give the same metadata of one topic, and the records that were produced to each."""

    leader: int = 0
    leader_epoch: int = 0
    topic_id: uuid.UUID = TOPIC_ID
    ports: dict[int, int] = field(default_factory=dict)
    produced: list[int] = field(default_factory=list)

    def metadata(self, request: Message) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number, port in self.ports.items()
        ]
        partition = MetadataResponsePartition(
            leader_id=self.leader, leader_epoch=self.leader_epoch, replica_nodes=[0, 1], isr_nodes=[0, 1]
        )
        return MetadataResponse(
            brokers=brokers, topics=[MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[partition])]
        )

    def broker(self, number: int) -> ScriptedBroker:
        def produce(request: Message) -> ProduceResponse:
            self.produced.append(number)
            answers = [ProduceResponsePartition(base_offset=len(self.produced) - 1)]
            return ProduceResponse(responses=[ProduceResponseTopic(name="t", partition_responses=answers)])

        return ScriptedBroker({MetadataRequest: self.metadata, ProduceRequest: produce})

    def cluster(self) -> Cluster:
        return Cluster(
            [f"127.0.0.1:{port}" for port in self.ports.values()],
            ClientConfig(retry_backoff_seconds=0.01, reconnect_backoff_seconds=0.01),
        )


@on_a_loop
async def test_a_producer_asks_who_leads_when_the_leader_cannot_be_reached() -> None:
    script = Script()
    async with asyncio.timeout(30), script.broker(0) as first, script.broker(1) as second:
        script.ports = {0: first.port, 1: second.port}
        cluster = script.cluster()
        async with Producer(cluster, enable_idempotence=False) as producer:
            assert (await (await producer.send("t", b"a"))).offset == 0
            await first.stop()
            script.leader, script.leader_epoch = 1, 1
            assert (await (await producer.send("t", b"b"))).offset == 1
        assert script.produced == [0, 1]
        await cluster.close()


@on_a_loop
async def test_a_broker_that_tells_of_an_earlier_leader_is_not_believed() -> None:
    script = Script(leader=1, leader_epoch=5)
    async with asyncio.timeout(30), script.broker(0) as first, script.broker(1) as second:
        script.ports = {0: first.port, 1: second.port}
        cluster = script.cluster()
        assert (await cluster.leader_of(KEY)).leader == 1
        script.leader, script.leader_epoch = 0, 4
        cluster.forget_topic("t")
        found = await cluster.leader_of(KEY)
        assert (found.leader, found.leader_epoch) == (1, 5)
        # The metadata are of a newer epoch, and of a topic that was deleted and created again.
        script.leader_epoch = 6
        cluster.forget_topic("t")
        assert (await cluster.leader_of(KEY)).leader_epoch == 6
        script.leader_epoch, script.topic_id = 0, uuid.UUID(int=4)
        cluster.forget_topic("t")
        assert (await cluster.leader_of(KEY)).leader_epoch == 0
        await cluster.close()
