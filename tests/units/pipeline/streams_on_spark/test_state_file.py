"""Many rows at once in a state file: they are there, they are found, and a repeated micro-batch finds the state before
it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from jesenska.pipeline.streams import StreamsError
from jesenska.pipeline.streams_on_spark.stores import state_segments
from jesenska.pipeline.streams_on_spark.stores.state_file import (
    HIGHEST,
    LOWEST,
    Binding,
    ReadOnlyStateFile,
    Rows,
    StateFile,
    StateTable,
    begin_file,
    bound,
)

Kept = dict[tuple[bytes, int, int], tuple[bytes, int]]


def _kept(table: StateTable) -> Kept:
    return {(a, n, m): (value, at) for a, n, m, value, at in table}


def _before(table: StateTable, keys: list[tuple[bytes, int, int]]) -> Rows:
    there = _kept(table)
    found = [(*key, *there.get(key, (None, -1))) for key in keys]
    return _columns(found)


def _some(chance: Random) -> Rows:
    keys = sorted({(b"%d" % chance.randrange(150), chance.randrange(3), 0) for _ in range(chance.choice([0, 3, 250]))})
    values = [chance.choice([None, b"", b"x", b"%d" % chance.randrange(100)]) for _ in keys]
    return _columns([(*key, value, chance.randrange(100)) for key, value in zip(keys, values, strict=True)])


def _columns(rows: list[tuple[bytes, int, int, bytes | None, int]]) -> Rows:
    return Rows(*zip(*rows, strict=True)) if rows else Rows((), (), (), (), ())


@pytest.mark.parametrize("seed", range(6))
def test_many_rows_are_put_and_taken_back_as_single_ones_are(seed: int, tmp_path: Path) -> None:
    """Each micro-batch is run twice, the first time with other changes."""
    chance = Random(seed)
    expected: Kept = {}
    for version in range(5):
        for is_last in (False, True):
            with StateFile(tmp_path / "0.state", version) as file:
                table = file.table("kept")
                assert _kept(table) == expected
                after = dict(expected)
                for act in chance.sample(["many", "many", "single", "below", "remove"], 4):
                    rows = _some(chance)
                    keys = list(zip(rows.a, rows.n, rows.m, strict=True))
                    if act == "many":
                        table.put_many(rows, _before(table, keys))
                        after |= {
                            key: (value, at)
                            for key, value, at in zip(keys, rows.value, rows.at, strict=True)
                            if value is not None
                        }
                        after = {
                            key: kept
                            for key, kept in after.items()
                            if key not in keys or rows.value[keys.index(key)] is not None
                        }
                    elif act == "single":
                        for key in keys[:5]:
                            table.put(*key, b"single", 7)
                            after[key] = (b"single", 7)
                    elif act == "remove":
                        for key in keys[:5]:
                            table.remove(*key)
                            after.pop(key, None)
                    elif chance.random() < 0.5:
                        table.remove_below(1)
                        after = {key: kept for key, kept in after.items() if key[1] >= 1}
                assert _kept(table) == after
            if is_last:
                expected = after


def test_rows_of_many_keys_are_found_within_their_bounds(tmp_path: Path) -> None:
    with StateFile(tmp_path / "0.state", 0) as file:
        table = file.table("kept", "n, a, m")
        for number in range(300):
            table.put(b"%d" % (number % 150), number, 0, b"v", 1)
        keys = [b"%d" % number for number in range(120, 260)]
        found = sorted(table.of_many(keys, 10, 280))
        assert found == sorted(
            (b"%d" % (number % 150), number, 0, b"v", 1) for number in range(10, 281) if number % 150 >= 120
        )
        assert table.of_many([], 0, 5) == []


# --- segments --------------------------------------------------------------------------------------------------------


def _rows(*times: int) -> pa.Table:
    columns: dict[str, Any] = {
        "a": [b"k"] * len(times),
        "n": times,
        "m": range(len(times)),
        "value": [b"v"] * len(times),
        "at": times,
    }
    kinds = {"a": pa.binary(), "n": pa.int64(), "m": pa.int64(), "value": pa.binary(), "at": pa.int64()}
    return pa.table({name: pa.array(column, kinds[name]) for name, column in columns.items()})


def _times(file: StateFile | ReadOnlyStateFile, lowest: int = LOWEST, highest: int = HIGHEST) -> list[int]:
    segments = file.segments("side")
    return sorted(
        time
        for table in (segments.tables(lowest, highest) if segments is not None else [])
        for time in table.column("n").to_pylist()
    )


def test_segments_of_small_micro_batches_come_together(tmp_path: Path) -> None:
    for version in range(60):
        with StateFile(tmp_path / "0.state", version) as file:
            file.segments("side").add(_rows(version), 1000)
    with closing(ReadOnlyStateFile(tmp_path / "0.state")) as read:
        assert _times(read) == list(range(60))
        assert read.segments("other") is None
    with StateFile(tmp_path / "0.state", 60) as file:
        assert len(file.segments("side").tables(LOWEST, HIGHEST)) < 6
        far = _rows(5000)
        file.segments("side").add(far, 1000)
        assert _times(file, 100, 9000) == [5000]  # not one segment with those that expire earlier


def test_large_rows_are_cut_into_several_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_segments, "_BYTES_MAX", 200)
    for version in range(3):
        with StateFile(tmp_path / "0.state", version) as file:
            file.segments("side").add(_rows(*range(20 * version, 20 * version + 20)), 1000)
            tables = file.segments("side").tables(LOWEST, HIGHEST)
            assert _times(file) == list(range(20 * version + 20))
            assert max(table.nbytes for table in tables) <= 200


def test_segments_are_taken_back_with_their_micro_batch(tmp_path: Path) -> None:
    with StateFile(tmp_path / "0.state", 0) as file:
        file.segments("side").add(_rows(1, 2), 100)
    for _ in range(2):
        with StateFile(tmp_path / "0.state", 1) as file:
            assert _times(file) == [1, 2]
            file.segments("side").add(_rows(3), 100)
            assert _times(file) == [1, 2, 3]
    for _ in range(2):
        with StateFile(tmp_path / "0.state", 2) as file:
            assert _times(file) == [1, 2, 3]
            file.segments("side").remove_below(3)
            assert _times(file) == [1, 2, 3]  # one segment, which has a row that is still needed
            file.segments("side").remove_below(4)
            assert _times(file) == []
    with StateFile(tmp_path / "0.state", 3) as file:
        assert _times(file) == []
        assert file.connection.execute('SELECT count(*) FROM "side/segments"').fetchone() == (0,)


def test_a_micro_batch_that_fails_leaves_the_segments_as_they_were(tmp_path: Path) -> None:
    with StateFile(tmp_path / "0.state", 0) as file:
        file.segments("side").add(_rows(1), 100)
    with pytest.raises(ValueError, match="failed"), StateFile(tmp_path / "0.state", 1) as file:
        file.segments("side").add(_rows(2), 100)
        raise ValueError("failed")
    with StateFile(tmp_path / "0.state", 1) as file:
        assert _times(file) == [1]


def _micro_batch(
    path: Path, version: int, starts: dict[str, int] | None, ends: dict[str, int], owner: str = "mine 0"
) -> None:
    with bound(path, Binding(owner, starts, ends)), StateFile(path, version) as file:
        file.table("kept").put(b"key", 0, 0, b"%d" % version, 0)


def test_a_micro_batch_begins_where_the_state_has_read_to(tmp_path: Path) -> None:
    path = tmp_path / "app" / "0" / "stores" / "0.state"
    _micro_batch(path, 0, None, {"lines": 3})
    _micro_batch(path, 0, None, {"lines": 5})  # of a query that repeated its first micro-batch with another end
    for _ in range(2):
        _micro_batch(path, 4, {"lines": 5, "others": 2}, {"lines": 9, "others": 4})
    with pytest.raises(
        StreamsError,
        match=r"has lines up to offset 9, but the next micro-batch begins at 11, so .*: put the right state back, or "
        r"remove \S+/app, so that",
    ):
        _micro_batch(path, 5, {"lines": 11, "others": 4}, {"lines": 12, "others": 4})
    with pytest.raises(StreamsError, match="has lines up to offset 5, but the next micro-batch begins at 6"):
        _micro_batch(path, 4, {"lines": 6}, {"lines": 9})
    with pytest.raises(StreamsError, match="belongs to another application or to another partition"):
        _micro_batch(path, 5, {"lines": 9}, {"lines": 12}, "mine 1")
    _micro_batch(path, 5, {"lines": 9}, {"lines": 12})


def test_a_state_file_that_is_lost_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "app" / "0" / "stores" / "0.state"
    begin_file(path, 0, Binding("mine 0", None, {"lines": 7}))
    _micro_batch(path, 1, {"lines": 7}, {"lines": 8})
    path.unlink()
    for binding in (Binding("mine 0", {"lines": 7}, {}), Binding("mine 0", {"lines": 8}, {})):
        with pytest.raises(StreamsError, match="is gone, but its checkpoint says that records were already read"):
            binding.check(path, 1)
        with pytest.raises(StreamsError, match="is gone, but its checkpoint says that records were already read"):
            _micro_batch(path, 1, dict(binding.starts or {}), {"lines": 9})
    Binding("mine 0", {"lines": 0}, {}).check(path, 1)
    _micro_batch(path, 1, {"lines": 0}, {"lines": 9})  # a partition that was added


def test_a_state_file_is_known_before_it_is_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "app" / "0" / "stores" / "0.state"
    _micro_batch(path, 0, None, {"lines": 3})
    _micro_batch(path, 1, {"lines": 3}, {"lines": 5})
    Binding("mine 0", {"lines": 3}, {}).check(path, 1)
    Binding("mine 0", {"lines": 5}, {}).check(path, 2)
    with pytest.raises(StreamsError, match="is of micro-batch 1, but the checkpoint is at 0"):
        Binding("mine 0", None, {}).check(path, 0)
    with pytest.raises(StreamsError, match="has lines up to offset 5, but the next micro-batch begins at 3"):
        Binding("mine 0", {"lines": 3}, {}).check(path, 2)
