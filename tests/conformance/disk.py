"""What stands on disk: the batches of a partition, read with our records room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jesenska.records.header import HEADER_SIZE, BatchHeader, Codec, read_header


def segments(data: Path, topic: str, partition: int = 0) -> list[Path]:
    return sorted((data / f"{topic}-{partition}").glob("*.log"))


def batches(data: Path, topic: str, partition: int = 0) -> Iterator[BatchHeader]:
    """The headers of all batches, oldest first. A segment that is being written may end in zeros."""
    for path in segments(data, topic, partition):
        content = memoryview(path.read_bytes())
        position = 0
        while position + HEADER_SIZE <= len(content) and any(content[position : position + HEADER_SIZE]):
            header = read_header(content, position)
            yield header
            position += header.size_bytes


def codecs(data: Path, topic: str, partition: int = 0) -> set[Codec]:
    """The codecs in the attributes of a partition's batches."""
    return {header.codec for header in batches(data, topic, partition)}
