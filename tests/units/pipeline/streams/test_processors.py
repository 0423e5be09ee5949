"""Processors of the program's own: forwarding, stores, punctuations; topologies that are put together by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    Processor,
    ProcessorContext,
    ProcessorFailedError,
    PunctuationType,
    Record,
    Serdes,
    SessionWindow,
    Stores,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyError,
    TopologyTestDriver,
    Transformer,
    ValueAndTimestamp,
    ValueTransformer,
    ValueTransformerWithKey,
    Windowed,
)
from tests.units.pipeline.streams.running import LONG, STRING, S, driver_of, outcome, pipe, read


class _Counting(Processor):
    """Counts in a store how often a key came."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(f"{record.value}{count}"))


class _Doubling(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)
        self.context.forward(record.with_key("again").with_timestamp(record.timestamp + 1))


def _with_store() -> StreamsBuilder:
    return StreamsBuilder().add_state_store(Stores.key_value_store("counts", key=STRING, value=LONG))


def test_a_processor_keeps_state_and_forwards_what_it_likes() -> None:
    builder = _with_store()
    builder.stream("in", **S).process(_Counting, "counts").process(_Doubling).to("out", **S)
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 1), ("in", "a", "y", 2)])
        assert read(driver) == [("a", "x1", 1), ("again", "x1", 2), ("a", "y2", 2), ("again", "y2", 3)]
        assert driver.get_key_value_store("counts").all() == [("a", 2)]
        assert read(driver, "test-counts-changelog", value=LONG) == [("a", 1, 1), ("a", 2, 2)]


def test_a_stores_changelog_has_the_time_of_the_record_that_is_processed() -> None:
    class Late(_Counting):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_timestamp(99))
            self.counts.put(record.key, 1)

    builder = _with_store()
    builder.stream("in", **S).process(Late, "counts").to("out", **S)
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver, "test-counts-changelog", value=LONG) == [("a", 1, 1)]


def test_what_a_window_store_refuses_as_too_old_is_counted() -> None:
    class Keeping(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("kept").put(record.key, record.value, record.timestamp)

    builder = StreamsBuilder().add_state_store(Stores.window_store("kept", retention=20, window_size=10, **S))
    builder.stream("in", **S).process(Keeping, "kept")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 30), ("in", "a", "y", 11), ("in", "a", "z", 10)])
        assert driver.dropped_records == 1
        assert driver.get_window_store("kept").fetch("a", 0, 100) == [(11, "y"), (30, "x")]


def test_an_aggregation_behind_process_goes_through_an_internal_topic_and_one_behind_process_values_does_not() -> None:
    for call, repartitions in (
        ("process", 1),
        ("process_values", 0),
        ("transform", 1),
        ("flat_transform", 1),
        ("transform_values", 0),
    ):
        builder = StreamsBuilder()
        getattr(builder.stream("in", **S), call)(lambda: None).group_by_key().count(store="kept")
        kinds = list(builder.build().internal_topics("app").values())
        assert kinds.count("repartition") == repartitions, call


def test_process_values_keeps_keys() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).process_values(_Doubling).to("out", **S)
    with (
        driver_of(builder) as driver,
        pytest.raises(StreamsError, match="forwarded the key 'again' for 'a': process_values keeps keys, use process"),
    ):
        pipe(driver, [("in", "a", "x", 1)])


def test_a_store_that_a_processor_is_not_connected_to_is_refused() -> None:
    builder = _with_store()
    builder.stream("in", **S).process(_Counting, name="unconnected")
    with pytest.raises(StreamsError, match="unconnected uses the store counts without being connected to it"):
        driver_of(builder)


def test_a_store_that_is_not_there_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).process(_Counting, "counts")
    with pytest.raises(
        TopologyError, match="uses the store counts, which is not there: add it with add_state_store first"
    ):
        builder.build()


def test_one_processor_for_all_tasks_is_refused() -> None:
    with pytest.raises(
        TopologyError, match="process needs a new Processor for each task, and cannot use one _Doubling for all tasks"
    ):
        StreamsBuilder().stream("in", **S).process(_Doubling())  # type: ignore[arg-type]


class _Ticking(Processor):
    """Forwards a record with each punctuation."""

    def __init__(self, kind: PunctuationType) -> None:
        self._kind = kind

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = 0
        self.punctuation = context.schedule(10, self._kind, self.tick)

    def tick(self, now: int) -> None:
        assert self.context.record_metadata is None
        self.context.forward(Record("tick", str(self.seen), now))
        if now > 50:
            self.punctuation.cancel()

    def process(self, record: Record) -> None:
        self.seen += 1
        self.context.forward(record)


def _ticking(kind: PunctuationType) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in", **S).process(lambda: _Ticking(kind)).to("out", **S)
    return driver_of(builder)


def test_punctuations_on_stream_time_come_with_the_records_that_pass_the_next_multiple() -> None:
    with _ticking(PunctuationType.STREAM_TIME) as driver:
        pipe(driver, [("in", "a", "1", 3), ("in", "a", "2", 9), ("in", "a", "3", 35), ("in", "a", "4", 36)])
        driver.advance_wall_clock_time(1000)
        assert read(driver) == [
            ("a", "1", 3),
            ("tick", "1", 3),
            ("a", "2", 9),
            ("a", "3", 35),
            ("tick", "3", 35),
            ("a", "4", 36),
        ]
        pipe(driver, [("in", "b", "5", 60), ("in", "b", "6", 100)])
        assert read(driver) == [("b", "5", 60), ("tick", "5", 60), ("b", "6", 100)]


def test_punctuations_on_wall_clock_time_come_with_the_clock() -> None:
    with _ticking(PunctuationType.WALL_CLOCK_TIME) as driver:
        pipe(driver, [("in", "a", "1", 300)])
        driver.advance_wall_clock_time(9)
        assert read(driver) == [("a", "1", 300)]
        driver.advance_wall_clock_time(25)
        assert read(driver) == [("tick", "1", 34)]
        driver.advance_wall_clock_time(5)
        driver.advance_wall_clock_time(1)
        assert read(driver) == [("tick", "1", 40)]


def test_a_punctuator_that_raises_is_named() -> None:
    class Raising(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(5, PunctuationType.WALL_CLOCK_TIME, lambda now: 1 // 0)  # type: ignore[arg-type]

        def process(self, record: Record) -> None:
            pass

    builder = StreamsBuilder()
    builder.stream("in", **S).process(Raising, name="raising")
    with driver_of(builder) as driver, pytest.raises(ProcessorFailedError, match="raising raised ZeroDivisionError"):
        driver.advance_wall_clock_time(5)


class _Pairs(Transformer):
    def transform(self, key: Any, value: Any) -> Any:
        return None if value == "none" else (value, key)


class _ManyPairs(Transformer):
    def transform(self, key: Any, value: Any) -> Any:
        return [(key, part) for part in value.split()]


class _Lengths(ValueTransformer):
    def transform(self, value: Any) -> Any:
        return str(len(value))


class _Letters(ValueTransformerWithKey):
    def transform(self, key: Any, value: Any) -> Any:
        return [key + letter for letter in value]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda stream: stream.transform(_Pairs), [("x y", "a", 1)]),
        (lambda stream: stream.flat_transform(_ManyPairs), [("a", "x", 1), ("a", "y", 1), ("a", "none", 2)]),
        (lambda stream: stream.transform_values(_Lengths), [("a", "3", 1), ("a", "4", 2)]),
        (
            lambda stream: stream.flat_transform_values(_Letters),
            [("a", "a" + letter, 1) for letter in "x y"] + [("a", "a" + letter, 2) for letter in "none"],
        ),
    ],
)
def test_transformers_give_pairs_or_values(call: Callable[[Any], Any], expected: list[Any]) -> None:
    builder = StreamsBuilder()
    call(builder.stream("in", **S)).to("out", **S)
    assert outcome(builder, [("in", "a", "x y", 1), ("in", "a", "none", 2)]) == expected


# By hand


def _by_hand() -> Topology:
    topology = Topology()
    topology.add_source("in", "in", **S)
    topology.add_processor("count", _Counting, "in")
    topology.add_processor("double", _Doubling, "count")
    topology.add_state_store(Stores.key_value_store("counts", key=STRING, value=LONG), "count")
    topology.add_sink("out", "out", "double", **S)
    topology.add_sink("first", lambda key, value: f"of-{key}", ["count"], **S)
    return topology


def test_a_topology_by_hand_runs() -> None:
    with TopologyTestDriver(_by_hand()) as driver:
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver) == [("a", "x1", 1), ("again", "x1", 2)]
        assert read(driver, "of-a") == [("a", "x1", 1)]


def test_a_processor_may_forward_to_one_of_those_behind_it() -> None:
    class Choosing(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, record.value)

    topology = Topology().add_source("in", "in", **S).add_processor("choose", Choosing, "in")
    topology.add_sink("one", "one", "choose", **S).add_sink("two", "two", "choose", **S)
    with TopologyTestDriver(topology) as driver:
        pipe(driver, [("in", "a", "two", 1)])
        assert driver.produced_topic_names() == {"two"}
        with pytest.raises(StreamsError, match="choose forwarded to three, which does not come after it"):
            pipe(driver, [("in", "a", "three", 1)])


def test_a_global_store_is_filled_by_its_own_processor_and_seen_by_all() -> None:
    class Filling(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("users").put(record.key, record.value.upper())

    class Asking(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(self.context.get_state_store("users").get(record.key)))

    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store("users", **S), "users", Filling, **S)
    builder.stream("in", **S).process(Asking).to("out", **S)
    assert outcome(builder, [("users", "a", "till", 1), ("in", "a", "x", 2), ("in", "b", "x", 3)]) == [
        ("a", "TILL", 2),
        ("b", None, 3),
    ]


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda topology: topology.add_source("in", "other", **S), "there are two processors of the name in"),
        (lambda topology: topology.add_source("again", "in", **S), "topic in is read by two sources, in and again"),
        (
            lambda topology: topology.add_processor("late", _Doubling, "nobody"),
            "the parent nobody of late is not there: add it first",
        ),
        (
            lambda topology: topology.add_processor("late", _Doubling, "out"),
            "out is a sink, which nothing can come after",
        ),
        (lambda topology: topology.add_processor("late", _Doubling, ()), "late has no parent"),
        (lambda topology: topology.add_sink("late", "x", "late", **S), "the parent late of late is not there"),
        (
            lambda topology: topology.connect_processor_and_state_stores("double", "none"),
            "double uses the store none, which is not there",
        ),
        (lambda topology: topology.add_state_store("kept"), "add_state_store takes a store that Stores makes"),
        (lambda topology: topology.add_source("empty", (), **S), "a source needs a topic: name at least one"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_the_line_of_the_program(
    build: Callable[[Any], Any], sentence: str
) -> None:
    topology = _by_hand()
    before = topology.describe()
    with pytest.raises(TopologyError, match=sentence) as refused:
        build(topology)
    assert str(refused.value).startswith(f"{__file__}, line ")
    assert topology.describe() == before


# Stores of all kinds


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A store of the kind that the test asks for, in a topology that runs."""
    kept = request.param
    builder = StreamsBuilder().add_state_store(kept)
    builder.stream("in", **S).process(_Doubling, kept.name)
    with driver_of(builder) as driver:
        yield driver.get_all_state_stores()[kept.name]


@pytest.mark.parametrize("store", [Stores.key_value_store("kept", **S)], indirect=True)
def test_a_key_value_store_is_in_the_order_of_its_keys_bytes(store: Any) -> None:
    store.put_all([("b", "2"), ("a", "1"), ("ab", "3"), ("ä", "4")])
    assert [key for key, _ in store.all()] == ["a", "ab", "b", "ä"]
    assert list(store.range("ab", "b")) == [("ab", "3"), ("b", "2")]
    assert list(store.reverse_range(None, "ab")) == [("ab", "3"), ("a", "1")]
    assert [key for key, _ in store.prefix_scan("a", Serdes.string())] == ["a", "ab"]
    assert (store.put_if_absent("a", "5"), store.put_if_absent("c", "6")) == ("1", None)
    assert (store.delete("b"), store.get("b"), store.approximate_num_entries()) == ("2", None, 4)
    with pytest.raises(StreamsError, match="the store kept was asked about the key None"):
        store.get(None)


@pytest.mark.parametrize("store", [Stores.key_value_store("kept", timestamped=True, **S)], indirect=True)
def test_a_timestamped_store_has_times(store: Any) -> None:
    store.put("a", ValueAndTimestamp("1", 5))
    assert store.get("a") == ("1", 5)
    with pytest.raises(StreamsError, match=r"put ValueAndTimestamp\(value, timestamp\)"):
        store.put("a", "1")


def test_a_window_store_tells_what_a_key_had_at_a_time() -> None:
    """A window store in place of a versioned store."""

    class Asking(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.prices = context.get_state_store("prices")

        def process(self, record: Record) -> None:
            if record.value.startswith("as of "):
                found = next(iter(self.prices.backward_fetch(record.key, 0, int(record.value[6:]))), None)
                self.context.forward(record.with_value("nothing" if found is None else found[1]))
            else:
                self.prices.put(record.key, record.value, record.timestamp)

    builder = StreamsBuilder()
    builder.add_state_store(Stores.window_store("prices", retention=100_000, window_size=1, **S))
    builder.stream("in", **S).process(Asking, "prices").to("out", **S)
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "cheap", 10), ("in", "a", "dear", 30), ("in", "a", "fair", 20)])
        for time in (9, 10, 25, 30, 1000):
            pipe(driver, [("in", "a", f"as of {time}", 40)])
        assert [text for _, text, _ in read(driver)] == ["nothing", "cheap", "fair", "dear", "dear"]


@pytest.mark.parametrize("store", [Stores.window_store("kept", retention=20, window_size=10, **S)], indirect=True)
def test_a_window_store_forgets_what_is_older_than_its_retention(store: Any) -> None:
    for at in (0, 10, 20):
        store.put("a", str(at), at)
        store.put("b", str(at), at)
    assert list(store.fetch("a", 0, 100)) == [(10, "10"), (20, "20")]
    assert store.fetch("a", 0) is None
    store.put("a", "late", 0)
    store.put("a", None, 10)
    assert list(store.backward_fetch("a", 0, 100)) == [(20, "20")]
    assert [(windowed.key, windowed.window.start) for windowed, _ in store.fetch_range("a", "b", 0, 15)] == [("b", 10)]
    assert [(windowed.key, windowed.window.end) for windowed, _ in store.all()] == [("b", 20), ("a", 30), ("b", 30)]


@pytest.mark.parametrize(
    "store", [Stores.window_store("kept", retention=20, window_size=10, retain_duplicates=True, **S)], indirect=True
)
def test_a_window_store_may_keep_several_values(store: Any) -> None:
    for value in ("1", "2", None):
        store.put("a", value, 5)
    assert list(store.fetch("a", 0, 10)) == [(5, "1"), (5, "2")]


@pytest.mark.parametrize("store", [Stores.session_store("kept", retention=50, **S)], indirect=True)
def test_a_session_store_finds_sessions_that_overlap(store: Any) -> None:
    for start, end in ((0, 5), (10, 20), (30, 30)):
        store.put(Windowed("a", SessionWindow(start, end)), f"{start}-{end}")
    assert [value for _, value in store.find_sessions("a", 5, 10)] == ["0-5", "10-20"]
    assert [value for _, value in store.find_sessions("a", 6, 9)] == []
    assert (store.fetch_session("a", 10, 20), store.fetch_session("a", 10, 21)) == ("10-20", None)
    assert [value for _, value in store.fetch("a")] == ["0-5", "10-20", "30-30"]
    store.remove(Windowed("a", SessionWindow(10, 20)))
    store.put(Windowed("b", SessionWindow(60, 60)), "60")
    assert [value for _, value in store.all()] == ["30-30", "60"]
