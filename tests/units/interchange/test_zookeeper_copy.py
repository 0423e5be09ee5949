"""A tree is read as it is at one moment, also while it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.errors import JesenskaError
from jesenska.interchange.zookeeper_copy import read_store
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Create, Delete, Operation, SetData, Stat


class _Disturbed:
    """A store whose tree another session changes before the reads in `changes`, counted from 0."""

    def __init__(self, store: Store, other: Store, changes: dict[int, list[Operation]]) -> None:
        self._store, self._other, self._changes, self._reads = store, other, changes, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _disturb(self) -> None:
        operations = self._changes.get(self._reads, self._changes.get(-1, []))
        self._reads += 1
        if operations:
            await self._other.multi(operations)

    async def sync(self) -> None:
        await self._disturb()
        await self._store.sync()

    async def get(self, path: str, watch: Any = None) -> tuple[bytes, Stat]:
        await self._disturb()
        return await self._store.get(path, watch)


async def _trees(changes: dict[int, list[Operation]]) -> tuple[Store, Any]:
    tree = EmbeddedTree.simulated(ManualClock())
    other = await tree.session()
    for path in (
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
        "/brokers/topics/a",
        "/config",
        "/config/topics",
        "/config/topics/a",
        "/other",
        "/other/x",
    ):
        await other.create(path, b"old")
    await other.create("/brokers/ids/4", b"{}", ephemeral=True)
    return other, _Disturbed(await tree.session(), other, changes)


def _read(changes: dict[int, list[Operation]]) -> dict[str, bytes | None]:
    async def body() -> dict[str, bytes | None]:
        _, disturbed = await _trees(changes)
        found = await read_store(disturbed)
        assert found.brokers_up == {4}
        return {path: node.data for path, node in found.nodes.items()}

    return asyncio.run(asyncio.wait_for(body(), 60))


_OLD = dict.fromkeys(
    (
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
        "/brokers/topics/a",
        "/config",
        "/config/topics",
        "/config/topics/a",
    ),
    b"old",
)


def test_only_kafkas_nodes_are_read_and_ephemerals_are_named() -> None:
    assert _read({}) == _OLD


#: Reads of that tree, the ephemeral node's among them.
_READS = range(9)


@pytest.mark.parametrize("read", _READS)
def test_what_changes_together_is_read_together(read: int) -> None:
    changed = {"/brokers/topics/a": b"new", "/config/topics/a": b"new"}
    made = {"/brokers/topics/b": b"b", "/config/topics/b": b"b"}
    together: list[Operation] = [
        *(SetData(path, data) for path, data in changed.items()),
        *(Create(path, data) for path, data in made.items()),
    ]
    assert _read({read: together}) == _OLD | changed | made


@pytest.mark.parametrize("read", _READS)
def test_what_is_deleted_meanwhile_is_gone_with_all_below_it(read: int) -> None:
    gone = ["/brokers/topics/a", "/brokers/topics", "/config/topics/a"]
    assert _read({read: [Delete(path) for path in gone]}) == {
        path: data for path, data in _OLD.items() if path not in gone
    }


@pytest.mark.parametrize("read", _READS)
def test_what_is_deleted_and_made_again_is_the_new_one(read: int) -> None:
    again: list[Operation] = [Delete("/brokers/topics/a"), Create("/brokers/topics/a", b"again")]
    assert _read({read: again})["/brokers/topics/a"] == b"again"


def test_a_tree_that_never_keeps_still_is_told() -> None:
    with pytest.raises(JesenskaError, match=r"^The tree changes faster than it can be read"):
        _read({-1: [SetData("/brokers/topics/a", b"new")]})
