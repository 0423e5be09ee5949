"""The client inside writes and reads transactions at Apache Kafka (3.9.1 without transaction.version 2, 4.3.1 with it)
and at our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode, InvalidTxnStateError, KafkaError, MessageTooLargeError, ProducerFencedError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.coordinators import find_coordinator
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.positions import Position
from jesenska.client.producer import Producer
from jesenska.client.transactions import GroupMetadata
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from tests.conformance.conftest import RELEASES_OF_TRANSACTIONS, need
from tests.peers.apache_kafka import ApacheKafka

pytestmark = pytest.mark.conformance

_SETTINGS = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}

Work = Callable[[Cluster], Awaitable[None]]


OURS = "ours"


@pytest.fixture(scope="module", params=[*RELEASES_OF_TRANSACTIONS, OURS])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def has_version_2(release: str) -> bool:
    """Whether the cluster has transaction.version 2."""
    return release != "3.9.1"


@pytest.fixture(scope="module")
def bootstrap(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if release == OURS:
        with BrokerProcess(tmp_path_factory.mktemp("ours"), settings=_SETTINGS) as ours:
            yield ours.bootstrap
        return
    need("java", "mvn")
    with ApacheKafka(release, tmp_path_factory.mktemp("kafka"), heap="384m", settings=_SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def run(bootstrap: str) -> Callable[[Work], None]:
    def running(work: Work) -> None:
        async def whole() -> None:
            cluster = Cluster(bootstrap)
            try:
                async with asyncio.timeout(60):
                    await work(cluster)
            finally:
                await cluster.close()

        asyncio.run(whole())

    return running


async def make_topic(cluster: Cluster, name: str, partitions: int = 2) -> None:
    await Admin(cluster).create_topics([NewTopic(name, partitions, 1)])


async def values(cluster: Cluster, topic: str, *, committed: bool = True, partitions: int = 2) -> list[bytes]:
    """What a reader finds up to where it can read now, partition by partition."""
    keys = [TopicPartition(topic, number) for number in range(partitions)]
    ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST), 1 if committed else 0)
    consumer = Consumer(cluster, auto_offset_reset="earliest", isolation_level=1 if committed else 0)
    await consumer.assign(dict.fromkeys(keys, 0))
    found: dict[TopicPartition, list[bytes]] = {key: [] for key in keys}
    while any(consumer.position(key) < ends[key].offset for key in keys):
        for key, records in (await consumer.poll(5)).items():
            found[key] += [bytes(record.value or b"") for record in records]
    await consumer.close()
    return [value for key in keys for value in found[key]]


async def values_end(cluster: Cluster, topic: str) -> bool:
    """Whether the broker has aborted the one record of a topic."""
    key = TopicPartition(topic, 0)
    return (await list_offsets(cluster, {key: LATEST}, 1))[key].offset >= 2


def test_a_transaction_is_read_whole_or_not_at_all(run: Callable[[Work], None], has_version_2: bool) -> None:
    async def work(cluster: Cluster) -> None:
        await make_topic(cluster, "whole")
        async with Producer(cluster, transactional_id="whole") as producer:
            await producer.init_transactions()
            assert producer.transactions is not None
            assert producer.transactions.is_version_2 is has_version_2
            async with producer.transaction():
                for number in range(4):
                    await producer.send("whole", b"kept %d" % number, partition=number % 2)
            with pytest.raises(RuntimeError, match="wanted"):
                async with producer.transaction():
                    for number in range(4):
                        await producer.send("whole", b"dropped %d" % number, partition=number % 2)
                    await producer.flush()
                    assert len(await values(cluster, "whole")) == 4
                    raise RuntimeError("wanted")
            async with producer.transaction():
                pass
            async with producer.transaction():
                await producer.send_batch(
                    "whole", 1, encode_batch([(1, None, b"a batch", ()), (2, None, b"of two", ())])
                )
        assert await values(cluster, "whole") == [b"kept 0", b"kept 2", b"kept 1", b"kept 3", b"a batch", b"of two"]
        assert len(await values(cluster, "whole", committed=False)) == 10

    run(work)


def test_offsets_are_committed_with_the_transaction(run: Callable[[Work], None]) -> None:
    async def work(cluster: Cluster) -> None:
        await make_topic(cluster, "in", 1)
        await make_topic(cluster, "out", 1)
        async with Producer(cluster) as plain:
            for number in range(3):
                await plain.send("in", b"%d" % number)
        member = GroupConsumer(
            cluster, "both", ["in"], auto_offset_reset="earliest", auto_commit_seconds=None, isolation_level=1
        )
        source = TopicPartition("in", 0)
        async with Producer(cluster, transactional_id="both") as producer:
            await producer.init_transactions()
            seen: list[bytes] = []
            while len(seen) < 3:
                for records in (await member.poll(1)).values():
                    seen += [bytes(record.value or b"") for record in records]
            for ends_well in (False, True):
                producer.begin_transaction()
                await producer.send("out", b"".join(seen))
                await producer.send_offsets_to_transaction({source: Position(3)}, member.group_metadata())
                await (producer.commit_transaction() if ends_well else producer.abort_transaction())
                committed = await member.committed_positions([source])
                assert (source in committed and committed[source].offset == 3) is ends_well
            # A member of a generation that is over is refused, and the transaction can only be aborted.
            producer.begin_transaction()
            with pytest.raises(KafkaError):
                await producer.send_offsets_to_transaction(
                    {source: Position(1)}, GroupMetadata("both", 99, member.member_id)
                )
            with pytest.raises(KafkaError):
                await producer.commit_transaction()
            await producer.abort_transaction()
        await member.close()
        assert await values(cluster, "out", partitions=1) == [b"012"]

    run(work)


def test_a_member_that_the_group_has_forgotten_commits_no_offsets(run: Callable[[Work], None]) -> None:
    """It finds that out by a heartbeat, between a poll and the commit: what it has read is another member's now."""

    async def work(cluster: Cluster) -> None:
        await make_topic(cluster, "lost-in", 1)
        await make_topic(cluster, "lost-out", 1)
        source = TopicPartition("lost-in", 0)
        async with Producer(cluster) as plain:
            await plain.send("lost-in", b"0")
        member = GroupConsumer(
            cluster,
            "lost",
            ["lost-in"],
            MembershipOptions(heartbeat_seconds=0.1),
            auto_offset_reset="earliest",
            auto_commit_seconds=None,
        )
        while not await member.poll(1):
            pass
        leave = LeaveGroupRequest(group_id="lost", members=[LeaveGroupRequestMember(member_id=member.member_id)])
        answer = await cluster.ask_broker(await find_coordinator(cluster, "lost"), leave, LeaveGroupResponse)
        assert (answer.error_code, answer.members[0].error_code) == (0, 0)
        while member.generation >= 0:
            await asyncio.sleep(0.02)
        async with Producer(cluster, transactional_id="lost") as producer:
            await producer.init_transactions()
            with pytest.raises(KafkaError) as refused:
                async with producer.transaction():
                    await producer.send("lost-out", b"0")
                    await producer.send_offsets_to_transaction({source: Position(1)}, member.group_metadata())
        assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert source not in await member.committed_positions([source])
        await member.close()
        assert await values(cluster, "lost-out", partitions=1) == []

    run(work)


def test_a_second_producer_fences_the_first(run: Callable[[Work], None]) -> None:
    async def work(cluster: Cluster) -> None:
        await make_topic(cluster, "fenced", 1)
        first, second = (Producer(cluster, transactional_id="one name") for _ in range(2))
        await first.init_transactions()
        first.begin_transaction()
        await (await first.send("fenced", b"of the first"))
        await second.init_transactions()
        async with second.transaction():
            await second.send("fenced", b"of the second")
        with pytest.raises(ProducerFencedError):
            await first.commit_transaction()
        with pytest.raises(ProducerFencedError):
            first.begin_transaction()
        for producer in (first, second):
            await producer.close()
        assert await values(cluster, "fenced", partitions=1) == [b"of the second"]

    run(work)


def test_a_record_that_cannot_be_written_leaves_nothing_but_to_abort(run: Callable[[Work], None]) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic("small", 1, 1, {"max.message.bytes": "2000"})])
        async with Producer(cluster, transactional_id="small") as producer:
            await producer.init_transactions()
            with pytest.raises(MessageTooLargeError):
                async with producer.transaction():
                    await producer.send("small", b"written")
                    await producer.flush()
                    await producer.send("small", bytes(4000))
            # The numbers that the broker expects are known again.
            for number in range(3):
                async with producer.transaction():
                    await producer.send("small", b"after %d" % number)
        assert await values(cluster, "small", partitions=1) == [b"after 0", b"after 1", b"after 2"]

    run(work)


def test_a_transaction_that_takes_too_long_is_over(run: Callable[[Work], None]) -> None:
    async def work(cluster: Cluster) -> None:
        await make_topic(cluster, "late", 1)
        async with Producer(cluster, transactional_id="late", transaction_timeout_seconds=1.0) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("late", b"too late"))
            while not await values_end(cluster, "late"):
                await asyncio.sleep(0.1)
            with pytest.raises(KafkaError):
                await producer.commit_transaction()
        assert await values(cluster, "late", partitions=1) == []

    run(work)


def test_what_comes_too_early_is_refused_here(run: Callable[[Work], None]) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Producer(cluster, transactional_id="early")
        calls: list[Callable[[], Any]] = [
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("early", b""),
        ]
        for call in calls:
            with pytest.raises(InvalidTxnStateError, match="init_transactions"):
                await call()
        with pytest.raises(InvalidTxnStateError, match="init_transactions"):
            producer.begin_transaction()
        await producer.init_transactions()
        with pytest.raises(InvalidTxnStateError, match="begin_transaction"):
            await producer.send("early", b"")
        producer.begin_transaction()
        with pytest.raises(InvalidTxnStateError, match="open already"):
            producer.begin_transaction()
        await producer.abort_transaction()
        await producer.close()

    run(work)
