"""The classes that a program uses: streams, tables and groups. Their operations are defined in other modules. The
classes are joined here, since streams create tables, and tables create streams."""

from __future__ import annotations

from jesenska.pipeline.streams.dsl.construction import Makers
from jesenska.pipeline.streams.dsl.operations.grouped_operations import GroupedStreamOperations, GroupedTableOperations
from jesenska.pipeline.streams.dsl.operations.stream_operations import StreamOperations
from jesenska.pipeline.streams.dsl.operations.table_operations import TableOperations


class KTable(TableOperations["KStream", "KGroupedTable"]):
    """A table. It is created by `StreamsBuilder.table`, by aggregations and by operations on tables, not by the
    program itself."""


class KGroupedStream(GroupedStreamOperations[KTable]):
    """A stream grouped by key. It is created by `KStream.group_by` and `KStream.group_by_key`."""


class KGroupedTable(GroupedTableOperations[KTable]):
    """A table grouped by new keys. It is created by `KTable.group_by`."""


class KStream(StreamOperations[KTable, KGroupedStream]):
    """A stream of records. It is created by `StreamsBuilder.stream` and by operations, not by the program itself."""


MAKERS = Makers(stream=KStream, table=KTable, grouped_stream=KGroupedStream, grouped_table=KGroupedTable)
