"""Loads `__consumer_offsets` at the start of a broker: with damaged batches, a disk that fails, transactions, and
topics that were deleted meanwhile."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from jesenska.base.backoff import Backoff
from jesenska.base.errors import CoordinatorLoadInProgressError, ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.base.regions import FileRegion
from jesenska.broker.server import Broker
from jesenska.broker.shared_parts import SharedParts
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.topics import TopicCreation, plan_deletion
from jesenska.coordination import runtime
from jesenska.coordination.shard import KeyValue
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import CommitOffsets, CommittedOffset, Join, JoinAnswer, PartitionsAnswer, Response
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.groups.records import OffsetCommitValue, offset_record
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlMarker, ControlType, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import HEADER_SIZE, read_header

_NAMES = [f"g{number}" for number in range(6)]
_LAST = 600
_RECORDS = HEADER_SIZE


@asynccontextmanager
async def running(data: Path, partitions: int = 1, **settings: str) -> AsyncIterator[Broker]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig(
        {
            "log.dirs": str(data),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": str(partitions),
            **given,
        }
    )
    broker = Broker(config)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


async def commit(broker: Broker, group: str, offset: int, topic: str = "t") -> ErrorCode:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    key = TopicPartition(topic, 0)
    offsets = ((key, CommittedOffset(offset, -1, "", broker.clock.now_ms())),)
    broker.coordinators.groups.submit(
        group, lambda token: CommitOffsets(token, group, -1, "", None, offsets), answered.set_result
    )
    response = await answered
    assert isinstance(response, PartitionsAnswer)
    return response.partitions[key]


async def loaded(broker: Broker, group: str = "g0") -> None:
    """Waits until the partition of a group is loaded."""
    while True:
        try:
            broker.coordinators.groups.coordinator_of(group)
            return
        except CoordinatorLoadInProgressError:
            await asyncio.sleep(0.01)


async def ready(broker: Broker, count: int) -> list[GroupCoordinator]:
    """The loaded coordinators, once there are this many and no other is being loaded for the first time."""
    while True:
        with suppress(CoordinatorLoadInProgressError):
            found = broker.coordinators.groups.coordinators()
            if len(found) == count:
                return found
        await asyncio.sleep(0.01)


def committed(broker: Broker, group: str, topic: str = "t") -> int | None:
    found = broker.coordinators.groups.coordinator_of(group).offsets.committed(group, [TopicPartition(topic, 0)])
    return found[TopicPartition(topic, 0)].offset if found else None


async def committed_by_all(data: Path) -> None:
    """Fills and stops a broker whose groups have committed, each in a batch of its own, in several segments."""
    async with running(data, offsets_topic_segment_bytes=str(_LAST)) as broker:
        await broker.coordinators.groups.ensure_topic()
        for number, name in enumerate(_NAMES):
            assert await commit(broker, name, 10 * number) is ErrorCode.NONE


def damage(data: Path, at: int, put: bytes) -> None:
    """Overwrites bytes of the second group's batch."""
    file = min((data / f"{OFFSETS_TOPIC}-0").glob("*.log"))
    content = bytearray(file.read_bytes())
    places = [position for position, _ in iter_headers(content)]
    assert 2 < len(places) < len(_NAMES)
    content[places[1] + at : places[1] + at + len(put)] = put
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("at", "put"),
    [(_RECORDS + 8, b"\xff"), (_RECORDS + 30, b"\x5a"), (0, b"\x7f"), (23, b"\x00\x7f"), (8, b"\x7f"), (16, b"\x09")],
    ids=["record", "value", "base offset", "last offset", "length", "magic"],
)
def test_one_damaged_batch_costs_its_groups_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, put: bytes
) -> None:
    async def main() -> None:
        await committed_by_all(tmp_path)
        damage(tmp_path, at, put)
        with caplog.at_level(logging.ERROR):
            async with running(tmp_path) as broker:
                await loaded(broker)
                assert {name: committed(broker, name) for name in _NAMES} == {
                    name: None if name == "g1" else 10 * number for number, name in enumerate(_NAMES)
                }
                assert await commit(broker, "g1", 77) is ErrorCode.NONE
                assert {group for each in broker.coordinators.groups.coordinators() for group in each.groups} >= set(
                    _NAMES
                ) - {"g1"}
        assert any(OFFSETS_TOPIC in record.message for record in caplog.records)

    run(main)


def test_a_log_that_cannot_be_read_is_tried_again_and_hides_no_other_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    healed = threading.Event()
    read = SharedParts.read_region

    def failing(core: SharedParts, region: FileRegion) -> bytes:
        if not healed.is_set():
            raise OSError(errno.EIO, "Input/output error")
        return read(core, region)

    async def main() -> None:
        await committed_by_all(tmp_path)
        async with running(tmp_path) as broker:
            await loaded(broker)
            await broker.control.controller.expand(OFFSETS_TOPIC, 2, None)
        monkeypatch.setattr(runtime, "_BACKOFF", Backoff(0.01, 30.0))
        monkeypatch.setattr(SharedParts, "read_region", failing)
        async with running(tmp_path) as broker:
            (empty,) = await ready(broker, 1)
            assert not empty.groups
            assert "Input/output error" in caplog.text
            healed.set()
            found = {
                name: value.offset
                for each in await ready(broker, 2)
                for name in each.groups
                for value in each.groups[name].offsets.values()
            }
            assert found == {name: 10 * number for number, name in enumerate(_NAMES)}

    run(main)


class Written:
    """Batches put into the offsets topic as a replica gets them."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.view.topics[OFFSETS_TOPIC].partitions[0].leader_log()
        self._now_ms = broker.clock.now_ms()

    def _append(self, batch: bytearray) -> None:
        assert (
            append_as_follower(self._log, memoryview(batch), [read_header(batch)], self._now_ms, lambda outcome: None)
            is not None
        )

    def offset(self, group: str, offset: int, producer_id: int = -1) -> None:
        record: KeyValue = offset_record(
            group, "t", 0, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=self._now_ms)
        )
        transactional = producer_id >= 0
        self._append(
            encode_batch(
                [(self._now_ms, record.key, record.value, ())],
                base_offset=self._log.log_end_offset,
                leader_epoch=0,
                producer_id=producer_id,
                producer_epoch=0 if transactional else -1,
                base_sequence=0 if transactional else -1,
                is_transactional=transactional,
            )
        )

    def end(self, producer_id: int, kind: ControlType) -> None:
        marker = marker_record(ControlMarker(kind, 0), self._now_ms)
        self._append(
            encode_batch(
                [marker],
                base_offset=self._log.log_end_offset,
                leader_epoch=0,
                producer_id=producer_id,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
            )
        )


def test_offsets_of_aborted_and_open_transactions_are_not_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.coordinators.groups.ensure_topic()
            log = Written(broker)
            for number, group in enumerate(("aborted", "committed", "open", "overtaken")):
                log.offset(group, 5)
                log.offset(group, 100, 1000 + number)
            log.offset("overtaken", 7)
            log.end(1000, ControlType.ABORT)
            log.end(1001, ControlType.COMMIT)
            log.end(1003, ControlType.COMMIT)
        async with running(tmp_path) as broker:
            await loaded(broker)
            assert {group: committed(broker, group) for group in ("aborted", "committed", "open", "overtaken")} == {
                "aborted": 5,
                "committed": 100,
                "open": 5,
                "overtaken": 7,
            }

    run(main)


async def with_two_topics(broker: Broker) -> None:
    await broker.coordinators.groups.ensure_topic()
    for topic in ("kept", "gone"):
        await broker.control.controller.create(TopicCreation(topic, 1, 1))
        assert await commit(broker, "g", 5, topic) is ErrorCode.NONE


async def mark_deleted(broker: Broker, topic: str) -> None:
    """Marks a topic as deleted in the tree, as another program does."""
    await broker.place.store.multi(plan_deletion(broker.control.controller.facts, topic, broker.config))


async def deleted(broker: Broker, topic: str) -> None:
    while topic in broker.control.controller.facts.topics:
        await asyncio.sleep(0.01)


def test_a_deletion_through_the_tree_takes_the_topics_offsets_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, jesenska_zookeeper_listener="127.0.0.1:0") as broker:
            await with_two_topics(broker)
            await mark_deleted(broker, "gone")
            await deleted(broker, "gone")
            assert (committed(broker, "g", "kept"), committed(broker, "g", "gone")) == (5, None)
        async with running(tmp_path) as broker:
            await loaded(broker, "g")
            assert (committed(broker, "g", "kept"), committed(broker, "g", "gone")) == (5, None)

    run(main)


def test_a_deletion_that_is_ended_at_the_start_takes_the_topics_offsets_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await with_two_topics(broker)
            await mark_deleted(broker, "gone")
        for _ in range(2):
            async with running(tmp_path) as broker:
                assert "gone" not in broker.view.topics
                await loaded(broker, "g")
                assert (committed(broker, "g", "kept"), committed(broker, "g", "gone")) == (5, None)

    run(main)


def test_a_topic_that_is_deleted_while_groups_are_loaded_takes_its_offsets_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_deleted = threading.Event()
    read = SharedParts.read_region

    def late(core: SharedParts, region: FileRegion) -> bytes:
        assert is_deleted.wait(20)
        return read(core, region)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await with_two_topics(broker)
        monkeypatch.setattr(SharedParts, "read_region", late)
        async with running(tmp_path) as broker:
            with pytest.raises(CoordinatorLoadInProgressError):
                broker.coordinators.groups.coordinator_of("g")
            broker.coordinators.groups.topic_deleted("gone")
            is_deleted.set()
            await loaded(broker, "g")
            assert (committed(broker, "g", "kept"), committed(broker, "g", "gone")) == (5, None)

    run(main)


@pytest.mark.parametrize("through_the_tree", [False, True])
def test_groups_go_on_when_their_topic_was_deleted_and_made_anew(tmp_path: Path, through_the_tree: bool) -> None:
    async def main() -> None:
        async with running(
            tmp_path, jesenska_zookeeper_listener="127.0.0.1:0", group_initial_rebalance_delay_ms="60000"
        ) as broker:
            await broker.coordinators.groups.ensure_topic()
            assert await commit(broker, "g", 5) is ErrorCode.NONE
            waiting: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            join = partial(
                Join,
                group_id="m",
                member_id="",
                group_instance_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout_ms=10_000,
            )
            groups = broker.coordinators.groups
            groups.submit(
                "m",
                partial(join, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=(("range", b""),)),
                waiting.set_result,
            )
            if through_the_tree:
                await mark_deleted(broker, OFFSETS_TOPIC)
                await deleted(broker, OFFSETS_TOPIC)
            else:
                await broker.control.controller.delete(OFFSETS_TOPIC)
            answer = await waiting
            assert isinstance(answer, JoinAnswer)
            assert answer.error is ErrorCode.NOT_COORDINATOR
            await broker.coordinators.groups.ensure_topic()
            assert committed(broker, "g") is None
            assert await commit(broker, "g", 7) is ErrorCode.NONE
            assert committed(broker, "g") == 7

    run(main)


def test_more_partitions_of_the_offsets_topic_move_no_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, partitions=2) as broker:
            await broker.coordinators.groups.ensure_topic()
            for number, name in enumerate(_NAMES):
                assert await commit(broker, name, 10 * number) is ErrorCode.NONE
            await broker.control.controller.expand(OFFSETS_TOPIC, 7, None)
            await broker.coordinators.groups.ensure_topic()
            assert {name: committed(broker, name) for name in _NAMES} == {
                name: 10 * number for number, name in enumerate(_NAMES)
            }

    run(main)
