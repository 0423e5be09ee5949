"""The classes that a program uses: streams, tables and groups. Each is the operations of its module; here they are
tied together, since a stream makes tables, and a table makes streams."""

from __future__ import annotations

from jesenska.pipeline.streams.dsl.construction import Makers
from jesenska.pipeline.streams.dsl.operations.grouped_operations import GroupedStreamOperations, GroupedTableOperations
from jesenska.pipeline.streams.dsl.operations.stream_operations import StreamOperations
from jesenska.pipeline.streams.dsl.operations.table_operations import TableOperations


class KTable(TableOperations["KStream", "KGroupedTable"]):
    """A table. Made by `StreamsBuilder.table`, by aggregations and by operations on tables, not by hand."""


class KGroupedStream(GroupedStreamOperations[KTable]):
    """A stream grouped by its keys. Made by `KStream.group_by` and `group_by_key`."""


class KGroupedTable(GroupedTableOperations[KTable]):
    """A table grouped by new keys. Made by `KTable.group_by`."""


class KStream(StreamOperations[KTable, KGroupedStream]):
    """A stream of records. Made by `StreamsBuilder.stream` and by operations, not by hand."""


MAKERS = Makers(stream=KStream, table=KTable, grouped_stream=KGroupedStream, grouped_table=KGroupedTable)
