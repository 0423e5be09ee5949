"""The Kafka Streams API in Python: streams, tables, windows, joins, aggregations and processors, with the topology and
its test driver. This package does not import Spark."""

from typing import NoReturn

from jesenska.pipeline.streams.driver import TestInputTopic, TestOutputTopic, TopologyTestDriver
from jesenska.pipeline.streams.dsl.builder import StreamsBuilder
from jesenska.pipeline.streams.dsl.expressions import (
    Expression,
    aggregate,
    array,
    coalesce,
    concat,
    if_else,
    key,
    left,
    lit,
    right,
    struct,
    value,
)
from jesenska.pipeline.streams.dsl.kinds import KGroupedStream, KGroupedTable, KStream, KTable
from jesenska.pipeline.streams.dsl.materialization import Stores
from jesenska.pipeline.streams.dsl.operations.cogrouped_operations import (
    CogroupedKStream,
    SessionWindowedCogroupedKStream,
    TimeWindowedCogroupedKStream,
)
from jesenska.pipeline.streams.dsl.operations.grouped_operations import SessionWindowedKStream, TimeWindowedKStream
from jesenska.pipeline.streams.dsl.operations.stream_operations import BranchedKStream
from jesenska.pipeline.streams.dsl.operations.table_operations import GlobalKTable
from jesenska.pipeline.streams.dsl.processing import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Transformer,
    ValueTransformer,
    ValueTransformerWithKey,
)
from jesenska.pipeline.streams.dsl.windows import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
)
from jesenska.pipeline.streams.errors import (
    ProcessorFailedError,
    SerializationError,
    SettingError,
    StreamsError,
    TopologyError,
)
from jesenska.pipeline.streams.handlers import (
    Decision,
    DeserializationFailure,
    ProcessingFailure,
    ProductionFailure,
    dead_letter_topic,
    log_and_continue,
    log_and_fail,
)
from jesenska.pipeline.streams.kafka_names import of_module
from jesenska.pipeline.streams.plan import Plan, Store
from jesenska.pipeline.streams.records import KeyValue, Record, SessionWindow, TimeWindow, ValueAndTimestamp, Windowed
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.timestamps import (
    InputRecord,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)
from jesenska.pipeline.streams.topology import Topology

__all__ = [
    "BranchedKStream",
    "BufferConfig",
    "CogroupedKStream",
    "Decision",
    "DeserializationFailure",
    "EmitStrategy",
    "Expression",
    "GlobalKTable",
    "InputRecord",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValue",
    "Plan",
    "ProcessingFailure",
    "Processor",
    "ProcessorContext",
    "ProcessorFailedError",
    "ProductionFailure",
    "PunctuationType",
    "Record",
    "Serde",
    "Serdes",
    "SerializationError",
    "SessionWindow",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SettingError",
    "SlidingWindows",
    "Store",
    "Stores",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "Suppressed",
    "TestInputTopic",
    "TestOutputTopic",
    "TimeWindow",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "Transformer",
    "ValueAndTimestamp",
    "ValueTransformer",
    "ValueTransformerWithKey",
    "Windowed",
    "aggregate",
    "array",
    "coalesce",
    "concat",
    "dead_letter_topic",
    "fail_on_invalid_timestamp",
    "if_else",
    "key",
    "left",
    "lit",
    "log_and_continue",
    "log_and_fail",
    "log_and_skip_on_invalid_timestamp",
    "right",
    "struct",
    "use_partition_time_on_invalid_timestamp",
    "value",
    "wallclock_timestamp",
]


def __getattr__(name: str) -> NoReturn:
    """Raises an import error for a name that the package does not have. The error says what replaces a class of Kafka
    Streams."""
    raise of_module(name)
