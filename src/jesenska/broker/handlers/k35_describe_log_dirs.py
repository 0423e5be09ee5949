"""DescribeLogDirs (key 35), versions 0-5: each log directory with its partitions and their sizes (KIP-113). Each line
is what a version adds:

  0      partitions by directory: size in bytes, lag (0 for a replica in use). The copy of a replica that is being
         moved to the directory is marked `isFuture`; its size is the bytes copied, its lag the records not copied yet
  2      compact encoding
  4      size and free space of the directory's volume in bytes (KIP-827); -1 if unknown
  5      a flag that the directory is cordoned (KIP-1066)

If `topics` is null, all partitions are answered, else the named partitions. Partitions without a replica on this
broker are left out. If a directory is offline, or its volume cannot be examined, the answer is KAFKA_STORAGE_ERROR."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.base.identifiers import TopicPartition
    from jesenska.log.copies.replica_moves import MoveFigures
    from jesenska.log.directory.log_directory import LogDirectory

_FIRST_WITH_ROOM = 4


@handles(DescribeLogDirsRequest, LogFamily)
def handle(uses: LogFamily, request: DescribeLogDirsRequest, context: Context) -> Outcome:
    asked = None if request.topics is None else _asked(uses, request.topics)
    directories = uses.directories.directories
    moves = uses.directories.moves.figures() if uses.directories.moves is not None else []
    response = DescribeLogDirsResponse(results=[_described(directory, asked, moves) for directory in directories])
    if context.version < _FIRST_WITH_ROOM:
        return response
    offline = [directory.is_offline for directory in directories]
    paths = [directory.path for directory in directories]

    def look() -> None:
        for path, result, is_offline in zip(paths, response.results, offline, strict=True):
            if not is_offline:
                _look_at_volume(path, result)

    uses.pool.submit(look, lambda: context.answer(response))
    return LATER


def _asked(uses: LogFamily, topics: list[DescribeLogDirsRequestTopic]) -> dict[str, set[int]]:
    """Returns the numbers of the partitions that the request names, by topic. Unknown topics are left out."""
    asked: dict[str, set[int]] = {}
    for topic in topics:
        if topic.topic in uses.view.topics:
            asked.setdefault(topic.topic, set()).update(topic.partitions)
    return asked


def _described(
    directory: LogDirectory, asked: dict[str, set[int]] | None, moves: list[MoveFigures]
) -> DescribeLogDirsResponseResult:
    if directory.is_offline:
        return DescribeLogDirsResponseResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory.path.absolute())
        )
    topics: dict[str, DescribeLogDirsResponseTopic] = {}

    def add(key: TopicPartition, size_bytes: int, offset_lag: int, is_future: bool) -> None:
        name, number = key
        if asked is not None and number not in asked.get(name, ()):
            return
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeLogDirsResponseTopic(name=name)
        replica = DescribeLogDirsResponsePartition(
            partition_index=number, partition_size=size_bytes, offset_lag=offset_lag, is_future_key=is_future
        )
        topic.partitions.append(replica)

    for key, log in directory.logs.items():
        add(key, log.size_bytes, 0, False)
    for move in moves:
        if move.target is directory:
            add(move.topic_partition, move.copied_bytes, move.offset_lag, True)
    return DescribeLogDirsResponseResult(
        log_dir=str(directory.path.absolute()), topics=list(topics.values()), is_cordoned=directory.is_cordoned
    )


def _look_at_volume(path: Path, result: DescribeLogDirsResponseResult) -> None:
    """Adds the size and the free bytes of the directory's volume to the answer. May wait for the disk, so it runs in
    the thread pool."""
    try:
        volume = os.statvfs(path)
    except OSError:
        result.error_code, result.topics = ErrorCode.KAFKA_STORAGE_ERROR, []
        return
    result.total_bytes, result.usable_bytes = volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
