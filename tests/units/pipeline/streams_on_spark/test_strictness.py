"""The programs that strict=True refuses, and those that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    JoinWindows,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyTestDriver,
    Transformer,
)
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.units.pipeline.streams.generated_topologies import topologies
from tests.units.pipeline.streams.interpreted import Interpreter

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
ONCE, TWICE = "exactly_once_v2", "at_least_once"


def strict(topology: Topology, guarantee: str = TWICE, **options: Any) -> KafkaStreams:
    config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1", "processing.guarantee": guarantee}
    return KafkaStreams(topology, config, strict=True, **options)


def line_of(thing: Any, text: str) -> str:
    """Returns the file and the line of the text."""
    lines, first = inspect.getsourcelines(thing)
    return f"{__file__}, line {first + next(at for at, line in enumerate(lines) if text in line)}: "


class Plain(Processor):
    """Keeps its state in a store."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")
        self.names = {"a": "A"}
        context.schedule(10, PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        found: dict[Any, Any] = {record.key: 1}
        found.update(self.names)
        self.store.put(record.key, record.value)
        self.context.forward(record)

    def tell(self, now_ms: int) -> None:
        for key, _ in list(self.store.all()):
            self.store.delete(key)


class Counting(Plain):
    count = 0

    def process(self, record: Record) -> None:
        self.count += 1


class Collecting(Plain):
    def process(self, record: Record) -> None:
        self.names[record.key] = record.value


class Adding(Plain):
    def tell(self, now_ms: int) -> None:
        self.names.update({"b": "B"})


class Removing(Plain):
    def process(self, record: Record) -> None:
        del self.names[record.key]


class Swapping(Plain):
    def process(self, record: Record) -> None:
        self.last, self.before = record.key, record.value


class Late(Plain):
    def process(self, record: Record) -> None:
        self.context.schedule(10, PunctuationType.STREAM_TIME, self.tell)


class ByTheClock(Plain):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tell)


class AsksForTheTime(Plain):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_timestamp(self.context.current_system_time_ms()))


class OldCounting(Transformer):
    def init(self, context: Any) -> None:
        self.count = 0

    def transform(self, key: Any, value: Any) -> Any:
        self.count += 1
        return key, value


def with_processor(supplier: Callable[[], Any]) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", **STRINGS))
    builder.stream("a", **STRINGS).process(supplier, "seen").to("out")
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).join(builder.table("b", **STRINGS), lambda left, right: left).to("out")
    return builder.build()


def global_join() -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("b", **STRINGS)
    builder.stream("a", **STRINGS).join(table, lambda left, right: left, key_selector=lambda key, value: key).to("out")
    return builder.build()


def merged() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).merge(builder.stream("b", **STRINGS)).to("out")
    return builder.build()


def repartitioned_join() -> Topology:
    builder = StreamsBuilder()
    one, two = builder.stream("a", **STRINGS).select_key(lambda key, value: value), builder.stream("b", **STRINGS)
    one.join(two, lambda left, right: left, JoinWindows(5)).to("out")
    return builder.build()


def partitioned_by_hand() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).to(lambda key, value: value, partitioner=lambda topic, key, value, count: 0)
    return builder.build()


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (
            Counting,
            "self.count",
            "changes its attribute count in process, and a micro-batch begins with a new one: keep it in a store.",
        ),
        (
            Collecting,
            "self.names",
            "changes its attribute names in process, and a micro-batch begins with a new one: keep it in a store.",
        ),
        (
            Adding,
            "self.names",
            "changes its attribute names in tell, and a micro-batch begins with a new one: keep it in a store.",
        ),
        (
            Removing,
            "del self",
            "changes its attribute names in process, and a micro-batch begins with a new one: keep it in a store.",
        ),
        (Late, "schedule", "schedules a punctuation in process, which ends with its micro-batch: schedule it in init."),
    ],
)
def test_a_processor_that_does_not_outlive_its_micro_batch_is_refused(kind: Any, text: str, sentence: str) -> None:
    with pytest.raises(StreamsError) as caught:
        strict(with_processor(kind))
    assert str(caught.value) == f"{line_of(kind, text)}strict=True refuses that KSTREAM-PROCESSOR-0000000001 {sentence}"


def test_each_attribute_is_told() -> None:
    with pytest.raises(
        StreamsError,
        match=r"attribute before in process.*attribute last in process|attribute last in process.*attribute before",
    ):
        strict(with_processor(Swapping))


def test_a_transformer_that_counts_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).transform(OldCounting).to("out")
    with pytest.raises(StreamsError, match="changes its attribute count in transform"):
        strict(builder.build())


@pytest.mark.parametrize("guarantee", [ONCE, TWICE])
def test_a_processor_that_keeps_all_in_stores_is_not_refused(guarantee: str) -> None:
    strict(with_processor(Plain), guarantee)
    strict(with_processor(lambda: Plain()), guarantee)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: with_processor(ByTheClock),
            "refuses the punctuations of KSTREAM-PROCESSOR-0000000001 on wall-clock time with exactly_once_v2",
        ),
        (
            lambda: with_processor(AsksForTheTime),
            "refuses that KSTREAM-PROCESSOR-0000000001 asks for the wall-clock time with exactly_once_v2",
        ),
        (global_join, "refuses a global table with exactly_once_v2"),
    ],
)
def test_what_comes_out_differently_when_it_is_run_again_is_refused_with_exactly_once(
    make: Callable[[], Topology], sentence: str
) -> None:
    with pytest.raises(StreamsError, match=sentence):
        strict(make(), ONCE, max_offsets_per_trigger=None)
    strict(make(), TWICE, max_offsets_per_trigger=None)


@pytest.mark.parametrize("make", [joined, repartitioned_join])
def test_topics_that_are_joined_are_refused_where_micro_batches_have_a_limit(make: Callable[[], Topology]) -> None:
    with pytest.raises(
        StreamsError,
        match=r"test_strictness.py, line \d+: strict=True refuses that sub-topology \d reads several topics",
    ):
        strict(make())
    strict(make(), max_offsets_per_trigger=None)


def test_topics_that_nothing_is_kept_of_may_come_in_any_order() -> None:
    strict(merged())
    strict(global_join())


def test_a_partitioner_of_topics_that_a_function_names_is_refused() -> None:
    with pytest.raises(StreamsError, match="strict=True refuses a partitioner for topics that a function names"):
        strict(partitioned_by_hand())


def test_each_thing_is_told() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", **STRINGS))
    builder.stream("a", **STRINGS).merge(builder.stream("b", **STRINGS)).process(Counting, "seen").to("out")
    with pytest.raises(StreamsError, match=r"(?s)several topics.*attribute count"):
        strict(builder.build())


def test_without_strict_nothing_is_refused() -> None:
    KafkaStreams(with_processor(Counting), {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"})


def test_of_generated_topologies_those_with_a_processor_that_counts_are_refused() -> None:
    """Micro-batches have no limit. `Program` is the class of all processors of `process`, and counts its ticks."""
    refused, counting = [], []
    for description in topologies(300):
        interpreter = Interpreter(
            {**description, "settings": {**description.get("settings", {}), "bootstrap.servers": "127.0.0.1:1"}}
        )
        try:
            topology = interpreter.topology()
            TopologyTestDriver(topology, interpreter.settings)
        except StreamsError:
            continue  # it cannot be built
        if any(step["do"] in ("process", "process_values") for step in description["steps"]):
            counting.append(description["name"])
        try:
            KafkaStreams(topology, interpreter.settings, strict=True, max_offsets_per_trigger=None)
        except StreamsError as error:
            assert "changes its attribute calls in punctuate" in str(error)
            refused.append(description["name"])
    assert counting
    assert refused == counting
