"""The findings of `jesenska verify` in the files of a directory, and the parts that it leaves to a running broker."""

from __future__ import annotations

import os
from pathlib import Path

from jesenska.log.log_config import LogConfig
from jesenska.log.verifying import VerifiedSegment, verified
from tests.units.log.log_harness import LogHarness, make_batch


def _segments(directory: Path, *, ends_are_whole: bool = True) -> list[VerifiedSegment]:
    return list(verified(directory, lambda path, size: None, ends_are_whole=ends_are_whole))


def _filled(directory: Path) -> list[Path]:
    with LogHarness(directory / "t-with-7-3", LogConfig(segment_bytes=600)) as harness:
        for _ in range(20):
            harness.append(make_batch())
    return sorted((directory / "t-with-7-3").glob("*.log"))


def test_whole_segments_are_good_and_other_files_are_left_alone(tmp_path: Path) -> None:
    paths = _filled(tmp_path)
    assert len(paths) > 2
    (tmp_path / "meta.properties").write_text("no log")
    (tmp_path / "t-with-7-3" / "00000000000000000000.log.deleted").write_text("nonsense")
    (tmp_path / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    found = _segments(tmp_path)
    assert [(item.topic, item.partition, item.path, list(item.damaged)) for item in found] == [
        ("t-with-7", 3, path, []) for path in paths
    ]
    assert [item.size_bytes for item in found] == [path.stat().st_size for path in paths]


def test_an_end_that_is_being_written_is_damage_only_where_nobody_writes(tmp_path: Path) -> None:
    *closed, last = _filled(tmp_path)
    with last.open("ab") as file:
        file.write(bytes(50))
    assert [bool(item.damaged) for item in _segments(tmp_path, ends_are_whole=False)] == [False] * (len(closed) + 1)
    assert [bool(item.damaged) for item in _segments(tmp_path)] == [False] * len(closed) + [True]
    with closed[0].open("ab") as file:
        file.write(bytes(50))
    assert _segments(tmp_path, ends_are_whole=False)[0].damaged


def test_a_file_that_a_broker_takes_away_meanwhile_is_left_out(tmp_path: Path) -> None:
    first, second, *others = _filled(tmp_path)
    data = second.read_bytes()
    second.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])

    def replaced(path: Path, size: int) -> None:
        """Replaces a file in the same way as compaction."""
        if path == second and path.read_bytes() != data:
            new = path.with_suffix(".swap")
            new.write_bytes(data)
            new.rename(path)
        elif path == first:
            path.unlink(missing_ok=True)

    found = list(verified(tmp_path, replaced, ends_are_whole=True))
    assert [item.path for item in found] == others
    assert not any(item.damaged for item in _segments(tmp_path))


def test_a_file_that_a_broker_truncates_meanwhile_is_read_again(tmp_path: Path) -> None:
    *_, last = _filled(tmp_path)
    whole = last.read_bytes()

    def truncated(path: Path, size: int) -> None:
        if path == last:
            os.truncate(path, 0)

    (item,) = [item for item in verified(tmp_path, truncated, ends_are_whole=True) if item.path == last]
    assert (item.size_bytes, list(item.damaged)) == (0, [])
    assert whole


def test_messages_of_old_formats_are_not_judged(tmp_path: Path) -> None:
    place = tmp_path / "old-0"
    place.mkdir()
    (place / "00000000000000000000.log").write_bytes(
        bytes(8) + (30).to_bytes(4, "big") + b"\x12\x34\x56\x78\x01" + bytes(25)
    )
    (item,) = _segments(tmp_path)
    assert (item.is_old, list(item.damaged)) == (True, [])
