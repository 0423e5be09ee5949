from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from jesenska.base.regions import FileRegion
from jesenska.log.disk.files import FileLayer, probe_cold, raise_open_file_limit
from jesenska.log.segments.segment_file import OpenFile, OpenFiles, SegmentFile


def test_warm_pages_are_not_cold(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    opened = OpenFile(os.open(path, os.O_RDWR), FileLayer())
    region = FileRegion(opened, 10, 90_000)
    assert not probe_cold(region)
    region.release()
    opened.release()


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"), reason="needs Linux")
def test_pages_that_were_dropped_from_memory_are_cold(tmp_path: Path) -> None:
    path = tmp_path / "x"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, os.urandom(1_000_000))
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    opened = OpenFile(descriptor, FileLayer())
    region = FileRegion(opened, 0, 1_000_000)
    try:
        if not probe_cold(region):
            pytest.skip("this file system keeps its pages, or does not answer RWF_NOWAIT")
        os.pread(descriptor, 1_000_000, 0)
        assert not probe_cold(region)
    finally:
        region.release()
        opened.release()


def test_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = min(1024, before[1]) if before[1] != resource.RLIM_INFINITY else 1024
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, before[1]))
        room = raise_open_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft >= lowered
        assert hard == before[1]
        assert 16 <= room <= 4096
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_short_writes_are_continued(tmp_path: Path) -> None:
    class ShortFiles(FileLayer):
        __slots__ = ()

        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            return super().pwrite(descriptor, memoryview(data)[:7], position)

    files = ShortFiles()
    files.replace_file(tmp_path / "x", bytes(range(50)))
    assert files.read_file(tmp_path / "x") == bytes(range(50))


def test_allocate_reserves_the_size_where_the_system_lacks_fallocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    files = FileLayer()
    descriptor = files.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    files.allocate(descriptor, 300_001)
    assert files.size(descriptor) == 300_001
    files.close(descriptor)


def test_file_stays_open_for_those_who_hold_it(tmp_path: Path) -> None:
    files = FileLayer()
    cache = OpenFiles(files, limit=1)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    first, second = SegmentFile(tmp_path / "a", files, cache), SegmentFile(tmp_path / "b", files, cache)
    region = FileRegion(first.handle(), 0, 1)
    second.handle()
    assert not first.is_open
    (tmp_path / "a").unlink()
    assert files.pread(region.file.fileno(), 1, 0) == b"a"
    descriptor = region.file.fileno()
    region.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    second.close()


def test_active_file_is_never_evicted(tmp_path: Path) -> None:
    files = FileLayer()
    cache = OpenFiles(files, limit=1)
    paths = [tmp_path / str(number) for number in range(4)]
    active, *others = [SegmentFile(path, files, cache) for path in paths]
    active.create()
    active.pin()
    for other in others:
        other.create()
    assert active.is_open
    assert [other.is_open for other in others] == [False, False, True]
    for file in (active, *others):
        file.close()
