"""The starts of a broker in its directories and in the tree."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from itertools import count
from pathlib import Path

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.replicas import starts as module
from jesenska.broker.replicas.starts import Starts
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import BrokerStarts, LackingPartitions
from jesenska.metadata.registration import ensure_paths
from jesenska.metadata.store import Store
from tests.on_a_loop import on_a_loop
from tests.units.log.log_harness import NOW_MS

CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"
KEY, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class _Broker:
    """Broker 3 with a tree. It gives ids in ascending order."""

    def __init__(self, store: Store) -> None:
        self.store = store
        numbers = count(1)
        self.new_uuid = lambda: uuid.UUID(int=next(numbers))

    @staticmethod
    async def begin() -> _Broker:
        store = await EmbeddedTree.simulated(ManualClock()).session()
        await ensure_paths(store)
        return _Broker(store)

    async def start(
        self, *directories: Path, lacking: Collection[TopicPartition] = ()
    ) -> tuple[Starts, LogDirectories]:
        """Runs a start until the broker is registered."""
        opened = LogDirectories(list(directories))
        opened.lock()
        opened.claim(CLUSTER, 3)
        opened.load(lambda key, topic_id: LogConfig(), NOW_MS)
        starts = Starts(self.store, 3, opened, self.new_uuid)
        await starts.look()
        starts.lack(lacking)
        await starts.begin()
        return starts, opened

    async def written(self) -> BrokerStarts:
        return BrokerStarts.decode((await self.store.get(paths.broker_starts(3)))[0])


def _ids(opened: LogDirectories) -> list[uuid.UUID]:
    return [directory.starts.directory_id for directory in opened.directories if directory.starts is not None]


@on_a_loop
async def test_a_start_is_in_each_directory_and_in_the_tree(tmp_path: Path) -> None:
    broker = await _Broker.begin()
    for _ in range(2):
        starts, opened = await broker.start(tmp_path / "a", tmp_path / "b")
        assert not starts.has_older
        written = await broker.written()
        assert list(written.directories) == _ids(opened)
        assert [directory.starts.starts[0] for directory in opened.directories if directory.starts is not None] == list(
            written.directories.values()
        )
        assert written.lacking == ()
        opened.close()


@on_a_loop
async def test_a_session_that_is_renewed_is_no_other_start(tmp_path: Path) -> None:
    broker = await _Broker.begin()
    starts, opened = await broker.start(tmp_path)
    before = await broker.written()
    await starts.begin()
    assert await broker.written() == before
    opened.close()


@on_a_loop
async def test_logs_on_a_disk_of_before_have_lost_their_ends_but_for_those_that_were_lacking_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await _Broker.begin()
    _, opened = await broker.start(tmp_path / "first")
    for key in (KEY, OTHER):
        opened.create(key, None, LogConfig(), NOW_MS)
    opened.close()
    _, opened = await broker.start(tmp_path / "second", lacking=[KEY])
    opened.close()
    starts, opened = await broker.start(tmp_path / "first")
    assert starts.has_older
    assert list(opened.cut_logs) == [OTHER]
    assert f"the log directory {tmp_path / 'first'} is older than the last start of broker 3" in caplog.text
    assert (await broker.written()).lacking == ()
    opened.close()


@on_a_loop
async def test_what_others_lead_is_lacking_no_more(tmp_path: Path) -> None:
    broker = await _Broker.begin()
    _, opened = await broker.start(tmp_path / "first")
    had = (await broker.written()).directories
    opened.close()
    starts, opened = await broker.start(tmp_path / "second", lacking=[KEY, OTHER])
    assert (await broker.written()).lacking == (LackingPartitions(had, frozenset({KEY, OTHER})),)
    await starts.found([OTHER, TopicPartition("unknown", 0)])
    assert (await broker.written()).lacking == (LackingPartitions(had, frozenset({KEY})),)
    await starts.found([KEY])
    assert (await broker.written()).lacking == ()
    opened.close()


@on_a_loop
async def test_where_a_directory_is_offline_at_the_first_start_nothing_is_written(tmp_path: Path) -> None:
    broker = await _Broker.begin()
    (tmp_path / "broken").write_text("a file")
    _, opened = await broker.start(tmp_path / "whole", tmp_path / "broken")
    assert await broker.store.exists(paths.broker_starts(3)) is None
    opened.close()
    (tmp_path / "broken").unlink()
    starts, opened = await broker.start(tmp_path / "whole", tmp_path / "broken")
    assert not starts.has_older
    assert list((await broker.written()).directories) == _ids(opened)
    opened.close()


@on_a_loop
async def test_a_node_that_would_be_too_large_keeps_the_starts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NODE_BYTES_MAX", 200)
    broker = await _Broker.begin()
    _, opened = await broker.start(tmp_path, lacking=[TopicPartition("t" * 200, 0)])
    assert await broker.written() == BrokerStarts((await broker.written()).directories)
    assert list((await broker.written()).directories) == _ids(opened)
    opened.close()
