"""Helpers for the paths that do not use the engine. They check a sub-topology, make the rows for sinks, and store the
facts of a task (partition_task.py) for later micro-batches.

Input rows have the columns of the source. Written rows have the columns of the sink:

    topic string | partition int | key binary | value binary | timestamp timestamp | headers array<struct<…>>
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jesenska.pipeline.streams.processor_topology import ProcessorNode, SinkNode, SourceNode
from jesenska.pipeline.streams.timestamps import fail_on_invalid_timestamp
from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile
from jesenska.pipeline.streams_on_spark.tasks.partition_task import FACTS, Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

if TYPE_CHECKING:
    import pyarrow as pa


class Shape:
    """The nodes of a sub-topology that a path without the engine can process. It reads named topics, whose records
    keep their timestamps. It writes named topics, each by one sink without a partitioner. Raises OtherWayError, with
    the reason, for any other sub-topology."""

    def __init__(self, work: Work) -> None:
        processors, config = work.processors, work.config
        self.nodes = {name: processors.nodes[name] for name in work.names}
        self.sources = [node for node in self.nodes.values() if isinstance(node, SourceNode)]
        for source in self.sources:
            if source.pattern is not None:
                raise OtherWayError(f"{source.name} reads the topics that match a pattern")
            if source.wrap is not None:
                raise OtherWayError(f"{source.name} reads an internal topic of a table or of a join")
            if (source.timestamp_extractor or config.timestamp_extractor) is not fail_on_invalid_timestamp:
                raise OtherWayError(f"{source.name} has a timestamp extractor")
        sinks = [node for node in self.nodes.values() if isinstance(node, SinkNode)]
        for sink in sinks:
            if sink.topic is None or sink.partitioner is not None or sink.wrap is not None:
                raise OtherWayError(
                    f"{sink.name} asks a function where records go, or writes an internal topic of a table or of a join"
                )
        if len({sink.topic for sink in sinks}) != len(sinks):
            raise OtherWayError("two sinks write to one topic, whose records come in the order of both")
        self.children = {
            name: [child for child in processors.children(name) if child in self.nodes] for name in self.nodes
        }
        self.stores = list(
            dict.fromkeys(
                store for node in self.nodes.values() if isinstance(node, ProcessorNode) for store in node.stores
            )
        )
        self.reads_several = sum(len(source.topics) for source in self.sources) > 1


def full_name(work: Work, topic: str) -> str:
    """Returns the full name of a topic. Internal topics have the application's id as a prefix."""
    return f"{work.config.application_id}-{topic}" if topic in work.processors.internal_topics else topic


def facts_of(file: StateFile) -> dict[str, Any]:
    """Returns the facts of the task after the previous micro-batch (partition_task.py)."""
    text = (
        file.meta(FACTS)
        or '{"stream_time": -1, "partition_times": {}, "stores": {}, "operators": {}, "punctuations": []}'
    )
    found: dict[str, Any] = json.loads(text)
    return found


def keep_facts(file: StateFile, facts: dict[str, Any], latest: Mapping[str, int]) -> None:
    """Stores the facts of the task. `latest` contains the largest timestamp of each topic that had records."""
    for topic, at in latest.items():
        facts["stream_time"] = max(facts["stream_time"], at)
        facts["partition_times"][topic] = max(facts["partition_times"].get(topic, -1), at)
    file.set_meta(FACTS, json.dumps(facts, separators=(",", ":")))


def milliseconds(column: pa.ChunkedArray) -> pa.Array:
    """Returns the timestamps in milliseconds, as int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(column.combine_chunks().cast(pa.int64()), 1000)


def written_rows(
    rows: pa.Table, topic: str, taken: pa.Array, keys: pa.Array, values: pa.Array, times: pa.Array
) -> pa.RecordBatch:
    """Returns the records of a sink as rows. Their headers are those of the input rows from which the records were
    made."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(taken)
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.nulls(count, pa.int32()),
        keys,
        values,
        pc.multiply_checked(times, 1000).view(pa.timestamp("us", tz="UTC")),
        _headers(rows, taken),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "key", "value", "timestamp", "headers"])


def _headers(rows: pa.Table, taken: pa.Array) -> pa.Array:
    import pyarrow as pa

    kind = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
    column = rows.column("headers").combine_chunks()
    if not len(column.flatten()):
        offsets = pa.repeat(pa.scalar(0, pa.int32()), len(taken) + 1)
        return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type), type=kind)
    return column.take(taken).cast(kind)
