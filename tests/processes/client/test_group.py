"""Members of a group through our own client against our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, KafkaError, NetworkException, UnknownMemberIdError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.group import GroupConsumer, RebalanceCallback
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.positions import Position
from jesenska.client.producer import Producer
from jesenska.client.retries import persistently
from jesenska.testing import BrokerProcess

_COORDINATOR_PASSES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
FAST = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@pytest.fixture(scope="module")
def fast_broker(tmp_path_factory: pytest.TempPathFactory) -> object:
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=FAST) as running:
        yield running


def run(broker: BrokerProcess, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster(broker.bootstrap)
        try:
            async with asyncio.timeout(60):
                await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(main())


async def fill(cluster: Cluster, topic: str, partitions: int, count: int, start: int = 0) -> None:
    await Admin(cluster).create_topics([NewTopic(topic, partitions, 1)])
    async with Producer(cluster) as producer:
        for number in range(start, start + count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def member(
    cluster: Cluster,
    group: str,
    topic: str,
    *,
    heartbeat: float = 0.05,
    assignors: tuple[str, ...] = ("range",),
    instance: str | None = None,
    max_poll_interval: float = 10,
    on_revoked: RebalanceCallback = lambda _: None,
) -> GroupConsumer:
    return GroupConsumer(
        cluster,
        group,
        [topic],
        MembershipOptions(
            assignors=assignors,
            group_instance_id=instance,
            session_timeout_seconds=5,
            max_poll_interval_seconds=max_poll_interval,
            heartbeat_seconds=heartbeat,
        ),
        on_revoked=on_revoked,
        auto_offset_reset="earliest",
        max_wait_seconds=0.05,
    )


async def settle(members: list[GroupConsumer], partitions: int) -> None:
    """Polls with each member until together they own every partition."""

    def settled() -> bool:
        owned = [key for item in members for key in item.assignment()]
        return len(owned) == len(set(owned)) == partitions and all(item.assignment() for item in members)

    async def keep_polling(item: GroupConsumer) -> None:
        while not settled():
            await item.poll(0.1)

    async with asyncio.timeout(30):
        await asyncio.gather(*map(keep_polling, members))


def test_a_group_reads_everything_once_and_goes_on_where_it_committed(fast_broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "once", 3, 300)
        for expected in (range(300), range(300, 400)):
            seen: list[int] = []
            async with member(cluster, "readers", "once") as consumer:
                while len(seen) < len(expected):
                    for records in (await consumer.poll(1)).values():
                        seen += [int(record.value or b"") for record in records]
            assert sorted(seen) == list(expected)
            await fill(cluster, "once", 3, 100, 300)

    run(fast_broker, work)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    fast_broker: BrokerProcess, assignor: str
) -> None:
    topic = f"shared-{assignor}"

    async def work(cluster: Cluster) -> None:
        await fill(cluster, topic, 6, 60)
        first = member(cluster, topic, topic, assignors=(assignor,))
        await settle([first], 6)
        others = [Cluster(cluster.bootstrap[0][0] + f":{cluster.bootstrap[0][1]}") for _ in range(2)]
        second, third = (member(other, topic, topic, assignors=(assignor,)) for other in others)
        await settle([first, second, third], 6)
        assert all(len(item.assignment()) == 2 for item in (first, second, third))
        await second.close()
        await settle([first, third], 6)
        await first.close()
        await third.close()
        for other in others:
            await other.close()

    run(fast_broker, work)


def test_a_member_that_dies_is_replaced_when_its_session_ends(fast_broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "deaths", 4, 40)
        other = Cluster(fast_broker.bootstrap)
        first, second = member(cluster, "mortals", "deaths"), member(other, "mortals", "deaths")
        first._membership._session_ms = second._membership._session_ms = 500
        await settle([first, second], 4)
        await second._membership.stop_heartbeats()
        await other.close()
        await settle([first], 4)
        await first.close()

    run(fast_broker, work)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_that_is_not_polled_in_time_leaves_and_can_come_back(
    fast_broker: BrokerProcess, assignor: str
) -> None:
    topic = f"unpolled-{assignor}"

    async def work(cluster: Cluster) -> None:
        await fill(cluster, topic, 4, 40)
        other = Cluster(fast_broker.bootstrap)
        revoked: list[TopicPartition] = []
        idle = member(cluster, topic, topic, assignors=(assignor,), max_poll_interval=1, on_revoked=revoked.extend)
        busy = member(other, topic, topic, assignors=(assignor,))
        await settle([idle, busy], 4)
        had, identity = idle.assignment(), idle.member_id
        revoked.clear()

        async with asyncio.timeout(30):
            while len(busy.assignment()) < 4:  # `idle` sends heartbeats all the while
                await busy.poll(0.1)
        with pytest.raises(UnknownMemberIdError):
            await idle.commit(dict.fromkeys(had, 1))
        await settle([idle, busy], 4)
        assert set(revoked) == had
        assert idle.member_id != identity
        await idle.close()
        await busy.close()
        await other.close()

    run(fast_broker, work)


def test_a_member_that_is_forgotten_does_not_move_the_offsets_of_its_group(fast_broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "set-back", 1, 50)
        key = TopicPartition("set-back", 0)
        consumer = member(cluster, "set-back", "set-back", max_poll_interval=0.3)
        await settle([consumer], 1)
        admin = Admin(cluster)
        async with asyncio.timeout(30):
            while (
                not isinstance(state := (await admin.describe_groups(["set-back"]))["set-back"], KafkaError)
                and state.state != "Empty"
            ):
                await asyncio.sleep(0.05)
        assert await admin.alter_group_offsets("set-back", {key: 40}) == {key: None}
        with pytest.raises(UnknownMemberIdError):
            await consumer.commit({key: 1})
        await consumer.close()
        assert (await admin.list_group_offsets("set-back"))[key].offset == 40

    run(fast_broker, work)


def test_a_group_reads_partitions_that_a_topic_gets_and_topics_that_come_later(fast_broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "growing", 2, 10)
        others = [Cluster(fast_broker.bootstrap, ClientConfig(metadata_max_age_seconds=0.1)) for _ in range(2)]
        members = [member(other, "growing", "growing") for other in others]
        for item in members:
            item.subscribe(["growing", "later"])
        await settle(members, 2)
        await Admin(cluster).create_partitions({"growing": 4})
        await settle(members, 4)
        await fill(cluster, "later", 2, 10)
        await settle(members, 6)
        for item, other in zip(members, others, strict=True):
            await item.close()
            await other.close()

    run(fast_broker, work)


def test_a_static_leader_that_came_back_goes_on_watching_topics(fast_broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "watched", 2, 10)
        others = [Cluster(fast_broker.bootstrap, ClientConfig(metadata_max_age_seconds=0.1)) for _ in range(2)]
        first = member(others[0], "watchers", "watched", instance="leader")
        await settle([first], 2)
        generation = first.generation
        await first.close()
        back = member(others[1], "watchers", "watched", instance="leader")
        await settle([back], 2)
        assert back.generation == generation  # it shared nothing out
        await Admin(cluster).create_partitions({"watched": 3})
        await settle([back], 3)
        await back.close()
        for other in others:
            await other.close()

    run(fast_broker, work)


def test_a_member_whose_offsets_could_not_be_read_when_it_joined_joins_again(
    fast_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "unread", 2, 10)
        consumer = member(cluster, "unread", "unread")
        fails = [NetworkException("gone"), NetworkException("gone")]
        committed = consumer.committed_positions

        async def broken(keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
            if fails:
                raise fails.pop()
            return await committed(keys)

        monkeypatch.setattr(consumer, "committed_positions", broken)
        await settle([consumer], 2)
        assert not fails
        await consumer.close()

    run(fast_broker, work)


def test_a_group_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=FAST) as broker:

        async def work(cluster: Cluster) -> None:
            await fill(cluster, "kept", 2, 100)
            consumer = member(cluster, "survivors", "kept")
            seen: list[int] = []

            async def read(count: int) -> None:
                while len(seen) < count:
                    for records in (await consumer.poll(1)).values():
                        seen.extend(int(record.value or b"") for record in records)

            await read(100)
            await consumer.commit()
            broker.kill()
            broker.start()
            await fill(cluster, "kept", 2, 50, 100)
            await read(150)
            assert sorted(seen) == list(range(150))
            # Records are read while the coordinator may still be loading its old offsets: a commit is refused with
            # that error then.
            await persistently(cluster, _COORDINATOR_PASSES, consumer.commit)
            assert await consumer.committed([TopicPartition("kept", 0)]) == {TopicPartition("kept", 0): 75}
            await consumer.close()

        run(broker, work)


def test_a_commit_has_the_leader_epoch_of_what_was_read_and_the_next_member_begins_with_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=FAST) as broker:
        key = TopicPartition("epochs", 0)

        async def work(cluster: Cluster) -> None:
            await fill(cluster, "epochs", 1, 3)
            broker.kill()
            broker.start()
            await fill(cluster, "epochs", 1, 3)
            epoch = (await cluster.topics())["epochs"].partitions[0].leader_epoch
            assert epoch > 0
            first = member(cluster, "g", "epochs")
            read = 0
            while read < 6:
                read += sum(map(len, (await first.poll(1)).values()))
            await first.commit()
            assert await first.committed_positions([key]) == {key: Position(6, epoch)}
            # An offset that is the position has its epoch, another one the epoch that is given, if any.
            for offset, committed in ((6, Position(6, epoch)), (2, Position(2)), (Position(3, 0), Position(3, 0))):
                await first.commit({key: offset})
                assert await first.committed_positions([key]) == {key: committed}
            await first.close()
            second = member(cluster, "g", "epochs")
            while not second.assignment():
                await second.poll(0)
            # The first one has committed its position as it went.
            assert second._consumer.position_with_epoch(key) == Position(6, epoch)
            await second.close()

        run(broker, work)
