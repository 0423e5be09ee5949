"""A call with the syntax of Kafka Streams in Java or of Spark gets a message with the syntax used here."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from jesenska.pipeline import streams
from jesenska.pipeline.streams import (
    JoinWindows,
    KeyValue,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
    value,
)

STREAM: Any = StreamsBuilder().stream("in")
TABLE: Any = StreamsBuilder().table("in")
ANY: Any = value
SERDES: Any = Serdes
TIMES: Any = TimeWindows
JOINS: Any = JoinWindows
SESSIONS: Any = SessionWindows
STORES: Any = Stores
SUPPRESSED: Any = Suppressed
DRIVER: Any = TopologyTestDriver


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (lambda: STREAM.groupByKey(), "KStream has no groupByKey: it is written group_by_key here."),
        (lambda: STREAM.count(), "KStream has no count: write group_by_key().count(…)."),
        (lambda: STREAM.where(value > 1), "KStream has no where: write filter(…)."),
        (lambda: STREAM.nothing, "'KStream' object has no attribute 'nothing'"),
        (lambda: TABLE.to("out"), "KTable has no to: write to_stream().to(…)."),
        (lambda: SERDES.String(), "Serdes has no String: it is written string here."),
        (lambda: SERDES.ByteArray(), "Serdes has no ByteArray: write Serdes.bytes()."),
        (
            lambda: TIMES.ofSizeWithNoGrace(5),
            "TimeWindows has no ofSizeWithNoGrace: it is written of_size_with_no_grace here.",
        ),
        (lambda: TIMES.of(5), "TimeWindows has no of: write TimeWindows(…)."),
        (lambda: TIMES.of_size(5), "TimeWindows has no of_size: write TimeWindows(…)."),
        (
            lambda: STORES.persistentKeyValueStore("s"),
            "Stores has no persistentKeyValueStore: write Stores.key_value_store(…).",
        ),
        (
            lambda: STORES.in_memory_session_store("s"),
            "Stores has no in_memory_session_store: write Stores.session_store(…).",
        ),
        (lambda: STORES.windowStoreBuilder("s"), "Stores has no windowStoreBuilder: write Stores.window_store(…)."),
        (
            lambda: SUPPRESSED.untilWindowCloses(),
            "Suppressed has no untilWindowCloses: it is written until_window_closes here.",
        ),
        (lambda: JOINS.of(5), "JoinWindows has no of: write JoinWindows(…)."),
        (lambda: SESSIONS.nothing, "'SessionWindows' object has no attribute 'nothing'"),
        (lambda: ANY.amount, "an expression has no amount: a field is written value['amount']."),
    ],
)
def test_a_name_of_others_is_answered_with_ours(written: Callable[[], object], said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        written()
    assert str(caught.value) == said
    # Python adds nothing to a sentence that ends with the right syntax.
    if said.endswith("."):
        assert "".join(traceback.format_exception_only(caught.value)).endswith(f"{said}\n")


def test_a_builder_in_place_of_a_topology_is_told_to_be_built() -> None:
    with pytest.raises(
        TopologyError, match=r"TopologyTestDriver takes a Topology, and not a StreamsBuilder: give the result of"
    ):
        DRIVER(StreamsBuilder())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (lambda: len(ANY), "write value.length()"),
        (lambda: "a" in ANY, r"write value.contains\(…\)"),
        (lambda: STREAM.filter(ANY == 1 and ANY == 2), "write & for and, | for or, ~ for not"),
    ],
)
def test_an_expression_says_what_python_cannot_do_with_it(written: Callable[[], object], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        written()


@pytest.mark.parametrize("name", ["persistentVersionedKeyValueStore", "versioned_key_value_store"])
def test_a_versioned_store_is_answered_with_what_does_the_same(name: str) -> None:
    with pytest.raises(
        AttributeError,
        match=r"write Stores\.window_store\(…\), put each value with its time .* backward_fetch\(key, 0, as_of\)",
    ):
        getattr(STORES, name)


def test_classes_that_only_hold_arguments_are_answered_with_keywords() -> None:
    with pytest.raises(ImportError, match="Materialized is not there: the operation itself takes store="):
        exec("from jesenska.pipeline.streams import Materialized")
    with pytest.raises(ImportError, match=r"VersionedRecord is not there: write Stores\.window_store"):
        exec("from jesenska.pipeline.streams import VersionedRecord")
    with pytest.raises(
        ImportError, match=r"KafkaStreams is not there: import it from jesenska\.pipeline\.streams_on_spark\."
    ):
        exec("from jesenska.pipeline.streams import KafkaStreams")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = streams.nothing
    assert KeyValue.pair("a", 1) == ("a", 1)


def test_a_column_of_spark_is_answered_with_an_expression() -> None:
    class Column:
        __module__ = "pyspark.sql.column"

    with pytest.raises(TopologyError, match="filter takes no Spark column: write the expression with value and key"):
        STREAM.filter(Column())


def test_expressions_and_windows_travel_all_the_same() -> None:
    for given in ((value["a"] + 1).lower(), TimeWindows(5)):
        assert repr(pickle.loads(pickle.dumps(given))) == repr(copy.deepcopy(given)) == repr(given)
