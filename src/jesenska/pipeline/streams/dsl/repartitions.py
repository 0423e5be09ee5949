"""Repartition topics: internal topics through which a stream passes, so that records with equal keys are in one
partition."""

from __future__ import annotations

import re
from collections.abc import Callable

from jesenska.pipeline.streams.dsl.construction import Construction
from jesenska.pipeline.streams.locations import here
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.plan import Repartition
from jesenska.pipeline.streams.serdes.serde import Serde

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}\Z")
_REPARTITION = "-repartition"
Partitioner = Callable[..., int | None]
"""partitioner(topic, key, value, partitions) gives the number of the partition, or None for the usual one."""


def repartition_node(
    construction: Construction,
    parent: str,
    prefix: str,
    *,
    key: Serde | None,
    value: Serde | None,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
    asked_for: bool = False,
) -> Repartition:
    """Returns the node of a repartition topic whose name begins with `prefix`. If the prefix is a generated name, the
    node's processors also get generated names."""
    topic = prefix if prefix.endswith(_REPARTITION) else prefix + _REPARTITION
    sink = construction.names.processor("KSTREAM-SINK-")
    filter_ = construction.names.processor("KSTREAM-FILTER-")
    source = construction.names.processor("KSTREAM-SOURCE-")
    if not _GENERATED.match(prefix):
        sink, filter_, source = (checked(f"{topic}-{part}") for part in ("sink", "filter", "source"))
    return Repartition(
        name=source,
        inputs=(parent,),
        made_at=here(),
        key=key,
        value=value,
        topic=topic,
        filter_name=filter_,
        sink_name=sink,
        partitions=partitions,
        partitioner=partitioner,
        asked_for=asked_for,
    )
