"""Source nodes of a topology that read topics as streams."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jesenska.pipeline.streams.dsl.construction import Construction
from jesenska.pipeline.streams.dsl.materialization import check_serde
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.plan import StreamSource
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.timestamps import TimestampExtractor

Topics = str | Iterable[str] | re.Pattern[str]
"""The name of a topic, several names, or a compiled pattern that matches whole names."""


def names_and_pattern(topics: Topics) -> tuple[tuple[str, ...], str | None]:
    """Returns the topic names and None. For a pattern, returns no names and the text of the pattern."""
    if isinstance(topics, re.Pattern):
        return (), topics.pattern
    if isinstance(topics, str):
        return (checked(topics),), None
    if not isinstance(topics, Iterable):
        raise refused(f"{topics!r} is not a topic: give a name, a list of names, or a pattern that re.compile gives.")
    names = tuple(checked(topic) for topic in topics)
    if not names:
        raise refused("a source needs a topic: name at least one.")
    return names, None


def stream_source(
    construction: Construction,
    topics: tuple[str, ...],
    pattern: str | None,
    *,
    key: Serde | None,
    value: Serde | None,
    extractor: TimestampExtractor | None = None,
    offset_reset: str | None = None,
    name: str | None = None,
) -> StreamSource:
    """Adds a source that reads these topics as a stream."""
    check_serde("key", key)
    check_serde("value", value)
    name = construction.names.named(name, "KSTREAM-SOURCE-")
    node = StreamSource(
        name=name,
        made_at=here(),
        key=key,
        value=value,
        topics=topics,
        pattern=pattern,
        timestamp_extractor=extractor,
        offset_reset=checked_reset(offset_reset),
    )
    construction.add(node)
    return node


def checked_reset(offset_reset: str | None) -> str | None:
    """Returns `offset_reset`, which says where an application without committed offsets begins. Raises TopologyError
    if it is not "earliest", "latest" or None."""
    if offset_reset not in (None, "earliest", "latest"):
        raise refused(f"offset_reset is {offset_reset!r}: write 'earliest' or 'latest'.")
    return offset_reset
