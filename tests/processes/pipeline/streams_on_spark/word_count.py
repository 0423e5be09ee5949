"""The word count of the documents, for several tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jesenska.pipeline.streams import Serdes, StreamsBuilder, Topology

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
LINES = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]


def word_count(source: str, sink: str) -> Topology:
    """The topology as in the documents."""
    builder = StreamsBuilder()
    words = builder.stream(source, **STRINGS).flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda key, word: word, **STRINGS).count(store="counts").to_stream().to(
        sink, key=Serdes.string(), value=Serdes.long()
    )
    return builder.build()


def named_counts(source: str, sink: str, name: str) -> Topology:
    """A word count. The keys of the output begin with the name, which is not in the description."""
    builder = StreamsBuilder()
    words = builder.stream(source, **STRINGS).flat_map_values(lambda line: line.split())
    counts = words.group_by(lambda key, word: word, **STRINGS).count(store="counts").to_stream()
    counts.select_key(lambda word, count: f"{name} {word}", key=Serdes.string()).to(sink, value=Serdes.long())
    return builder.build()


def settings(bootstrap: str, directory: Path, name: str) -> dict[str, Any]:
    """The settings of an application that writes exactly once, without pauses."""
    return {
        "application.id": name,
        "bootstrap.servers": bootstrap,
        "state.dir": str(directory),
        "commit.interval.ms": 0,
        "processing.guarantee": "exactly_once_v2",
    }
